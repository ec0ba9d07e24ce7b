package redislease

import (
	"context"

	"github.com/redis/rueidis"
)

// TrackedAt is Tracked on a cluster by a list of slots that is wrong: one node has them all.
func (s *Store) TrackedAt(ctx context.Context, address string, reads ...rueidis.Completed) ([]rueidis.RedisResult, error) {
	results := make([]rueidis.RedisResult, len(reads))
	return results, s.trackOnNodes(ctx, masters{{0, slots - 1, address}}, reads, results)
}

// Watched is how many names are watched.
func (s *Store) Watched() int {
	s.watchers.mu.RLock()
	defer s.watchers.mu.RUnlock()
	return len(s.watchers.of)
}
