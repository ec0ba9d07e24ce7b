package redislease

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/redis/rueidis"
)

const (
	// trackedChunk is how many reads go in one pipeline, two commands each: well
	// below what would take another connection, and few enough that a renewal
	// gets in between.
	trackedChunk = 500

	// trackedNodes is how many nodes of a cluster are asked at the same time.
	trackedNodes = 8

	// trackedMoves is how often a read of a cluster is sent after its slot.
	trackedMoves = 4
)

// ErrNoTracking says that the server does not tell of changes, or that the
// options forbid to ask for it.
var ErrNoTracking = errors.New("redislease: no client-side caching, so that nothing tells of changes")

// tracks says whether changes are told of.
func (s *Store) tracks() error {
	if err := s.usable(); err != nil {
		return err
	}
	switch {
	case s.capabilities.Tracking:
		return nil
	case s.option.AlwaysRESP2:
		return fmt.Errorf("%w: the connection speaks RESP2", ErrNoTracking)
	case s.option.DisableCache:
		return fmt.Errorf("%w: ClientOption.DisableCache is set", ErrNoTracking)
	}
	return fmt.Errorf("%w: the server refuses CLIENT TRACKING", ErrNoTracking)
}

// Watch has fn called when a key was changed by another connection after it was
// read by [Store.Tracked], and when that may have been missed: a flush, a lost
// connection, Close. Name is the whole name in Redis, prefix included. Watch
// first and read then; fn may be called before the call that reads has returned.
// Redis tells of one change only; to be told of the next, read the key again.
//
// fn runs on the goroutine that reads from Redis and must not block; it may call
// stop, and Watch. After stop no call begins; one that has begun may still be
// running. On a cluster nobody is told of a key that did not exist when it was
// read, and is made after its slot has moved to another node.
func (s *Store) Watch(name string, fn func()) (stop func(), err error) {
	if err := s.tracks(); err != nil {
		return nil, err
	}
	return s.watchers.add(name, fn), nil
}

// watchers are those who want to know of changes, by name. The zero value is
// ready for use.
type watchers struct {
	mu sync.RWMutex
	of map[string][]*watcher // lists are never changed in place
}

type watcher struct {
	fn      func()
	stopped atomic.Bool
}

func (w *watcher) tell() {
	if !w.stopped.Load() {
		w.fn()
	}
}

func (w *watchers) add(name string, fn func()) (stop func()) {
	one := &watcher{fn: fn}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.of == nil {
		w.of = map[string][]*watcher{}
	}
	w.of[name] = append(slices.Clip(w.of[name]), one)
	return func() {
		if one.stopped.Swap(true) {
			return
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		rest := slices.DeleteFunc(slices.Clone(w.of[name]), func(other *watcher) bool { return other == one })
		if len(rest) == 0 {
			delete(w.of, name)
		} else {
			w.of[name] = rest
		}
	}
}

// invalidated is told what Redis tells. Functions are called with no lock held,
// so that they can call us.
func (w *watchers) invalidated(name string, all bool) {
	w.mu.RLock()
	told := w.of[name]
	if all {
		told = w.all()
	}
	w.mu.RUnlock()
	for _, one := range told {
		one.tell()
	}
}

func (w *watchers) all() []*watcher {
	all := make([]*watcher, 0, len(w.of))
	for _, list := range w.of {
		all = append(all, list...)
	}
	return all
}

// close tells everybody, since nothing will be told from now on, and then
// forgets them.
func (w *watchers) close() {
	w.mu.Lock()
	told := w.all()
	w.of = nil
	w.mu.Unlock()
	for _, one := range told {
		one.tell()
	}
}

// CanTrack says whether a command can be given to [Store.Tracked]: it is marked as
// one that reads, which the builder does by itself, and Arbitrary's ReadOnly on
// request, and it does not wait for something to happen.
func CanTrack(read rueidis.Completed) bool {
	return !read.IsEmpty() && read.IsReadOnly() && !read.IsBlock() && !read.NoReply()
}

// Tracked reads keys in such a way that the server will tell, see [Store.Watch],
// when another connection changes them. The results are in the order of the
// reads, which are built by the builder of [Store.Plain]'s client and must be
// marked as reads, see [CanTrack]. Reads of much data are for Plain: renewals of
// leases wait behind them.
//
// An error of a server in answer to a read is in its result; an error of the call
// means that not all reads were sent, or not all were answered. On a cluster a
// read whose slot is moving can't be tracked: its result is the server's ASK.
func (s *Store) Tracked(ctx context.Context, reads ...rueidis.Completed) ([]rueidis.RedisResult, error) {
	if err := s.tracks(); err != nil {
		return nil, err
	}
	for i := range reads {
		if !CanTrack(reads[i]) {
			return nil, fmt.Errorf("redislease: tracked: command %d is not marked as a read", i)
		}
	}
	results := make([]rueidis.RedisResult, len(reads))
	var err error
	if s.cluster {
		var masters masters
		if masters, err = s.masters(ctx); err == nil {
			err = s.trackOnNodes(ctx, masters, reads, results)
		}
	} else {
		all := make([]int, len(reads))
		for i := range all {
			all[i] = i
		}
		err = s.track(ctx, s.client, reads, all, results)
	}
	if err != nil {
		return nil, err
	}
	return results, nil
}

// track sends the reads that which numbers to one server, and puts the answers
// in their places.
func (s *Store) track(ctx context.Context, server rueidis.Client, reads []rueidis.Completed, which []int, results []rueidis.RedisResult) error {
	commands := make([]rueidis.Completed, 0, 2*min(len(which), trackedChunk))
	for chunk := range slices.Chunk(which, trackedChunk) {
		commands = commands[:0]
		for _, i := range chunk {
			commands = append(commands, server.B().ClientCaching().Yes().Build(), reads[i])
		}
		answers, err := s.patiently(ctx, server, commands)
		if err != nil {
			return err
		}
		for n, i := range chunk {
			results[i] = answers[2*n+1]
		}
	}
	return nil
}

// patiently sends pairs of commands, waits no longer for them than for any other
// request, and fails where one was not answered, or would not be tracked.
func (s *Store) patiently(ctx context.Context, server rueidis.Client, commands []rueidis.Completed) ([]rueidis.RedisResult, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, s.config.TTL/3, errPatience)
	defer cancel()
	answers := server.DoMulti(ctx, commands...)
	for i := range answers {
		err := answers[i].NonRedisError()
		if i%2 == 0 {
			err = answers[i].Error()
		}
		if err == nil {
			continue
		}
		if errors.Is(err, context.DeadlineExceeded) {
			err = context.Cause(ctx)
		}
		err = s.wrap("tracked", err)
		s.suspect(err)
		return nil, err
	}
	return answers, nil
}

// trackOnNodes asks each node of a cluster by itself. The client for the whole
// cluster would send a read after its slot, but not the CLIENT CACHING before it,
// so that the read were silently not tracked.
func (s *Store) trackOnNodes(ctx context.Context, masters masters, reads []rueidis.Completed, results []rueidis.RedisResult) error {
	at := make([]string, len(reads))
	pending := make([]int, len(reads))
	for i := range reads {
		reads[i] = reads[i].Pin() // it may be sent again
		at[i], pending[i] = masters.of(reads[i].Slot()), i
	}
	for range trackedMoves {
		servers := s.client.Nodes()
		if err := s.trackGroups(ctx, servers, groupByNode(servers, at, pending), reads, results); err != nil {
			return err
		}
		var moved []int
		for _, i := range pending {
			address, ok := movedTo(results[i])
			if !ok {
				continue
			}
			if servers[address] == nil {
				// The client gets to know a node when it follows a command there.
				if err := s.client.Do(ctx, reads[i]).NonRedisError(); err != nil {
					return s.wrap("tracked", err)
				}
				servers[address] = s.client // once is enough
			}
			at[i] = address
			moved = append(moved, i)
		}
		if pending = moved; len(pending) == 0 {
			break
		}
	}
	return nil
}

// masters are the nodes of a cluster that have the slots.
type masters []slotRange

type slotRange struct {
	first, last int64
	address     string
}

// of is the address of a slot's node, or empty where it is not known.
func (m masters) of(slot uint16) string {
	for i := range m {
		if m[i].first <= int64(slot) && int64(slot) <= m[i].last {
			return m[i].address
		}
	}
	return ""
}

// masters asks one node after the other, until one answers.
func (s *Store) masters(ctx context.Context) (masters, error) {
	err := rueidis.ErrNoSlot // there is no node
	for address, server := range s.client.Nodes() {
		var ranges []rueidis.RedisMessage
		if ranges, err = s.askSlots(ctx, server); err == nil {
			return parseSlots(ranges, address), nil
		}
		if ctx.Err() != nil {
			break
		}
	}
	return nil, s.wrap("tracked", err)
}

func (s *Store) askSlots(ctx context.Context, server rueidis.Client) ([]rueidis.RedisMessage, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, s.config.patience(), errPatience)
	defer cancel()
	return server.Do(ctx, server.B().ClusterSlots().Build()).ToArray()
}

// parseSlots reads first slot, last slot, master, replicas of each range, and
// leaves out what makes no sense: the first node will know. A node that does not
// know its own host is the one that was asked.
func parseSlots(ranges []rueidis.RedisMessage, asked string) (all masters) {
	for i := range ranges {
		values, _ := ranges[i].ToArray()
		if len(values) < 3 {
			continue
		}
		first, err1 := values[0].AsInt64()
		last, err2 := values[1].AsInt64()
		node, _ := values[2].ToArray()
		if err1 != nil || err2 != nil || first < 0 || last < first || last >= slots || len(node) < 2 {
			continue
		}
		host, _ := node[0].ToString()
		port, err := node[1].AsInt64()
		if err != nil || port < 1 || port > math.MaxUint16 {
			continue
		}
		if host == "" || host == "?" {
			host, _, _ = net.SplitHostPort(asked)
		}
		all = append(all, slotRange{first, last, net.JoinHostPort(host, strconv.FormatInt(port, 10))})
	}
	return all
}

// groupByNode sorts reads by the node they are for. Those for which none is known
// go to any: it will say where to.
func groupByNode(servers map[string]rueidis.Client, at []string, pending []int) map[string][]int {
	var some string
	for some = range servers {
		break
	}
	groups := map[string][]int{}
	for _, i := range pending {
		address := at[i]
		if servers[address] == nil {
			address = some
		}
		groups[address] = append(groups[address], i)
	}
	return groups
}

func (s *Store) trackGroups(ctx context.Context, servers map[string]rueidis.Client, groups map[string][]int, reads []rueidis.Completed, results []rueidis.RedisResult) error {
	room := make(chan struct{}, trackedNodes)
	failures := make(chan error, len(groups))
	for address, which := range groups {
		room <- struct{}{}
		go func() { // ends with the server's answer, or with our patience
			failures <- s.track(ctx, servers[address], reads, which, results)
			<-room
		}()
	}
	var err error
	for range groups {
		if failure := <-failures; err == nil {
			err = failure
		}
	}
	return err
}

// movedTo is the node that a read should have gone to.
func movedTo(result rueidis.RedisResult) (address string, moved bool) {
	err := result.Error()
	var answer *rueidis.RedisError
	// The client takes for granted that a MOVED has all its words: MOVED <slot> <address>.
	if errors.As(err, &answer) && code(err) == "MOVED" && strings.Count(answer.Error(), " ") == 2 {
		return answer.IsMoved()
	}
	return "", false
}
