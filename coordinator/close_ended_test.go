package coordinator

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/internal/redistest"
)

// An ended context leaves a grace to hand over what is held, and so it does where nothing is: the store says good-bye.
func TestCloseWithAnEndedContextAndNothingHeld(t *testing.T) {
	server := redistest.Alone(t)
	over, cancel := context.WithCancel(context.Background())
	cancel()
	for range 20 {
		c, err := New(server.Option())
		require.NoError(t, err)
		require.NoError(t, c.Close(over))
	}
}
