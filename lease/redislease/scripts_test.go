package redislease

import (
	"context"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/internal/redistest"
	"github.com/go-leasehold/leasehold/lease"
)

// header is what a script says of itself.
type header struct {
	keys, args []string // names by index, from 1 on
	sections   []string
}

var (
	declaration = regexp.MustCompile(`^-- (KEYS|ARGV)\[(\d+)\]\s+(\w+)\s+\S`)
	section     = regexp.MustCompile(`^-- (Returns|Time|Retry)\s+\S`)
	comment     = regexp.MustCompile(`--.*`)
	use         = regexp.MustCompile(`\b(KEYS|ARGV)\[(\d+)\]`)
)

// parseScript reads the header of a script, and the indices that its body uses.
func parseScript(t *testing.T, name string) (h header, keys, args []int) {
	t.Helper()
	h.keys, h.args = []string{""}, []string{""}
	text := source(name)
	require.True(t, strings.HasPrefix(text, "-- "+name+".lua\n-- "), "%s begins with its name and what it does", name)
	for line := range strings.Lines(text) {
		if m := declaration.FindStringSubmatch(line); m != nil {
			list := &h.keys
			if m[1] == "ARGV" {
				list = &h.args
			}
			index, err := strconv.Atoi(m[2])
			require.NoError(t, err)
			for len(*list) <= index {
				*list = append(*list, "")
			}
			(*list)[index] = m[3]
		} else if m := section.FindStringSubmatch(line); m != nil {
			h.sections = append(h.sections, m[1])
		} else if !strings.HasPrefix(line, "--") {
			for _, m := range use.FindAllStringSubmatch(line, -1) {
				index, err := strconv.Atoi(m[2])
				require.NoError(t, err)
				if m[1] == "KEYS" {
					keys = append(keys, index)
				} else {
					args = append(args, index)
				}
			}
		}
	}
	slices.Sort(keys)
	slices.Sort(args)
	return h, slices.Compact(keys), slices.Compact(args)
}

// scriptNames are those of all files but the probe, which stands alone.
func scriptNames(t *testing.T) (all []string) {
	t.Helper()
	files, err := scriptFiles.ReadDir("scripts")
	require.NoError(t, err)
	for _, file := range files {
		if name := strings.TrimSuffix(file.Name(), ".lua"); name != "probe" {
			all = append(all, name)
		}
	}
	require.GreaterOrEqual(t, len(all), 7)
	return all
}

// indices are those that a header declares.
func indices(names []string) (declared []int) {
	for i, name := range names {
		if name != "" {
			declared = append(declared, i)
		}
	}
	return declared
}

func TestHeadersTellWhatTheScriptsUse(t *testing.T) {
	prelude, keys, args := parseScript(t, "prelude")
	require.Equal(t, indices(prelude.keys), keys)
	require.Equal(t, indices(prelude.args), args)
	for _, name := range []string{"acquire", "release", "renew", "downgrade", "force", "inspect", "annotate"} {
		h, keys, args := parseScript(t, name)
		require.Equal(t, prelude.keys, h.keys, "%s: the prelude's keys", name)
		require.Empty(t, keys, "%s: keys are used by their names", name)
		require.Equal(t, indices(h.args), args, name)
		if len(args) > 0 {
			require.Equal(t, len(prelude.args), args[0], "%s: its arguments follow the prelude's", name)
			require.Len(t, args, args[len(args)-1]-args[0]+1, "%s: no gap", name)
		}
		require.Equal(t, []string{"Returns", "Time", "Retry"}, h.sections, name)
	}
	alone, keys, args := parseScript(t, "probe")
	require.Equal(t, indices(alone.keys), keys)
	require.Equal(t, indices(alone.args), args)
	require.Equal(t, []string{"Returns", "Time", "Retry"}, alone.sections)
}

// TestEveryCommandIsTriedAndPermitted: what the scripts call is what the probe tries,
// and no more than ACLRule permits.
func TestEveryCommandIsTriedAndPermitted(t *testing.T) {
	call := regexp.MustCompile(`redis\.p?call\('(\w+)'`)
	try := regexp.MustCompile(`try\('(\w+)['|]`)
	called, tried := map[string]bool{}, map[string]bool{}
	for _, name := range scriptNames(t) {
		for _, m := range call.FindAllStringSubmatch(source(name), -1) {
			called[m[1]] = true
			require.True(t, slices.ContainsFunc(Commands, func(permitted string) bool {
				name, _, _ := strings.Cut(permitted, "|") // of a command that has others below it
				return strings.EqualFold(name, m[1])
			}), m[1])
		}
	}
	for _, m := range try.FindAllStringSubmatch(source("probe"), -1) {
		tried[m[1]] = true
	}
	require.Equal(t, called, tried)
}

const trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

// TestCallsPassWhatTheHeadersDeclare: as many keys and arguments, whatever the request.
func TestCallsPassWhatTheHeadersDeclare(t *testing.T) {
	s := &Store{id: "a", names: names{DefaultPrefix}, publish: "PUBLISH", keep: "1", tailFrom: "2"}
	prelude, _, _ := parseScript(t, "prelude")
	next := &lease.Next{Ticket: 2, Mode: lease.Exclusive, TTL: time.Second}
	for _, r := range []lease.Request{
		{Op: lease.Acquire}, {Op: lease.Release}, {Op: lease.Release, Next: next}, {Op: lease.Renew}, {Op: lease.Downgrade},
		{Op: lease.Annotate, Trace: trace},
	} {
		r.Key, r.Kind, r.Ticket, r.Mode, r.TTL = "k", lease.ReadWrite, 1, lease.Exclusive, time.Second
		require.NoError(t, validate(&r))
		p := s.prepare(&r, s.namesOf(r.Key))
		h, _, _ := parseScript(t, p.script.name)
		require.Len(t, p.args, max(len(h.args), len(prelude.args))-1, r.Op)
	}
	require.Len(t, s.args(lease.Mutex, s.namesOf("k"), 0), len(prelude.args)-1)
	require.Len(t, prelude.keys, 4, "commands() passes three")
}

// TestNumbersKeepTheirDigits: Lua writes a large number as 1.8e+15 when it is joined
// to a string, so none may be.
func TestNumbersKeepTheirDigits(t *testing.T) {
	for _, name := range scriptNames(t) {
		body := comment.ReplaceAllString(source(name), "")
		require.NotRegexp(t, `\.\.\s*(ttl|ends|now|first|last|score|size|floor|token)\b`, body, name)
		require.NotRegexp(t, `\b(ttl|ends|now\(\)|first|last|score|size|floor)\s*\.\.`, body, name)
	}
}

// TestRenewalWithTheLockAlone is what is sent while a slot moves, when scripts with more
// keys are told to try again.
func TestRenewalWithTheLockAlone(t *testing.T) {
	server, key := redistest.Shared(t), redistest.Prefix(t)
	s, err := New(server.Option(), Config{})
	require.NoError(t, err)
	_, err = s.Open(t.Context(), "bare", func(lease.Event) {})
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Close(context.Background())) }()
	lock := s.names.lock(key)
	for _, of := range []struct {
		kind   lease.Kind
		fields []string
	}{
		{lease.Mutex, []string{"bare:1", "1"}},
		{lease.ReadWrite, []string{"mode", "write", "bare:1:write", "1"}},
		{lease.ReadWrite, []string{"mode", "read", "bare:1", "1"}},
	} {
		server.Do(t, "DEL", lock)
		server.Do(t, append([]string{"HSET", lock}, of.fields...)...)
		server.Do(t, "PEXPIRE", lock, "60000")
		for ticket, want := range map[lease.Ticket]lease.Status{1: lease.Held, 2: lease.Lost} {
			r := lease.Request{Op: lease.Renew, Key: key, Kind: of.kind, Ticket: ticket, TTL: time.Hour, Tokens: 3}
			p := s.prepare(&r, s.namesOf(key))
			require.Contains(t, s.commands(nil, &p, bareLock)[0].Commands()[2:], "1", "one key")
			reply, err := parseReply(r.Op, s.client.Do(t.Context(), s.commands(nil, &p, bareLock)[0]))
			require.NoError(t, err)
			require.Equal(t, want, reply.Status)
		}
		message := server.Do(t, "PTTL", lock)
		left, err := message.AsInt64()
		require.NoError(t, err)
		require.Greater(t, left, int64(60000))
	}
}
