package redislease

import (
	"strings"
	"testing"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/internal/redistest"
)

// FuzzNames: every name that belongs to a key is in the key's slot, begins with the prefix, and belongs to no other key.
func FuzzNames(f *testing.F) {
	for _, prefix := range append([]string{"", "~", "{", "a{}", "{a}{b}"}, prefixes...) {
		for i, key := range oddKeys {
			f.Add(prefix, key, oddKeys[(i+1)%len(oddKeys)])
		}
	}
	f.Add("lock:", "a", "~queue{lock:a}lock:a")
	f.Add("lock:", "a", "~inbox:host-1-a")
	f.Fuzz(func(t *testing.T, prefix, key, other string) {
		n, err := newNames(prefix)
		if err != nil {
			require.ErrorContains(t, err, "exactly one {tag}")
			return
		}
		requireNames(t, n, key)
		requireNames(t, n, other)
		if key == other {
			return
		}
		const inboxes = "inboxes"
		of := map[string]string{}
		for _, k := range []string{key, other} {
			for _, name := range allNames(n, k) {
				require.NotContains(t, of, name, "%q of %q is also of %q", name, k, of[name])
				of[name] = k
			}
		}
		for _, id := range []string{"host-1-a", "host-1-a" + inboxEnd(slotOf(n.lock(key)))} {
			require.NotContains(t, of, n.inbox()+id, inboxes)
		}
	})
}

func allNames(n names, key string) []string {
	lock := n.lock(key)
	all := []string{lock}
	for _, what := range []string{"queue", "token", "holder", "reader:host-1-a:7", "reader:host-1-a:70"} {
		all = append(all, n.helperName(what, n.tail(lock)))
	}
	return all
}

// FuzzKeySlots: a slot is the one that the server itself says, for the key and all that belongs to it.
func FuzzKeySlots(f *testing.F) {
	for _, prefix := range prefixes {
		for _, key := range oddKeys {
			f.Add(prefix, key)
		}
	}
	server := redistest.Start(f, "--cluster-enabled", "yes")
	option := server.Option()
	option.ForceSingleClient = true
	client, err := rueidis.NewClient(option)
	require.NoError(f, err)
	f.Cleanup(client.Close)
	f.Fuzz(func(t *testing.T, prefix, key string) {
		n, err := newNames(prefix)
		if err != nil {
			return
		}
		slot := slotOf(n.lock(key))
		asked := append(allNames(n, key), n.inbox()+"host-1-a"+inboxEnd(slot))
		if strings.ContainsAny(prefix, "{") {
			asked = asked[:len(asked)-1] // its own tag decides, and that is why there is one
		}
		commands := make([]rueidis.Completed, len(asked))
		for i, name := range asked {
			commands[i] = client.B().ClusterKeyslot().Key(name).Build()
		}
		for i, result := range client.DoMulti(t.Context(), commands...) {
			got, err := result.AsInt64()
			require.NoError(t, err)
			require.EqualValues(t, slot, got, "%q", asked[i])
		}
	})
}

// FuzzACLRules: the user of a rule may use every name with the prefix, and none without it.
func FuzzACLRules(f *testing.F) {
	for _, prefix := range []string{"lock:", "*", "a?b", "[ab]", `\`, `a\*`, "{app}:", "a b", "a\x00", "%R~", "é", "", "^[", "a\"b'"} {
		f.Add(prefix, "other:")
	}
	f.Add("a", "A")
	server := redistest.Start(f)
	client := server.Client(f)
	f.Fuzz(func(t *testing.T, prefix, other string) {
		words := strings.Split(ACLRule("somebody", prefix), " ")
		if len(words) != len(strings.Split(ACLRule("somebody", "x"), " ")) {
			return // Redis has no rules for names with blanks: see ACLRule
		}
		rule := client.B().Arbitrary(words[0]).Args(words[1:]...).Build()
		if err := client.Do(t.Context(), rule).Error(); err != nil {
			require.ErrorContains(t, err, "Syntax error")
			require.True(t, strings.ContainsAny(prefix, " \t\n\v\f\r\x00"), "%q", prefix)
			return
		}
		if prefix == "" {
			prefix = DefaultPrefix
		}
		may := func(name string) bool {
			said, err := client.Do(t.Context(), client.B().Arbitrary("ACL", "DRYRUN", "somebody", "GET").Args(name).Build()).ToString()
			require.NoError(t, err)
			return said == "OK"
		}
		require.True(t, may(prefix))
		require.True(t, may(prefix+other))
		require.Equal(t, strings.HasPrefix(other, prefix), may(other))
	})
}
