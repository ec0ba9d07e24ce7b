package redislease

import (
	"context"

	"github.com/go-leasehold/leasehold/lease"
)

// Check implements [lease.Store].
func (s *Store) Check(ctx context.Context) ([]lease.Problem, error) {
	if err := s.usable(); err != nil {
		return nil, err
	}
	return nil, nil
}
