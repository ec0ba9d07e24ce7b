package main

import (
	"context"
	"errors"
	"flag"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/examples/seckill/shop"
)

// deadline is for what takes no time, if it comes about.
const deadline = 30 * time.Second

func TestParseRefusesWhatMakesNoSense(t *testing.T) {
	t.Parallel()
	s, err := parse(nil, io.Discard)
	require.NoError(t, err)
	require.Equal(t, settings{
		processes: 3, clients: 64, segments: 8, duration: 6 * time.Second, hold: time.Second, limit: 4, users: 10_000,
		waiting: 1000, kill: true,
	}, s)
	for args, want := range map[string]string{
		"-processes 0":            "-processes must be",
		"-processes 65":           "-processes must be",
		"-clients 0":              "-clients must be",
		"-clients 1001":           "-clients must be",
		"-stock -1":               "-stock must be",
		"-stock 10000001":         "-stock must be",
		"-segments 0":             "-segments must be",
		"-segments 1025":          "-segments must be",
		"-duration 1ms":           "-duration must be",
		"-duration x":             "invalid value",
		"-hold 1ms":               "-hold must be",
		"-hold 2m":                "-hold must be",
		"-limit -1":               "-limit must",
		"-users 0":                "-users must be",
		"-users 10000001":         "-users must be",
		"-skew 1":                 "-skew must be",
		"-skew -1":                "-skew must be",
		"-skew 11":                "-skew must be",
		"-skew NaN":               "-skew must be",
		"-waiting 0":              "-waiting must be",
		"-waiting 1000001":        "-waiting must be",
		"-kill=false surplus":     `unexpected argument "surplus"`,
		"-nothing-of-that-name 3": "not defined",
	} {
		var said strings.Builder
		_, err := parse(strings.Fields(args), &said)
		require.Error(t, err, args)
		require.Contains(t, said.String(), want, args)
	}
	_, err = parse([]string{"-h"}, io.Discard)
	require.ErrorIs(t, err, flag.ErrHelp)
}

func TestTableHasNothingToDivideBy(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	printTable(&out, &result{crowd: newCrowd(settings{}, nil), duration: time.Second, commands: -1, scripts: -1})
	require.Contains(t, out.String(), "Redis commands per order         not known")
	require.NotContains(t, out.String(), "NaN")
	require.NotContains(t, out.String(), "Inf")
}

// gate is a crowd before servers that answer as they are told.
func gate(t *testing.T, servers ...http.HandlerFunc) *crowd {
	t.Helper()
	urls := make([]atomic.Pointer[string], len(servers))
	for i, h := range servers {
		server := httptest.NewServer(h)
		t.Cleanup(server.Close)
		urls[i].Store(&server.URL)
	}
	c := newCrowd(settings{clients: 2, stock: 100, users: 10}, urls)
	t.Cleanup(c.http.CloseIdleConnections)
	return c
}

func says(status int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

// Nobody who has heard no last word gives up: one server hangs up, one is busy, one doesn't know, one is slow, one says no.
func TestInsistGoesOnToTheNextServer(t *testing.T) {
	t.Parallel()
	c := gate(t,
		func(_ http.ResponseWriter, r *http.Request) {
			_, _ = io.ReadAll(r.Body) // only then a server sees that its client has hung up
			<-r.Context().Done()
		},
		func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
		says(429, `{"code": "busy"}`),
		says(503, `{"code": "uncertain"}`),
		says(409, `{"code": "sold_out"}`),
	)
	r := c.insist(t.Context(), 0, "/buy", &shop.Order{User: "ann", ID: "1", Quantity: 1}, 50*time.Millisecond)
	require.NoError(t, r.err)
	require.Equal(t, "sold_out", r.answer.Code)
	require.Equal(t, 409, r.status)
	require.True(t, r.repeated)
	require.EqualValues(t, 2, c.tally.lost.Load())
	require.EqualValues(t, 2, c.tally.busy.Load())
	r = c.insist(t.Context(), 4, "/buy", &shop.Order{}, 0)
	require.False(t, r.repeated)

	enough := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(enough)
	require.ErrorIs(t, c.insist(ctx, 4, "/buy", &shop.Order{}, 0).err, enough)
}

// An answer that nobody should get ends the sale, and says which.
func TestUnexpectedAnswerEndsTheSale(t *testing.T) {
	t.Parallel()
	for status, path := range map[int]string{500: "/buy", 400: "/buy", 404: "/pay", 422: "/cancel"} {
		c := gate(t, func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == path {
				says(status, `{"code": "no_luck", "request": "r-17"}`)(w, r)
				return
			}
			says(200, `{"state": "reserved"}`)(w, r)
		})
		err := c.run(t.Context())
		require.ErrorContains(t, err, path+" of ")
		require.ErrorContains(t, err, "no_luck")
		require.ErrorContains(t, err, "request r-17")
	}
}

// What buyers are told is in the ledger.
func TestLedgerHasWhatBuyersWereTold(t *testing.T) {
	t.Parallel()
	c := gate(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/buy":
			says(200, `{"state": "reserved", "deadline": "2020-01-01T00:00:00Z"}`)(w, r)
		case "/pay":
			says(410, `{"code": "expired"}`)(w, r)
		case "/cancel":
			says(200, `{"state": "cancelled"}`)(w, r)
		default:
			says(200, `{"left": 101}`)(w, r)
		}
	})
	done := make(chan error)
	go func() { done <- c.run(t.Context()) }()
	// What buyers do is by chance: they go on until each of it has been done.
	want := told{cancelled: true, expired: true, silent: true, firsts: 2} // a double click got two first yeses
	require.Eventually(t, func() bool {
		return c.tally.orders.Load() > 200 && c.tally.odd.Load() > 0 && everTold(c.ledger) == want
	}, deadline, time.Millisecond)
	close(c.stop)
	require.NoError(t, <-done)
	require.Zero(t, c.ledger.sold())
	require.Len(t, c.ledger.told, int(c.tally.orders.Load()))
	require.Equal(t, want, everTold(c.ledger))
	require.NotEmpty(t, c.accepted.Kept)
	require.Empty(t, c.soldOut.Kept)
}

// everTold is what was ever said of any order.
func everTold(l *ledger) (all told) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, one := range l.told {
		all.paid = all.paid || one.paid
		all.cancelled = all.cancelled || one.cancelled
		all.expired = all.expired || one.expired
		all.silent = all.silent || one.silent
		all.firsts = max(all.firsts, one.firsts)
	}
	return all
}

// A no to a copy of an order says nothing of the copy before it, which was not heard of and may have been sold.
func TestWhoIsNotSureCancels(t *testing.T) {
	t.Parallel()
	var sold, open atomic.Int64
	c := gate(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/cancel":
			open.Add(1)
			if sold.Add(1)%2 == 0 {
				says(409, `{"code": "paid"}`)(w, r)
				return
			}
			says(200, `{"state": "cancelled"}`)(w, r)
		default:
			time.Sleep(hangUpWithin / 2)
			says(409, `{"code": "sold_out"}`)(w, r)
		}
	})
	c.s.clients = 10
	done := make(chan error)
	go func() { done <- c.run(t.Context()) }()
	require.Eventually(t, func() bool { return c.tally.lost.Load() > 100 }, deadline, time.Millisecond)
	close(c.stop)
	require.NoError(t, <-done)
	require.Positive(t, open.Load())
	paid := 0
	for _, one := range c.ledger.told {
		if one.paid {
			paid++
		}
	}
	require.EqualValues(t, sold.Load()/2, paid)
	require.Equal(t, c.tally.orders.Load(), c.tally.soldOut.Load())
	require.NotEmpty(t, c.soldOut.Kept)
}
