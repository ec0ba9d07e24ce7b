package redislease

import (
	"errors"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/lease"
)

// TestTimeoutsFitIntoThePatience: what the connection is given is less than what a request is given, which is a
// quarter of the TTL, and little however long leases last.
func TestTimeoutsFitIntoThePatience(t *testing.T) {
	for ttl, patience := range map[time.Duration]time.Duration{
		minTTL: 25 * time.Millisecond, time.Second: 250 * time.Millisecond, 10 * time.Second: 2500 * time.Millisecond,
		DefaultTTL: 3 * time.Second, time.Hour: 3 * time.Second,
	} {
		cfg := Config{TTL: ttl}
		require.Equal(t, patience, cfg.patience())
		opt, err := clientOption(rueidis.ClientOption{InitAddress: []string{"127.0.0.1:1"}}, cfg)
		require.NoError(t, err)
		within := max(patience, 3*minTimeout) // leases that are shorter still are not the connection's measure
		require.LessOrEqual(t, 2*opt.Dialer.Timeout, within, "%v: to connect, and to be greeted", ttl)
		require.LessOrEqual(t, 2*opt.Dialer.KeepAlive+opt.ConnWriteTimeout, within, "%v: to find the server silent", ttl)
	}
	theirs := rueidis.ClientOption{InitAddress: []string{"127.0.0.1:1"}, ConnWriteTimeout: time.Minute}
	theirs.Dialer.Timeout, theirs.Dialer.KeepAlive = 2*time.Minute, 3*time.Minute
	opt, err := clientOption(theirs, Config{TTL: time.Second})
	require.NoError(t, err)
	require.Equal(t, theirs.Dialer, opt.Dialer)
	require.Equal(t, theirs.ConnWriteTimeout, opt.ConnWriteTimeout)
}

// newTestLane is a lane that sends nothing: its calls wait, as behind a server that is silent.
func newTestLane(ttl time.Duration) *lane {
	return newLane(&Store{config: Config{TTL: ttl}, conns: newConns(), addr: "nowhere"}, 0)
}

// end takes a lane down again.
func (l *lane) end() {
	l.close()
	l.abandon()
	l.wait()
}

func TestCallIsAnsweredWhenItsPatienceIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, start := newTestLane(DefaultTTL), time.Now()
		defer l.end()
		answered := make(chan time.Duration, 10)
		for i := range 4 {
			c := &call{request: lease.Request{Op: lease.Acquire}, done: func(_ lease.Reply, err error) {
				var failure *Error
				if errors.As(err, &failure) && errors.Is(err, errPatience) {
					answered <- time.Since(start)
				}
			}}
			require.True(t, l.add(c, i%2 == 0))
			if i == 1 {
				l.answer(c, lease.Reply{}, nil) // by the server
			}
			time.Sleep(time.Second)
		}
		for _, sent := range []time.Duration{0, 2 * time.Second, 3 * time.Second} {
			require.Equal(t, sent+maxPatience, <-answered)
		}
	})
}

// TestBurstIsNotSilence: requests that are old because there are many wait on while the server answers others, for as
// long as the contract allows, and no connection is given up for them.
func TestBurstIsNotSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, start := newTestLane(DefaultTTL), time.Now()
		defer l.end()
		near, far := net.Pipe()
		defer far.Close()
		_, err := l.store.conns.add(near, "", 0)
		require.NoError(t, err)
		answered := make(chan time.Duration, 10)
		add := func() {
			c := &call{request: lease.Request{Op: lease.Acquire}, done: func(lease.Reply, error) { answered <- time.Since(start) }, sent: true}
			require.True(t, l.add(c, false))
		}
		add()
		for range 8 {
			time.Sleep(time.Second)
			l.answered()
		}
		require.Equal(t, DefaultTTL/4, <-answered)
		require.Len(t, l.store.conns.open, 1)
		add() // at 8 s, and the server falls silent at 10 s
		time.Sleep(2 * time.Second)
		l.answered()
		require.Equal(t, 10*time.Second+maxPatience/2, <-answered)
		synctest.Wait()
		require.Empty(t, l.store.conns.open)
	})
}
