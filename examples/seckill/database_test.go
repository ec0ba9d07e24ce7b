package main

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/segment"
)

func TestDatabaseHasEachOrderOnce(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	db, err := startDatabase()
	require.NoError(t, err)
	defer db.close()
	c := newConnection(db.url)
	defer c.close()
	ann, bob := segment.Order{User: "ann", ID: "1", Quantity: 2}, segment.Order{User: "bob", ID: "1", Quantity: 3}
	unfinished := func(age time.Duration) []segment.Order {
		t.Helper()
		found, err := c.Unfinished(ctx, age)
		require.NoError(t, err)
		return found
	}
	require.NoError(t, c.Begin(ctx, ann))
	require.NoError(t, c.Begin(ctx, ann))
	require.Equal(t, []segment.Order{ann}, unfinished(0))
	require.Empty(t, unfinished(time.Hour))
	require.Empty(t, db.book())
	require.NoError(t, c.Paid(ctx, ann))
	require.NoError(t, c.Paid(ctx, ann))
	require.NoError(t, c.Begin(ctx, ann))
	require.NoError(t, c.Drop(ctx, ann), "which drops none that is paid")
	require.NoError(t, c.Paid(ctx, bob))
	require.NoError(t, c.Begin(ctx, segment.Order{User: "ann", ID: "2", Quantity: 1}))
	require.NoError(t, c.Drop(ctx, segment.Order{User: "ann", ID: "2", Quantity: 1}))
	require.Empty(t, unfinished(0))
	require.Equal(t, []segment.Order{ann, bob}, db.book())
}

func TestConnectionTellsOfErrors(t *testing.T) {
	t.Parallel()
	db, err := startDatabase()
	require.NoError(t, err)
	c := newConnection(db.url)
	defer c.close()
	_, err = c.ask(t.Context(), "POST", "/paid", []byte("nonsense"))
	require.ErrorContains(t, err, "400")
	_, err = c.ask(t.Context(), "GET", "/unfinished?age=x", nil)
	require.ErrorContains(t, err, "400")
	require.Empty(t, db.book())
	db.close()
	require.Error(t, c.Paid(t.Context(), segment.Order{User: "ann", ID: "1", Quantity: 2}))
	_, err = c.Unfinished(t.Context(), 0)
	require.Error(t, errors.Unwrap(err))
}
