package segment

import (
	"strconv"
	"strings"
)

// escape keeps the braces of a name out of a hash tag, which ends at the first.
var escape = strings.NewReplacer("%", "%25", "{", "%7B", "}", "%7D")

// tagged is the hash tag of segment i of what is called name: each has a slot
// of its own on a cluster.
func tagged(name string, i int) string {
	return "{" + escape.Replace(name) + "/" + strconv.Itoa(i) + "}"
}

// keys are the names in Redis of what belongs to one segment of a stock. They
// are helpers of the prefix (~), so that no lock's key is one of them, and in
// one slot.
type keys struct {
	stem string // prefix~stock:
	tag  string

	books, open, due, users, raised, parts string
}

func newKeys(prefix, name string, i int) keys {
	k := keys{stem: prefix + "~stock:", tag: tagged(name, i)}
	k.books, k.open, k.due = k.of("books"), k.of("open"), k.of("due")
	k.users, k.raised, k.parts = k.of("users"), k.of("raised"), k.of("parts")
	return k
}

func (k *keys) of(what string) string { return k.stem + what + k.tag }

// orders is the hash of the orders of a bucket.
func (k *keys) orders(bucket int64) string {
	return k.stem + "orders:" + strconv.FormatInt(bucket, 10) + k.tag
}

// meta is what is known of the stock as a whole; only segment 0 has it.
func (k *keys) meta() string { return k.of("meta") }
