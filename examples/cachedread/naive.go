package main

import (
	"context"
	"errors"
)

// naive is the same service without a lock. Whoever finds nothing in the cache rebuilds it, beside all others who
// find nothing; and one who has asked the database before a change may store the answer after it, where it stays
// until it expires.
type naive struct {
	cache *cache
	db    *connection
	counters
}

// unfenced is the token of who has none: nothing ever refuses it.
const unfenced = 0

func (n *naive) view(ctx context.Context, id int, show func(*product) error) error {
	p, err := n.cache.get(ctx, id)
	if errors.Is(err, errMissing) {
		p, err = n.rebuild(ctx, id)
	}
	if err != nil {
		return err
	}
	return show(&p)
}

func (n *naive) rebuild(ctx context.Context, id int) (product, error) {
	p, err := n.db.load(ctx, id, unfenced)
	if err != nil {
		return p, err
	}
	met, err := n.cache.put(ctx, id, p, unfenced)
	if err != nil {
		return p, err
	}
	n.rebuilt(met)
	return p, nil
}

func (n *naive) change(ctx context.Context, id int, name string) (*product, error) {
	p, err := n.db.update(ctx, id, name, unfenced)
	if err != nil {
		return nil, err
	}
	return &p, n.cache.drop(ctx, id, unfenced)
}
