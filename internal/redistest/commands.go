package redistest

import (
	"context"
	"fmt"
	"sort"
	"testing"
	"time"

	"github.com/redis/rueidis"
)

// commandLimit bounds a single admin command, so that a paused server fails a test instead of hanging it.
const commandLimit = 30 * time.Second

// Client returns a plain client of the server (no tracking, no background pings), closed when the test ends.
func (s *Server) Client(t testing.TB) rueidis.Client {
	t.Helper()
	client, err := s.newClient()
	if err != nil {
		t.Fatalf("redistest: client of %s: %v", s.Addr(), err)
	}
	t.Cleanup(func() {
		s.resumeIfPaused()
		client.Close()
	})
	return client
}

func (s *Server) newClient() (rueidis.Client, error) {
	option := s.Option()
	option.ForceSingleClient = s.whole == nil // of a cluster too: this very server is meant
	option.DisableCache = true
	option.PipelineMultiplex = -1
	option.Dialer.KeepAlive = -1 // no background PING, which would be counted by Commands
	option.ConnWriteTimeout = commandLimit
	return rueidis.NewClient(option)
}

// Do runs one command as an operator would from outside: s.Do(t, "DEL", key). An error fails the test; a nil
// reply does not. The commands are counted by Commands, and the first one opens a connection (a few more).
func (s *Server) Do(t testing.TB, args ...string) rueidis.RedisMessage {
	t.Helper()
	message, err := s.DoErr(args...)
	if err != nil {
		t.Fatalf("redistest: %q: %v", args, err)
	}
	return message
}

// DoErr is Do for a command that is expected to fail; nil is no error.
func (s *Server) DoErr(args ...string) (rueidis.RedisMessage, error) {
	if len(args) == 0 {
		panic("redistest: Do needs a command")
	}
	if s.whole != nil {
		return s.whole.do(args)
	}
	admin, err := s.adminClient()
	if err != nil {
		return rueidis.RedisMessage{}, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), commandLimit)
	defer cancel()
	message, err := admin.Do(ctx, admin.B().Arbitrary(args...).Build()).ToMessage()
	if rueidis.IsRedisNil(err) {
		err = nil
	}
	return message, err
}

func (s *Server) adminClient() (rueidis.Client, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running()
	if s.admin == nil {
		admin, err := s.newClient()
		if err != nil {
			return nil, fmt.Errorf("redistest: client of %s: %w", s.Addr(), err)
		}
		s.admin = admin
	}
	return s.admin, nil
}

// Commands returns how many commands the server has run since it started (INFO's total_commands_processed,
// which counts the calls inside scripts too), its own probes left out: the difference of two readings is what
// everybody else did in between.
func (s *Server) Commands() int64 {
	s.requireOne("Commands")
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running()
	deadline := time.Now().Add(probeLimit)
	if s.probes.conn == nil {
		if err := s.probes.open(s, deadline); err != nil {
			panic(fmt.Errorf("redistest: probe of %s: %w", s.Addr(), err))
		}
	}
	info, err := s.probes.info("stats", deadline)
	if err != nil {
		panic(fmt.Errorf("redistest: INFO of %s: %w", s.Addr(), err))
	}
	total, err := infoField[int64](info, "total_commands_processed")
	if err != nil {
		panic(err)
	}
	others := total - s.probes.sent
	s.probes.sent++ // an INFO counts itself only after it has answered
	return others
}

// Keys returns the sorted names of the keys that match pattern, expired ones left out.
func (s *Server) Keys(t testing.TB, pattern string) []string {
	t.Helper()
	if s.whole != nil {
		var all []string
		for _, one := range s.whole.Primaries() {
			all = append(all, one.Keys(t, pattern)...)
		}
		return sorted(all)
	}
	message := s.Do(t, "KEYS", pattern)
	keys, err := message.AsStrSlice()
	if err != nil {
		t.Fatalf("redistest: KEYS %s: %v", pattern, err)
	}
	sort.Strings(keys)
	return keys
}
