package pubsub

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/redis/rueidis"
)

const (
	defaultMinBackoff = 5 * time.Millisecond
	defaultMaxBackoff = 250 * time.Millisecond
)

var (
	// ErrClosed is what a Subscriber says after Close.
	ErrClosed = errors.New("pubsub: the subscriber is closed")

	// ErrUnsubscribed is the loss of a channel that the server ended by
	// itself, as it does where the channel's slot moves to another node.
	ErrUnsubscribed = errors.New("pubsub: the server ended the subscription")
)

// Config says what a [Subscriber] does. Its functions must not block; each is
// called by one goroutine at a time for a channel, and may be nil.
type Config struct {
	// Sharded subscribes with SSUBSCRIBE, at the master of the channel's slot.
	Sharded bool

	// Message is called with each message.
	Message func(channel, message string)
	// Confirmed is called when the server has confirmed the subscription,
	// the first time and after each loss.
	Confirmed func(channel string)
	// Lost is called when messages may be missed from here on: once for each
	// confirmation, and once where the very first try fails. The Subscriber
	// goes on trying.
	Lost func(channel string, err error)
	// Failed is called with each try that failed, behind Lost where that is
	// called too.
	Failed func(channel string, err error)

	// MinBackoff and MaxBackoff bound the pause between two tries; the first
	// try after a loss comes at once. Zero: 5 ms and 250 ms.
	MinBackoff, MaxBackoff time.Duration
}

// Subscriber keeps channels subscribed. Its methods may be called at the same
// time.
type Subscriber struct {
	client rueidis.Client
	config Config

	ctx    context.Context // of every Receive; ended by Close
	cancel context.CancelFunc
	done   sync.WaitGroup

	mu       sync.Mutex
	channels map[string]*channel
	closed   bool
}

// channel is one subscription, and belongs to the goroutine that runs it but
// for what stands under mu.
type channel struct {
	name string

	mu    sync.Mutex
	state state
	// settled is closed when the first try is over, one way or the other.
	settled chan struct{}
	firstly error // of that try
	reason  error // why it is lost: the newest
	trying  bool  // a try is under way, or comes at once
}

// state of a channel: unsettled -> confirmed <-> lost.
type state uint8

const (
	unsettled state = iota
	confirmed
	lost
)

// NewSubscriber makes a Subscriber with no channels. The client stays the
// caller's, and must outlive it.
func NewSubscriber(client rueidis.Client, config Config) *Subscriber {
	if config.MinBackoff <= 0 {
		config.MinBackoff = defaultMinBackoff
	}
	if config.MaxBackoff < config.MinBackoff {
		config.MaxBackoff = max(defaultMaxBackoff, config.MinBackoff)
	}
	ctx, cancel := context.WithCancel(context.Background())
	return &Subscriber{client: client, config: config, ctx: ctx, cancel: cancel, channels: map[string]*channel{}}
}

// Subscribe starts to keep a channel subscribed, and returns at once. It does
// nothing for one that it keeps already.
func (s *Subscriber) Subscribe(name string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return ErrClosed
	}
	if s.channels[name] == nil {
		c := &channel{name: name, settled: make(chan struct{}), trying: true}
		s.channels[name] = c
		s.done.Go(func() { s.keep(c) })
	}
	return nil
}

// Confirmed says whether messages of the channel come in now.
func (s *Subscriber) Confirmed(name string) bool {
	s.mu.Lock()
	c := s.channels[name]
	s.mu.Unlock()
	if c == nil {
		return false
	}
	return c.is(confirmed)
}

// Reason is why messages of the channel don't come in: the newest error, nil
// where they do or nothing has failed yet. trying says that it is being tried
// right now; Confirmed or Failed will be called for that.
func (s *Subscriber) Reason(name string) (reason error, trying bool) {
	s.mu.Lock()
	c := s.channels[name]
	s.mu.Unlock()
	if c == nil {
		return nil, false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.reason, c.trying
}

// Wait returns when the first try to subscribe the channel is over: nil, or
// why it failed. The Subscriber goes on trying either way.
func (s *Subscriber) Wait(ctx context.Context, name string) error {
	s.mu.Lock()
	c := s.channels[name]
	s.mu.Unlock()
	if c == nil {
		return fmt.Errorf("pubsub: the channel %q was never subscribed", name)
	}
	select {
	case <-c.settled:
		return c.firstly
	case <-ctx.Done():
		return fmt.Errorf("pubsub: subscribing %q: %w", name, context.Cause(ctx))
	}
}

// Close stops listening and returns when no goroutine is left and no callback
// will be called any more, or when ctx has ended. It may be called again.
//
// It sends nothing: the subscriptions stay on the server until the client's
// connections are closed, which should come next. An UNSUBSCRIBE could not be
// sent safely, for the client puts a PING behind it and takes for granted that
// a PING is not refused; where it is (the server is busy with a script, can't
// write its snapshots, has lost its master), the answers no longer match the
// commands, and the client panics on a goroutine of its own.
func (s *Subscriber) Close(ctx context.Context) error {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.cancel()
	ended := make(chan struct{})
	go func() { // ends with the channels, which wait for nothing but a connection that is being made
		s.done.Wait()
		close(ended)
	}()
	select {
	case <-ended:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("pubsub: close: %w", context.Cause(ctx))
	}
}

func (c *channel) is(state state) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.state == state
}

func (s *Subscriber) enter(name string) rueidis.Completed {
	if s.config.Sharded {
		return s.client.B().Ssubscribe().Channel(name).Build()
	}
	return s.client.B().Subscribe().Channel(name).Build()
}

// keep is the goroutine of a channel.
func (s *Subscriber) keep(c *channel) {
	// Our own loop, for the client's counts its tries for ever and so takes a
	// second for each loss after some twenty.
	ctx := rueidis.WithOnSubscriptionHook(s.ctx, func(change rueidis.PubSubSubscription) {
		if change.Kind == "subscribe" || change.Kind == "ssubscribe" {
			s.confirm(c)
		}
	})
	backoff := time.Duration(0)
	for {
		c.try()
		err := s.client.Receive(ctx, s.enter(c.name), func(message rueidis.PubSubMessage) {
			if s.config.Message != nil {
				s.config.Message(message.Channel, message.Message)
			}
		})
		if s.ctx.Err() != nil {
			s.lose(c, ErrClosed)
			return
		}
		if err == nil {
			err = ErrUnsubscribed
		}
		if s.lose(c, err) {
			backoff = 0
		}
		if !s.pause(backoff) {
			return
		}
		backoff = min(max(2*backoff, s.config.MinBackoff), s.config.MaxBackoff)
	}
}

// pause waits for about d, and says whether to go on.
func (s *Subscriber) pause(d time.Duration) bool {
	if d > 0 {
		timer := time.NewTimer(d/2 + rand.N(d))
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-s.ctx.Done():
		}
	}
	return s.ctx.Err() == nil
}

func (c *channel) try() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.trying = true
}

// confirm runs on the goroutine that reads from Redis.
func (s *Subscriber) confirm(c *channel) {
	c.mu.Lock()
	first, again := c.state == unsettled, c.state == confirmed
	c.state, c.reason, c.trying = confirmed, nil, false
	c.mu.Unlock()
	if !again && s.config.Confirmed != nil {
		s.config.Confirmed(c.name)
	}
	if first {
		close(c.settled) // last: whoever has waited finds that Confirmed was called
	}
}

// lose says whether the channel was confirmed before.
func (s *Subscriber) lose(c *channel, err error) bool {
	c.mu.Lock()
	before := c.state
	if before == unsettled {
		c.firstly = err
	}
	c.state, c.reason, c.trying = lost, err, before == confirmed && !errors.Is(err, ErrClosed)
	c.mu.Unlock()
	if before != lost && !errors.Is(err, ErrClosed) && s.config.Lost != nil {
		s.config.Lost(c.name, err)
	}
	if before != confirmed && s.config.Failed != nil {
		s.config.Failed(c.name, err)
	}
	if before == unsettled {
		close(c.settled) // last, as in confirm
	}
	return before == confirmed
}
