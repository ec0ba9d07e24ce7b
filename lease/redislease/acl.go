package redislease

import (
	"slices"
	"strings"
)

// Commands are all the commands that a store sends, those inside its scripts
// and those of the client below it included, in the form in which ACL rules
// have them. Commands that a deployment does not need (CLUSTER without a
// cluster, ROLE without Sentinel, AUTH without a password) are among them.
var Commands = []string{
	// connecting
	"auth", "hello", "ping", "select", "client|setname", "client|tracking", "client|caching",
	"cluster|slots", "cluster|shards", "asking", "role",
	// the inbox
	"subscribe", "ssubscribe", "publish", "spublish", "pubsub|numsub", "pubsub|shardnumsub",
	// scripts, and what they call
	"eval", "evalsha",
	"del", "exists", "get", "hdel", "hexists", "hgetall", "hmget", "hset", "mget", "pexpire", "pttl", "set", "time",
	"zadd", "zcard", "zrange", "zrank", "zrem", "zrevrange",
}

// ACLRule is the command that makes, or remakes, a Redis user with exactly the
// rights that a store with this prefix needs, and more commands (segment.Commands,
// where the user has stock), for Redis 7.0 and later. The password is left to the operator: add one as ">password", or "nopass".
//
// For Redis 6.2 leave out cluster|shards, ssubscribe, spublish and pubsub|shardnumsub, and for 6.0
// also the words that begin with "&".
//
// CLIENT SETINFO, which the client sends on every connection, is not among
// them: servers before 7.2 don't know it, and its refusal does no harm.
func ACLRule(user, prefix string, more ...string) string {
	if prefix == "" {
		prefix = DefaultPrefix
	}
	words := []string{"ACL", "SETUSER", user, "reset", "on", "~" + globLiteral(prefix) + "*", "&" + globLiteral(prefix) + "*"}
	for _, command := range slices.Concat(Commands, more) {
		words = append(words, "+"+command)
	}
	return strings.Join(words, " ")
}

// globLiteral escapes what patterns have a meaning for.
func globLiteral(s string) string {
	var b strings.Builder
	for _, c := range []byte(s) {
		if slices.Contains([]byte(`*?[]\`), c) {
			b.WriteByte('\\')
		}
		b.WriteByte(c)
	}
	return b.String()
}
