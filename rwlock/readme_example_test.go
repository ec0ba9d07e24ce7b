package rwlock_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/coordinator/coordinatortest"
	"github.com/go-leasehold/leasehold/rwlock"
)

// reprice is in README.md, word for word: TestReadmeCode holds the two together.
func reprice(ctx context.Context, catalog *rwlock.Lock) error {
	// Any number of readers at a time, in all processes; Read is to RLock what Do is to Lock.
	err := catalog.Read(ctx, func(ctx context.Context) error {
		return showPrices(ctx)
	})
	if err != nil {
		return err
	}
	// One writer, and nobody else.
	w, err := catalog.Lock(ctx)
	if err != nil {
		return err
	}
	if err := storePrices(w.Context(), w.Token()); err != nil {
		return errors.Join(err, w.Unlock())
	}
	// From writing to reading: others may read again, and nobody has written in between.
	r, err := w.Downgrade()
	if err != nil {
		return err
	}
	return errors.Join(showPrices(r.Context()), r.Unlock())
}

// readmePrice is what is read and written.
var readmePrice = 1

// showPrices stands for work that reads, and stops when its context ends.
func showPrices(ctx context.Context) error {
	fmt.Println("price", readmePrice)
	return ctx.Err()
}

// storePrices stands for a write that takes its token along.
func storePrices(ctx context.Context, token uint64) error {
	readmePrice++
	fmt.Println("stored, with a token:", token > 0)
	return ctx.Err()
}

func Example_readme() {
	h := coordinatortest.Start()
	defer h.Close()

	fmt.Println(reprice(context.Background(), rwlock.New(h.Coordinator, "catalog")))
	// Output:
	// price 1
	// stored, with a token: true
	// price 2
	// <nil>
}

func TestReadmeCode(t *testing.T) {
	source, err := os.ReadFile("readme_example_test.go")
	require.NoError(t, err)
	_, code, found := strings.Cut(string(source), "\nfunc reprice(")
	require.True(t, found)
	code, _, found = strings.Cut(code, "\n}\n")
	require.True(t, found)

	readme, err := os.ReadFile("../README.md")
	require.NoError(t, err)
	require.Contains(t, string(readme), "\n```go\nfunc reprice("+code+"\n}\n```\n",
		"README.md has not the code of reprice, word for word")
}
