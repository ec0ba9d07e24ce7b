package redislease

import (
	"fmt"
	"strings"
)

// DefaultPrefix stands before every key unless [Config.Prefix] says otherwise.
const DefaultPrefix = "lock:"

// helper marks the names that are not a user's key: they go on with it right
// behind the prefix.
const helper = "~"

// names makes the names in Redis of what belongs to a key. All of them start
// with the prefix, so that one ACL pattern covers them, and those of one key
// are in one slot.
//
// A user's key that itself starts with the helper's mark gets a second one,
// so that no key can be taken for a helper of another.
type names struct {
	prefix string
}

// newNames checks the prefix: its own braces must not keep helpers out of
// their key's slot.
func newNames(prefix string) (names, error) {
	if !strings.ContainsAny(prefix, "{}") {
		return names{prefix}, nil
	}
	if _, ok := hashTag(prefix); !ok || strings.Count(prefix, "{") != 1 || strings.Count(prefix, "}") != 1 {
		return names{}, fmt.Errorf("redislease: the prefix %q must have no brace, or exactly one {tag} that is not empty", prefix)
	}
	return names{prefix}, nil
}

// lock is the name of the lock itself: K in the protocol.
func (n names) lock(key string) string {
	if strings.HasPrefix(key, helper) {
		return n.prefix + helper + key
	}
	return n.prefix + key
}

// keyFrom is the offset in K at which the user's key begins.
func (n names) keyFrom(key string) int {
	if strings.HasPrefix(key, helper) {
		return len(n.prefix) + len(helper)
	}
	return len(n.prefix)
}

// key is the inverse of lock. ok is false for helpers and for foreign names.
func (n names) key(lock string) (key string, ok bool) {
	key, ok = strings.CutPrefix(lock, n.prefix)
	if !ok || !strings.HasPrefix(key, helper) {
		return key, ok
	}
	key = key[len(helper):]
	return key, strings.HasPrefix(key, helper)
}

// tail is what the names of a lock's helpers end with: a tag that keeps them
// in the slot of the lock, and the lock's own name, that keeps them apart.
func (n names) tail(lock string) string {
	tag, _ := hashTag(lock)
	if strings.IndexByte(tag, '}') >= 0 {
		tag = slotTag(crcSlot(tag)) // the lock's braces forbid both its tag and its name
	}
	return "{" + tag + "}" + lock
}

// helperName is the name of the lock's helper that is called what.
func (n names) helperName(what, tail string) string {
	return n.prefix + helper + what + tail
}

// inbox is what the inbox of a coordinator starts with; its id follows, and
// then inboxEnd.
func (n names) inbox() string { return n.prefix + helper + "inbox:" }

// inboxEnd is what the name of an inbox for one slot ends with.
func inboxEnd(slot uint16) string { return "{" + slotTag(slot) + "}" }
