package redislease

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// oddKeys are keys whose braces are of every kind.
var oddKeys = []string{
	"a", "a{b}c", "{}a", "a}b{c", "{a}", "{", "}", "{}", "}{", "{{a}}", "a{}{b}", "a{b{c}d", "{a", "a}", "}}", "{{", "a{b}c{d}e",
	"~", "~~", "~queue{b}a", "~queue{lock:a}lock:a", " ", "with space", "a\nb", "\x00\xff", strings.Repeat("}", 65536),
}

// referenceSlot is the cluster specification's, written down apart from the code.
func referenceSlot(key string) uint16 {
	if open := strings.Index(key, "{"); open >= 0 {
		if end := strings.Index(key[open+1:], "}"); end > 0 {
			key = key[open+1:][:end]
		}
	}
	var crc uint32
	for _, b := range []byte(key) {
		crc ^= uint32(b) << 8
		for range 8 {
			crc <<= 1
			if crc&0x10000 != 0 {
				crc ^= 0x11021
			}
		}
	}
	return uint16(crc & 0x3fff)
}

func requireNames(t require.TestingT, n names, key string) {
	lock := n.lock(key)
	slot := referenceSlot(lock)
	require.Equal(t, slot, slotOf(lock))
	tail := n.tail(lock)
	for _, what := range []string{"queue", "token", "holder", "reader:host-1-a:7"} {
		helper := n.helperName(what, tail)
		require.Equal(t, slot, referenceSlot(helper), "%q of %q", helper, lock)
		require.True(t, strings.HasPrefix(helper, n.prefix))
		_, ok := n.key(helper)
		require.False(t, ok, "%q is taken for a key", helper)
	}
	back, ok := n.key(lock)
	require.True(t, ok)
	require.Equal(t, key, back)
	require.Equal(t, key, lock[n.keyFrom(key):])
}

var prefixes = []string{"lock:", "l", "{app}:", "a{b}c"}

func TestHelpersAreInTheSlotOfTheirKey(t *testing.T) {
	require.Equal(t, uint16(0x31c3), referenceSlot("123456789"))
	for _, prefix := range prefixes {
		n, err := newNames(prefix)
		require.NoError(t, err)
		for _, key := range oddKeys {
			requireNames(t, n, key)
		}
	}
	for slot := range uint16(slots) {
		require.Equal(t, slot, referenceSlot("x"+inboxEnd(slot)))
	}
}

func TestHelpersAreInTheSlotOfAnyKey(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n, err := newNames(rapid.SampledFrom(prefixes).Draw(t, "prefix"))
		require.NoError(t, err)
		requireNames(t, n, rapid.StringOfN(rapid.RuneFrom([]rune("{}~ab:")), 0, 12, -1).Draw(t, "key"))
	})
}

// TestNamesOfDifferentKeysDiffer: no name of one key is any name of another.
func TestNamesOfDifferentKeysDiffer(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n, err := newNames(rapid.SampledFrom(prefixes).Draw(t, "prefix"))
		require.NoError(t, err)
		all := map[string]string{}
		add := func(name, of string) {
			other, taken := all[name]
			require.False(t, taken && other != of, "%q belongs to %q and to %q", name, other, of)
			all[name] = of
		}
		piece := rapid.SampledFrom([]string{"a", "b", "{", "}", "~", "queue", "token", "holder", n.prefix})
		for range 8 {
			key := strings.Join(rapid.SliceOfN(piece, 0, 6).Draw(t, "key"), "")
			lock := n.lock(key)
			tail := n.tail(lock)
			add(lock, "lock of "+key)
			add(n.helperName("queue", tail), "queue of "+key)
			add(n.helperName("token", tail), "token of "+key)
			add(n.helperName("holder", tail), "traces of "+key)
		}
	})
}

func TestPrefixWithStrayBracesIsRefused(t *testing.T) {
	for _, prefix := range []string{"{", "}", "{}", "a{}b", "{a}{b}", "{a}}", "{{a}", "}a{", "a{b"} {
		_, err := newNames(prefix)
		require.ErrorContains(t, err, "exactly one {tag}", prefix)
	}
}
