package segment

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/internal/redistest"
)

// awkward are names that might get out of a hash tag, or be taken for another's.
var awkward = []string{
	"a", "a/1", "/", "a/", "{a}", "a}b{c", "{}", "}{", "{", "}", "%", "%7B", "%7b", "%25", "%257B", "a%2F1", " ", "\x00", "\n", "\xff", "ü", "*", "[a]", "a:b",
	"~stock:books{a/0}", "books", "a}/0", strings.Repeat("{", MaxName),
}

// tagOf is the hash tag of a key, as Redis finds it.
func tagOf(key string) string {
	_, rest, found := strings.Cut(key, "{")
	tag, _, ends := strings.Cut(rest, "}")
	if !found || !ends {
		return ""
	}
	return tag
}

func (k *keys) all() []string {
	return []string{k.books, k.orders(17), k.orders(18), k.orders(-1), k.open, k.due, k.users, k.parts, k.meta()}
}

// TestKeysOfASegmentShareATag whatever the name, and no two segments or stocks share a key or a tag.
func TestKeysOfASegmentShareATag(t *testing.T) {
	t.Parallel()
	for _, prefix := range []string{"lock:", "", "app:lock:"} {
		owners := map[string]string{} // by key, and by tag
		for _, name := range awkward {
			for _, i := range []int{0, 1, 10, 4095} {
				k := newKeys(prefix, name, i)
				owner := fmt.Sprintf("%q/%d", name, i)
				for _, key := range k.all() {
					tag := tagOf(key)
					require.NotEmpty(t, tag, key)
					require.Equal(t, tagOf(k.books), tag, key)
					require.Empty(t, owners[key], "%s and %s", owners[key], owner)
					owners[key] = owner
					require.True(t, strings.HasPrefix(key, prefix+"~stock:"), "no lock has such a key: %s", key)
				}
				tag := "tag " + tagOf(k.books)
				require.Empty(t, owners[tag], "%s and %s", owners[tag], owner)
				owners[tag] = owner
			}
		}
	}
}

// TestAwkwardNames: stocks of such names side by side don't touch each other.
func TestAwkwardNames(t *testing.T) {
	t.Parallel()
	server := redistest.Alone(t)
	c := processAt(t, server.Option())
	stocks := map[string]*Stock{}
	for i, name := range awkward {
		stocks[name] = opened(t, c, name, Config{Segments: 2})
		require.NoError(t, stocks[name].Load(t.Context(), int64(10+i)))
	}
	for i, name := range awkward {
		s, units := stocks[name], int64(10+i)
		require.Equal(t, name, s.Name())
		_, err := s.Deduct(t.Context(), Order{ID: name[:min(len(name), MaxID)], User: name[:min(len(name), MaxID)], Quantity: 2})
		require.NoError(t, err, name)
		_, err = s.Reserve(t.Context(), Order{ID: "v", Quantity: 3}, time.Hour)
		require.NoError(t, err)
		require.NoError(t, s.WithSegment(t.Context(), name, 1, doesNothing))
		_, err = s.Deduct(t.Context(), Order{ID: "rest", Quantity: units - 6})
		require.NoError(t, err)
		require.Equal(t, Books{Loaded: units, Sold: units - 3, Reserved: 3}, audited(t, s), name)
	}
	for i, name := range awkward {
		require.Equal(t, int64(10+i), audited(t, stocks[name]).Loaded)
		require.NoError(t, stocks[name].Drop(t.Context()))
	}
	require.Empty(t, server.Keys(t, "lock:~stock:*"))
}

// clusterOfOne starts a cluster of one master that has all slots: they matter, nodes don't.
func clusterOfOne(t testing.TB) *redistest.Server {
	t.Helper()
	server := redistest.Start(t, "--cluster-enabled", "yes")
	server.Do(t, "CLUSTER", "ADDSLOTSRANGE", "0", "16383")
	eventually(t, "the cluster is there", func() bool {
		m := server.Do(t, "CLUSTER", "INFO")
		info, err := m.ToString()
		return err == nil && strings.Contains(info, "cluster_state:ok")
	})
	return server
}

// TestOnACluster everything works, though the segments are in slots of their own.
func TestOnACluster(t *testing.T) {
	t.Parallel()
	server := clusterOfOne(t)
	s := opened(t, processAt(t, server.Option()), "hot {sku}", Config{Segments: 8, PerUser: 50})
	require.NoError(t, s.Load(t.Context(), 80))
	slots := map[string]bool{}
	for _, h := range s.homes {
		m := server.Do(t, "CLUSTER", "KEYSLOT", h.keys.books)
		slot, err := m.ToInt64()
		require.NoError(t, err)
		slots[fmt.Sprint(slot)] = true
	}
	require.Len(t, slots, 8)
	o := Order{ID: "large", User: "u", Quantity: 40}
	_, err := s.Deduct(t.Context(), o) // units are moved
	require.NoError(t, err)
	r, err := s.Deduct(t.Context(), o)
	require.NoError(t, err)
	require.True(t, r.Repeated)
	v, err := s.Reserve(t.Context(), Order{ID: "v", User: "u2", Quantity: 20}, time.Hour)
	require.NoError(t, err)
	require.NoError(t, v.Confirm(t.Context()))
	require.NoError(t, s.WithSegment(t.Context(), "k", 15, doesNothing))
	require.NoError(t, s.Return(t.Context(), o))
	require.NoError(t, s.Restock(t.Context(), "r", 5))
	_, err = s.Deduct(t.Context(), Order{ID: "too large", User: "u3", Quantity: 50})
	require.NoError(t, err)
	_, err = s.Deduct(t.Context(), Order{ID: "one", User: "u4", Quantity: 1})
	require.ErrorIs(t, err, ErrSoldOut)
	require.Equal(t, Books{Loaded: 85, Sold: 85}, audited(t, s))
	n := 0
	eventually(t, "it knows that it is sold out", func() bool {
		n++
		_, err := s.Deduct(t.Context(), Order{ID: fmt.Sprint("late ", n), User: "u5", Quantity: 1})
		require.ErrorIs(t, err, ErrSoldOut)
		return s.sold.known.Load() != nil
	})
	fewer := opened(t, s.c, s.name, Config{Segments: 3})
	require.NoError(t, fewer.Reset(t.Context(), 6))
	require.Equal(t, Books{Loaded: 6, Left: 6}, audited(t, fewer))
	require.NoError(t, fewer.Drop(t.Context()))
	require.Empty(t, keysOf(t, server, s.name))
}
