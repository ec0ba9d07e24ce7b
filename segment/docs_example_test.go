package segment_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"io"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/coordinator"
	"github.com/go-leasehold/leasehold/internal/redistest"
	"github.com/go-leasehold/leasehold/segment"
)

// What follows is in docs/stock.md, word for word: TestStockPageCode holds the two together.

// until sends an order until it is known what became of it.
func until(ctx context.Context, stock *segment.Stock, o segment.Order) error {
	for {
		_, err := stock.Deduct(ctx, o)
		if ctx.Err() != nil || !errors.Is(err, segment.ErrUncertain) && !errors.Is(err, coordinator.ErrUnavailable) {
			return err // taken, refused, or out of time: then somebody else sends it again, with the same ID
		}
		select {
		case <-ctx.Done():
		case <-time.After(100 * time.Millisecond):
		}
	}
}

var errFenced = errors.New("a newer holder has written")

func ship(ctx context.Context, stock *segment.Stock, db *sql.DB, user string, quantity int64) error {
	return stock.WithSegment(ctx, user, quantity, func(ctx context.Context, seg segment.Held) error {
		tx, err := db.BeginTx(ctx, nil) // under the lock, and not before it
		if err != nil {
			return err
		}
		defer tx.Rollback() // does nothing after Commit
		result, err := tx.ExecContext(ctx,
			`UPDATE shelves SET units = units - $1, fence = $2 WHERE segment = $3 AND fence <= $2 AND units >= $1`,
			seg.Quantity, int64(seg.Token), seg.Index)
		if err != nil {
			return err
		}
		if n, err := result.RowsAffected(); err != nil || n == 0 {
			return errors.Join(errFenced, err)
		}
		return tx.Commit() // and then the lock is freed
	})
}

func buyBoth(ctx context.Context, phones, cases *segment.Stock) error {
	_, err := segment.DeductAll(ctx, "o-4", "u-7",
		segment.Line{Stock: phones, Quantity: 1},
		segment.Line{Stock: cases, Quantity: 2},
	)
	return err // segment.ErrSoldOut: one of them has not enough, its name is in the text; nothing was taken of either
}

// TestStockPageCode: every Go block of the page is above.
func TestStockPageCode(t *testing.T) {
	t.Parallel()
	source, err := os.ReadFile("docs_example_test.go")
	require.NoError(t, err)
	text, err := os.ReadFile("../docs/stock.md")
	require.NoError(t, err)
	blocks := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(string(text), -1)
	require.Len(t, blocks, 3)
	for _, block := range blocks {
		require.Contains(t, string(source), "\n"+block[1], "docs/stock.md has other code than docs_example_test.go")
	}
}

// shelf stands for a database with one table, whose fence is that of the page.
type shelf struct {
	fence    int64
	updates  int
	commits  int
	commands []string
}

func (s *shelf) Connect(context.Context) (driver.Conn, error) { return s, nil }
func (s *shelf) Driver() driver.Driver                        { return nil }
func (s *shelf) Prepare(string) (driver.Stmt, error)          { return nil, io.EOF }
func (s *shelf) Close() error                                 { return nil }
func (s *shelf) Begin() (driver.Tx, error)                    { return s, nil }
func (s *shelf) Commit() error                                { s.commits++; return nil }
func (s *shelf) Rollback() error                              { return nil }

func (s *shelf) ExecContext(_ context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	s.commands = append(s.commands, query)
	token, ok := args[1].Value.(int64)
	if !ok || token < s.fence {
		return driver.RowsAffected(0), nil
	}
	s.fence = token
	s.updates++
	return driver.RowsAffected(1), nil
}

func TestStockPageCodeDoesWhatThePageSays(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	c, err := coordinator.New(redistest.Shared(t).Option())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close(context.Background())) })
	prefix := redistest.Prefix(t)
	open := func(name string, units int64) *segment.Stock {
		stock, err := segment.NewStock(c, prefix+name, segment.Config{Segments: 4})
		require.NoError(t, err)
		require.NoError(t, stock.Load(ctx, units))
		return stock
	}
	left := func(stock *segment.Stock) int64 {
		n, err := stock.Remaining(ctx)
		require.NoError(t, err)
		return n
	}
	phones, cases := open("phones", 10), open("cases", 2)
	require.NoError(t, until(ctx, phones, segment.Order{ID: "o-1", User: "u-7", Quantity: 1}))
	require.EqualValues(t, 9, left(phones))

	table := &shelf{}
	db := sql.OpenDB(table)
	defer func() { require.NoError(t, db.Close()) }()
	require.NoError(t, ship(ctx, phones, db, "u-7", 2))
	require.Equal(t, 1, table.updates)
	require.Equal(t, 1, table.commits)
	require.EqualValues(t, 7, left(phones))
	table.fence = 1<<63 - 1 // somebody with a newer lock
	require.ErrorIs(t, ship(ctx, phones, db, "u-7", 2), errFenced)
	require.EqualValues(t, 7, left(phones), "what was not written went back")
	require.Equal(t, 1, table.commits)
	require.True(t, strings.HasPrefix(table.commands[0], "UPDATE shelves"))

	require.NoError(t, buyBoth(ctx, phones, cases))
	require.EqualValues(t, 6, left(phones))
	require.Zero(t, left(cases))
	require.NoError(t, buyBoth(ctx, phones, cases), "sent again")
	require.EqualValues(t, 6, left(phones))
}
