package resptest

import (
	"context"
	"testing"

	"github.com/alicebob/miniredis/v2/server"
	"github.com/redis/rueidis"
)

// Server answers a command with the answer that the command asks for.
type Server struct{ client rueidis.Client }

// Start starts a server, which ends with the test.
func Start(t testing.TB) *Server {
	t.Helper()
	s, err := server.NewServer("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	for command, answer := range map[string]server.Cmd{
		"HELLO":  func(c *server.Peer, _ string, _ []string) { c.WriteRaw(Frame("%\nserver\nresptest\nproto\n:3")) },
		"CLIENT": func(c *server.Peer, _ string, _ []string) { c.WriteOK() },
		"PING":   func(c *server.Peer, _ string, _ []string) { c.WriteInline("PONG") },
		"ANSWER": func(c *server.Peer, _ string, args []string) { c.WriteRaw(Frame(args[0])) },
	} {
		if err := s.Register(command, answer); err != nil {
			t.Fatal(err)
		}
	}
	client, err := rueidis.NewClient(rueidis.ClientOption{
		InitAddress: []string{s.Addr().String()}, ForceSingleClient: true, DisableCache: true, DisableRetry: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return &Server{client}
}

// Answer returns the answer that the text describes: see [Frame].
func (s *Server) Answer(text string) rueidis.RedisResult {
	return s.client.Do(context.Background(), s.client.B().Arbitrary("ANSWER").Args(text).Build())
}
