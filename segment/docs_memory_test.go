package segment

import (
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/internal/redistest"
)

// weight is how many bytes a server has in use.
func weight(t *testing.T, server *redistest.Server) float64 {
	t.Helper()
	info := server.Do(t, "INFO", "memory")
	text, err := info.ToString()
	require.NoError(t, err)
	_, rest, found := strings.Cut(text, "\nused_memory:")
	require.True(t, found)
	number, _, _ := strings.Cut(rest, "\r")
	n, err := strconv.ParseFloat(number, 64)
	require.NoError(t, err)
	return n
}

// TestStockPageHasTheMemoryOfAnOrder measures what docs/stock.md says of memory, with a user and an ID as it has them.
func TestStockPageHasTheMemoryOfAnOrder(t *testing.T) {
	t.Parallel()
	const orders = 30_000
	page, err := os.ReadFile("../docs/stock.md")
	require.NoError(t, err)
	server := redistest.Start(t)
	c := processAt(t, server.Option())
	measure := func(row string, conf Config, fill func(i int) order) {
		t.Helper()
		s := opened(t, c, strconv.Itoa(len(row)), conf)
		require.NoError(t, s.Load(t.Context(), 10*orders))
		before := weight(t, server)
		batches := make([]batch, len(s.homes))
		send := func(at int) {
			_, err := s.homes[at].ask(&batches[at])
			require.NoError(t, err)
			batches[at].orders = nil
		}
		for i := range orders {
			o := fill(i)
			user, id, _ := parseField(o.field)
			at := s.home(&Order{User: user, ID: id}).index
			if batches[at].orders = append(batches[at].orders, o); len(batches[at].orders) == maxFlight {
				send(at)
			}
		}
		for at := range batches {
			send(at)
		}
		each := (weight(t, server) - before) / orders
		found := regexp.MustCompile(`(?m)^\| ` + regexp.QuoteMeta(row) + ` \| (\d+) \|$`).FindStringSubmatch(string(page))
		require.NotNil(t, found, "docs/stock.md has no row %q; measured: %.1f", row, each)
		said, err := strconv.ParseFloat(found[1], 64)
		require.NoError(t, err)
		// Another version of the server may need a little more or less.
		require.InEpsilon(t, said, each, 0.2, "docs/stock.md, %q", row)
	}
	field := func(i int) string {
		o := Order{User: fmt.Sprintf("user-%07d", i), ID: fmt.Sprintf("order-%07d", i)}
		return o.field()
	}
	measure("an order that was taken", Config{Segments: 4}, func(i int) order {
		return order{verb: deduct, field: field(i), quantity: 1}
	})
	measure("a reservation, until it is confirmed or over", Config{Segments: 4}, func(i int) order {
		return order{verb: reserve, field: field(i), quantity: 1, ttl: MaxReserve}
	})
	measure("a user with units, under `PerUser`, beside the orders", Config{Segments: 4, PerUser: 5}, func(i int) order {
		return order{verb: unnamed, field: (&Order{User: fmt.Sprintf("user-%07d", i)}).field(), quantity: 1}
	})
}
