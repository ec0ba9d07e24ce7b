package contender_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/bench/contender"
)

func TestRegisterRefuses(t *testing.T) {
	open := func(context.Context, contender.Setup) (contender.Process, error) {
		return nil, errors.New("never opened")
	}
	names := contender.Names()
	for _, c := range []struct {
		info contender.Info
		says string
	}{
		{contender.Info{Name: "textbook", About: "again", Open: open}, `contender: there are two of the name "textbook"`},
		{contender.Info{About: "nameless", Open: open}, `contender: "" needs a name, an Open and a line about it`},
		{contender.Info{Name: "shut", About: "it can't be opened"}, `contender: "shut" needs a name, an Open and a line about it`},
		{contender.Info{Name: "silent", Open: open}, `contender: "silent" needs a name, an Open and a line about it`},
	} {
		require.PanicsWithValue(t, c.says, func() { contender.Register(c.info) })
	}
	require.Equal(t, names, contender.Names())
}

func TestFindNamesWhoIsThere(t *testing.T) {
	_, err := contender.Find("nobody")
	require.ErrorContains(t, err, `"nobody"`)
	require.ErrorContains(t, err, "rueidislock")
}

func TestAllAreToldInOrder(t *testing.T) {
	order := []contender.Kind{contender.Ours, contender.Peer, contender.Limit}
	last := 0
	for _, info := range contender.All() {
		at := slices.Index(order, info.Kind)
		require.GreaterOrEqual(t, at, last, info.Name)
		last = at
		require.NotEmpty(t, info.Settings, info.Name)
		if info.Variant != "" {
			main, err := contender.Find(info.Variant)
			require.NoError(t, err, info.Name)
			require.Empty(t, main.Variant, "%s is a variant of a variant", info.Name)
			require.Equal(t, main.Kind, info.Kind, info.Name)
		}
	}
}
