package main

import (
	"context"
	"flag"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/examples/internal/report"
)

func TestParseRefusesWhatMakesNoSense(t *testing.T) {
	t.Parallel()
	s, err := parse(nil, io.Discard)
	require.NoError(t, err)
	require.Equal(t, settings{
		processes: 3, clients: 48, duration: 5 * time.Second, keys: 100, writes: 1, expiry: time.Second, delay: 20 * time.Millisecond,
	}, s)
	for args, want := range map[string]string{
		"-processes 0":            "-processes must be",
		"-processes 65":           "-processes must be",
		"-clients 0":              "-clients must be",
		"-clients 1001":           "-clients must be",
		"-duration 1ms":           "-duration must be",
		"-duration x":             "invalid value",
		"-keys 0":                 "-keys must be",
		"-keys 100001":            "-keys must be",
		"-writes -1":              "-writes must be",
		"-writes 51":              "-writes must be",
		"-writes NaN":             "-writes must be",
		"-expiry 1ms":             "-expiry must be from",
		"-expiry 2h":              "-expiry must be from",
		"-delay -1ms":             "-delay must be",
		"-delay 2s":               "-delay must be",
		"-delay 1s -expiry 1.9s":  "-expiry must be at least twice -delay",
		"-delay 0s surplus":       `unexpected argument "surplus"`,
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

func TestVerdictIsAboutTheLock(t *testing.T) {
	t.Parallel()
	require.NoError(t, verdict(nil))
	require.NoError(t, verdict([]result{
		{name: "no lock", stale: 7, overlaps: 7, counts: counts{Rebuilds: 9, Surplus: 7}},
		{name: "rwlock", locked: true, counts: counts{Rebuilds: 9, Avoided: 3}},
	}))
	require.ErrorContains(t, verdict([]result{{name: "rwlock", locked: true, stale: 7}}), "rwlock: 7 stale reads")
	require.ErrorContains(t, verdict([]result{{name: "rwlock", locked: true, overlaps: 7}}), "7 ran beside another")
	require.ErrorContains(t, verdict([]result{{name: "rwlock", locked: true, counts: counts{Surplus: 7}}}), "7 rebuilds met a fresh entry")
}

func TestTableShowsBothRounds(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	printTable(&out, []result{
		{name: "no lock", duration: time.Second, reads: 1234, stale: 5, commands: 1.5, scripts: 0.25, counts: counts{Rebuilds: 9, Surplus: 6}},
		{name: "rwlock", duration: time.Second, reads: 1000, commands: -1, scripts: -1, counts: counts{Rebuilds: 3, Avoided: 2, Memory: 987}},
	})
	for _, row := range []string{
		"reads                                1,234             1,000",
		"Redis commands per read               1.50         not known",
		"reads out of memory                  0.0 %            98.7 %",
		"rebuilds per expiry                   3.00              1.00",
		"stale reads                              5                 0",
	} {
		require.Contains(t, out.String(), row)
	}
	out.Reset()
	printTable(&out, []result{{duration: time.Second, counts: counts{Rebuilds: 1, Surplus: 1}}}) // nothing to divide by
	require.NotContains(t, out.String(), "NaN")
	require.NotContains(t, out.String(), "Inf")
	out.Reset()
	printTable(&out, nil)
	require.Empty(t, out.String())
}

// A read is stale if its answer is older than one that had come in before it was sent, from a PUT or a GET.
func TestLoadCountsStaleReads(t *testing.T) {
	t.Parallel()
	var version uint64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		answer(w, &product{ID: 0, Version: version}, nil)
	}))
	defer server.Close()
	dice := rand.New(rand.NewPCG(1, 2))
	l := newLoad([]string{server.URL}, settings{keys: 1})
	defer l.http.CloseIdleConnections()
	var waits report.Samples
	ask := func(writes float64, v uint64) {
		t.Helper()
		l.writes, version = writes, v
		require.NoError(t, l.request(t.Context(), dice, 0, &waits))
	}
	for _, v := range []uint64{1, 3, 3, 4} {
		ask(0, v)
	}
	require.Zero(t, l.stale.Load())
	ask(0, 3) // 4 was read
	require.EqualValues(t, 1, l.stale.Load())
	ask(1, 6)
	ask(0, 5) // 6 was written
	require.EqualValues(t, 2, l.stale.Load())
	ask(0, 6)
	require.EqualValues(t, 2, l.stale.Load())
	require.EqualValues(t, 7, l.reads.Load())
	require.EqualValues(t, 1, l.writ.Load())
	var all report.Samples
	all.Merge(waits)
	require.Len(t, all.Kept, 7)
}

// An error ends the round, and says what it was.
func TestLoadEndsWithTheFirstError(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "no luck today", http.StatusServiceUnavailable)
	}))
	defer server.Close()
	l := newLoad([]string{server.URL}, settings{keys: 3})
	_, err := l.run(t.Context(), 4, nil)
	require.ErrorContains(t, err, "no luck today")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = l.run(ctx, 4, nil)
	require.ErrorIs(t, err, context.Canceled)
}
