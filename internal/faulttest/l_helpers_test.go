package faulttest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/coordinator"
	"github.com/go-leasehold/leasehold/internal/faults"
	"github.com/go-leasehold/leasehold/internal/redistest"
	"github.com/go-leasehold/leasehold/segment"
)

func init() { roles["seller"] = playSeller }

// stockOf returns the stock called "s" as a process has it.
func stockOf(t testing.TB, c *coordinator.Coordinator, conf segment.Config) *segment.Stock {
	t.Helper()
	return namedStock(t, c, "s", conf)
}

func namedStock(t testing.TB, c *coordinator.Coordinator, name string, conf segment.Config) *segment.Stock {
	t.Helper()
	s, err := segment.NewStock(c, name, conf)
	require.NoError(t, err)
	return s
}

// balanced looks at the books, which must balance with nothing under way.
func balanced(t testing.TB, s *segment.Stock) segment.Books {
	t.Helper()
	audit, err := s.Audit(t.Context())
	require.NoError(t, err)
	require.Zero(t, audit.UnderWay)
	require.Zero(t, audit.Short)
	require.Equal(t, audit.Loaded, audit.Sold+audit.Reserved+audit.Open+audit.Left, "loaded = sold + reserved + left")
	return audit.Books
}

// seller is a real process that sells from the stock, as it is told.
type seller struct{ *faults.Child }

func startSeller(t testing.TB, addr, stock string, segments int) *seller {
	t.Helper()
	s := &seller{faults.StartChild(t, "seller", addr, stock, strconv.Itoa(segments))}
	s.Expect(t, "ready")
	return s
}

// ask has the seller do something to an order, and returns what it was told.
func (s *seller) ask(t testing.TB, what string, o segment.Order, more ...string) string {
	t.Helper()
	s.Send(sellerLine(what, o, more...))
	return s.Expect(t, "told")
}

func sellerLine(what string, o segment.Order, more ...string) string {
	return strings.Join(append([]string{what, o.User, o.ID, strconv.FormatInt(o.Quantity, 10)}, more...), " ")
}

func playSeller(args []string) {
	c, err := coordinator.New(at(args[0]), coordinator.WithLogger(slog.New(slog.NewTextHandler(os.Stderr, nil))))
	exitIf(err)
	segments, err := strconv.Atoi(args[2])
	exitIf(err)
	s, err := segment.NewStock(c, args[1], segment.Config{Segments: segments})
	exitIf(err)
	faults.Say("ready %s", c.ID())
	for line, ok := faults.Hear(); ok; line, ok = faults.Hear() {
		words := strings.Fields(line)
		quantity, err := strconv.ParseInt(words[3], 10, 64)
		exitIf(err)
		o := segment.Order{User: words[1], ID: words[2], Quantity: quantity}
		faults.Say("told %s", told(sell(s, words[0], o, words[4:])))
	}
	exitIf(shut(c))
}

// sell does to an order what the word says.
func sell(s *segment.Stock, what string, o segment.Order, more []string) error {
	ctx, cancel := context.WithTimeout(context.Background(), hangs)
	defer cancel()
	var err error
	switch what {
	case "deduct":
		_, err = s.Deduct(ctx, o)
	case "reserve":
		var ttl time.Duration
		if ttl, err = time.ParseDuration(more[0]); err == nil {
			_, err = s.Reserve(ctx, o, ttl)
		}
	case "confirm":
		_, err = s.Confirm(ctx, o)
	case "cancel":
		err = s.Cancel(ctx, o)
	case "return":
		err = s.Return(ctx, o)
	case "restock":
		err = s.Restock(ctx, o.ID, o.Quantity)
	default:
		err = fmt.Errorf("no such thing: %s", what)
	}
	return err
}

// told is one word for what a call on a stock says. What is not known comes first: it may come with a refusal.
func told(err error) string {
	if err == nil {
		return "ok"
	}
	for _, is := range []struct {
		word   string
		target error
	}{
		{"uncertain", segment.ErrUncertain}, {"notdone", segment.ErrNotDone}, {"soldout", segment.ErrSoldOut}, {"limit", segment.ErrUserLimit},
		{"mismatch", segment.ErrOrderMismatch}, {"returned", segment.ErrReturned}, {"expired", segment.ErrExpired},
		{"reserved", segment.ErrReserved}, {"confirmed", segment.ErrConfirmed}, {"unknown", segment.ErrUnknownOrder},
		{"unavailable", coordinator.ErrUnavailable},
	} {
		if errors.Is(err, is.target) {
			return is.word
		}
	}
	return strings.ReplaceAll(err.Error(), " ", "_")
}

// ofStock is a match for the scripts of a stock.
func ofStock(cmd []string) bool {
	return len(cmd) > 3 && strings.HasPrefix(strings.ToUpper(cmd[0]), "EVAL") && strings.Contains(cmd[3], "~stock:")
}

// killAtStep kills the child at its step'th script of the stock, before the server runs it or after; the flag says whether
// it came to that.
func killAtStep(p *faults.Proxy, child *faults.Child, step int64, when string) *atomic.Bool {
	var n atomic.Int64
	killed := &atomic.Bool{}
	hook := func(cmd []string) faults.Action {
		if !ofStock(cmd) {
			return faults.Pass
		}
		switch at := n.Add(1); {
		case at < step:
			return faults.Pass
		case at == step:
			killed.Store(true)
			child.Kill()
		}
		return faults.Cut
	}
	if when == "before" {
		p.OnCommand(hook)
	} else {
		p.OnReply(hook)
	}
	return killed
}

// knowsScripts has the server know all scripts of a stock that the steps of a test use, so that each is one command.
func knowsScripts(t testing.TB, s *redistest.Server) {
	t.Helper()
	c := process(t, s.Addr())
	stock, err := segment.NewStock(c, "warm", segment.Config{Segments: 2})
	require.NoError(t, err)
	require.NoError(t, stock.Load(t.Context(), 4))
	for i, q := range []int64{3, 1} {
		_, err = stock.Deduct(t.Context(), segment.Order{ID: strconv.Itoa(i), Quantity: q})
		require.NoError(t, err)
	}
	_, err = stock.Deduct(t.Context(), segment.Order{ID: "too late", Quantity: 1})
	require.ErrorIs(t, err, segment.ErrSoldOut)
	require.NoError(t, stock.Return(t.Context(), segment.Order{ID: "0"}))
	_, err = stock.Reserve(t.Context(), segment.Order{ID: "2", Quantity: 3}, time.Minute)
	require.NoError(t, err)
}
