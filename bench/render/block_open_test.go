package render_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/bench/render"
)

// N1: a block whose end is missing must not take what follows, up to the end of the next block.
func TestFillDoesNotSwallowWhatFollowsAnOpenBlock(t *testing.T) {
	_, err := render.Fill("<!-- bench: machine -->\n\nProse that nobody wants to lose.\n\n"+block("claims", ""), madeUp())
	require.ErrorContains(t, err, `"machine" has no end`)
}
