package redislease

import (
	"errors"
	"fmt"
	"math"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/internal/resptest"
	"github.com/go-leasehold/leasehold/lease"
)

// What follows sends answers of any shape: see resptest.Frame for how a text stands for one.

// lines are an array of values, in the form of resptest.
func lines(values ...any) string {
	text := "*"
	for _, v := range values {
		switch v := v.(type) {
		case string:
			text += "\n$" + v
		default:
			text += fmt.Sprintf("\n:%d", v)
		}
	}
	return text
}

func bit(b bool) int {
	if b {
		return 1
	}
	return 0
}

// linesOf is the answer of a script that says what the reply says.
func linesOf(op lease.Op, r *lease.Reply) string {
	switch r.Status {
	case lease.Held:
		if op == lease.Renew || op == lease.Downgrade {
			return lines(1, r.First, r.Last, bit(r.Contended), r.Waiters)
		}
		return lines(1, r.First, r.Last, bit(r.Contended), bit(r.Already))
	case lease.Waiting, lease.Denied:
		status := map[lease.Status]int{lease.Waiting: 2, lease.Denied: 3}[r.Status]
		values := []any{status, r.Remaining.Milliseconds(), r.Rank, r.Token, r.Holder, r.Told}
		if r.Trace != "" {
			values = append(values, r.Trace)
		}
		return lines(values...)
	case lease.Lost:
		return lines(4)
	}
	return lines(5)
}

// FuzzReplies: an answer is refused, or says of itself, value for value, what the reply says.
func FuzzReplies(f *testing.F) {
	for _, text := range []string{
		lines(1, 1, 2, 0, 0), lines(1, 0, 0, 1, 1), lines(2, 10, 0, 5, "a:1", 1), lines(3, 10, 0, 0, "", 0, trace), lines(4), lines(5),
		lines(2, math.MaxInt64, 0, 5, "a:1", 1), lines(2, 10, 0, 5, "a:1", 1, "nonsense"), lines(1, 2, 1, 0, 0), lines(-100), lines(6),
		"-KIND the key is in use as rw", "", ":1", "*\n1\n1\n2\n0\n0", "*\n#t\n:1\n:2\n#f\n#f", "~\n:5", "%\n:1\n:1\n:2\n:0", "*\n*\n:5",
		"*\n:3\n:10\n:0\n:0\n_\n:0", "*\n:3\n:10\n:0\n:0\n-ERR x\n:0", "*\n:4\n.\n:4", "*\n,1\n:1\n:2\n:0\n:0", "*\n(1\n:1\n:2\n:0\n:0",
	} {
		for op := lease.Acquire; op <= lease.Annotate; op++ {
			f.Add(uint8(op), text)
		}
	}
	server := resptest.Start(f)
	f.Fuzz(func(t *testing.T, verb uint8, text string) {
		op, result := lease.Op(verb), server.Answer(text)
		reply, err := parseReply(op, result)
		if err != nil {
			require.Zero(t, reply)
			return
		}
		require.Contains(t, may[op], reply.Status)
		require.LessOrEqual(t, reply.First, reply.Last)
		require.Equal(t, reply.First == 0, reply.Last == 0)
		require.False(t, reply.Remaining < 0 || reply.Rank < 0 || reply.Told < 0 || reply.Waiters < 0, "%+v", reply)
		require.True(t, reply.Trace == "" || lease.ValidTrace(reply.Trace))

		said, err := result.ToArray()
		require.NoError(t, err)
		if strings.Contains(reply.Holder, "\n") || strings.Contains(reply.Holder, "\r") {
			return // can't be written as a line
		}
		means, err := server.Answer(linesOf(op, &reply)).ToArray()
		require.NoError(t, err)
		if len(said) == 7 && reply.Trace == "" {
			said = said[:6] // one that was none
		}
		require.Len(t, means, len(said))
		for i := range said {
			if i == 1 && reply.Remaining == ofMillis(math.MaxInt64) {
				continue // longer than can be said
			}
			requireSame(t, said[i], means[i])
		}
	})
}

func requireSame(t *testing.T, said, means rueidis.RedisMessage) {
	require.Equal(t, said.IsInt64(), means.IsInt64())
	if said.IsInt64() {
		a, _ := said.ToInt64()
		b, _ := means.ToInt64()
		require.Equal(t, a, b)
		return
	}
	a, err := said.ToString()
	require.NoError(t, err)
	b, err := means.ToString()
	require.NoError(t, err)
	require.Equal(t, a, b)
}

// FuzzInfos: what an inspect script answers is refused, or every holder and the token are told as they are, and of the
// queue what is a place.
func FuzzInfos(f *testing.F) {
	for _, text := range []string{
		"*\n$\n:0\n*\n.\n*\n.", "*\nmutex\n:17\n*\na:1\nexclusive\n:5000\n1796035063767638\n" + trace + "\n.\n*\nM1500/64:b:7\n1796035063767638",
		"*\nrw\n:1\n*\na:1\nshared\n:5\n1\n$\nb:2\nshared\n:0\n:0\nx\n.\n*\nR1/1:c:3\n1.5\nfoo\nbar", "*\nother\n:1\n*\n.\n*", "*\nmutex\n:-1\n*\n.\n*",
		"*\nmutex\n:1\n*\na:1\nexclusive\n:9223372036854775807\n0\n$\n.\n*", "*\nmutex\n:1\n*\na\nb\n:1\nd\ne\n.\n*", "*\nmutex\n:1\n*\na\n.\n*",
		"*\nrw\n:1\n*\n.\n*\nodd", "*\nmutex\n:1\n*\na:1\nexclusive\n_\n_\n_\n.\n*\n_\n_", "-KIND x", ":1", "",
	} {
		f.Add(text)
	}
	server := resptest.Start(f)
	f.Fuzz(func(t *testing.T, text string) {
		result := server.Answer(text)
		info, err := parseInfo(result)
		if err != nil {
			require.Zero(t, info)
			require.NotContains(t, err.Error(), "%!")
			return
		}
		values, err := result.ToArray()
		require.NoError(t, err)
		require.Len(t, values, 4)
		layout, err := values[0].ToString()
		require.NoError(t, err)
		require.Equal(t, layout, map[lease.Kind]string{0: "", lease.Mutex: "mutex", lease.ReadWrite: "rw"}[info.Kind])
		require.Equal(t, info.Kind == 0, len(info.Holders) == 0)
		token, err := values[1].ToInt64()
		require.NoError(t, err)
		require.EqualValues(t, token, info.Token)
		holders, err := values[2].ToArray()
		require.NoError(t, err)
		require.Len(t, holders, 5*len(info.Holders))
		for i, h := range info.Holders {
			owner, _ := holders[5*i].ToString()
			mode, _ := holders[5*i+1].ToString()
			require.Equal(t, owner, h.Owner)
			require.Equal(t, mode, h.Mode.String())
			require.GreaterOrEqual(t, h.TTL, time.Duration(0))
			require.True(t, h.Trace == "" || lease.ValidTrace(h.Trace))
		}
		queue, err := values[3].ToArray()
		require.NoError(t, err)
		require.LessOrEqual(t, 2*len(info.Waiters), len(queue))
	})
}

// FuzzPresences: the look with tracking names as many fields as it was asked for, each of which is there or not.
func FuzzPresences(f *testing.F) {
	for _, text := range []string{"*\n_", "*\n1", "*\n_\n1", "*\n_\n_", "*", "", "*\n:1", "*\n-ERR x\n_", "%\n_\n_", "-NOPERM no", "*\n*\n.\n_", "~\n_"} {
		f.Add(1, text)
		f.Add(2, text)
	}
	server := resptest.Start(f)
	f.Fuzz(func(t *testing.T, fields int, text string) {
		result := server.Answer(text)
		present, err := parsePresence(fields, result)
		if err != nil {
			require.False(t, present)
			return
		}
		values, err := result.ToArray()
		require.NoError(t, err)
		require.Len(t, values, fields)
		nils := 0
		for i := range values {
			nils += bit(values[i].IsNil())
		}
		require.Equal(t, nils < fields, present)
	})
}

// FuzzProbes: the probe's answer is refused, or has a count and pairs of texts.
func FuzzProbes(f *testing.F) {
	for _, text := range []string{"*\n:1", "*\n:0\nPUBLISH\nNOPERM no", "*\n:0\nPUBLISH", "*", "", "*\n1", "*\n:-1", "*\n:0\n:1\nx", "*\n:0\nx\n_", "-NOPERM no"} {
		f.Add(text)
	}
	server := resptest.Start(f)
	f.Fuzz(func(t *testing.T, text string) {
		result := server.Answer(text)
		heard, failed, err := parseProbe(result)
		if err != nil {
			require.Zero(t, heard)
			require.Nil(t, failed)
			return
		}
		values, err := result.ToArray()
		require.NoError(t, err)
		require.GreaterOrEqual(t, heard, int64(0))
		require.LessOrEqual(t, 2*len(failed)+1, len(values))
		for _, command := range failed.denied() {
			require.Contains(t, failed, command)
		}
	})
}

// FuzzSlots: of CLUSTER SLOTS that is kept which makes sense: slots that there are, and addresses that can be dialled.
func FuzzSlots(f *testing.F) {
	for _, text := range []string{
		"*\n*\n:0\n:16383\n*\n127.0.0.1\n:7000\nid\n.\n*\n127.0.0.1\n:7001", "*\n*\n:0\n:5\n*\n_\n:7000", "*\n*\n:0\n:5\n*\n?\n:7000", "*\n*\n:0\n:5\n*\n::1\n:7000",
		"*\n*\n:-1\n:5\n*\nh\n:7000", "*\n*\n:6\n:5\n*\nh\n:7000", "*\n*\n:0\n:16384\n*\nh\n:7000", "*\n*\n:0\n:5\n*\nh\n:0", "*\n*\n:0\n:5\n*\nh\n:65536", "*\n*\n:0\n:5",
		"*\n*\n:0\n:5\n*\n*\n.\n:1", "*\n:1\nx\n_", "*",
	} {
		f.Add(text, "10.0.0.1:7000")
		f.Add(text, "nonsense")
	}
	server := resptest.Start(f)
	f.Fuzz(func(t *testing.T, text, asked string) {
		ranges, err := server.Answer(text).ToArray()
		if err != nil {
			return
		}
		all := parseSlots(ranges, asked)
		require.LessOrEqual(t, len(all), len(ranges))
		for _, r := range all {
			require.True(t, 0 <= r.first && r.first <= r.last && r.last < slots, "%+v", r)
			i := strings.LastIndexByte(r.address, ':')
			port, err := strconv.Atoi(r.address[i+1:])
			require.NoError(t, err)
			require.True(t, 0 < port && port <= math.MaxUint16, "%+v", r)
			if host, again, err := net.SplitHostPort(r.address); err == nil {
				require.Equal(t, r.address, net.JoinHostPort(host, again))
			}
		}
		for _, slot := range []uint16{0, 1, slots / 2, slots - 1} {
			if at := all.of(slot); at != "" {
				require.NotEmpty(t, all)
			}
		}
	})
}

// FuzzHellos: of what a server says of itself, words are kept.
func FuzzHellos(f *testing.F) {
	for _, text := range []string{
		"%\nserver\nredis\nversion\n7.0.15\nproto\n:3\nmode\ncluster\nrole\nmaster\nmodules\n*", "*\nserver\nredis\nversion", "%", "", "-NOPROTO x", "%\n:1\n:2\n*\n.\nx", "*\n_\n_",
	} {
		f.Add(text)
	}
	server := resptest.Start(f)
	f.Fuzz(func(t *testing.T, text string) {
		hello, err := parseHello(server.Answer(text))
		require.False(t, err != nil && hello != nil)
		require.True(t, err != nil || hello != nil)
	})
}

// FuzzErrors: whatever a server says is wrong becomes an error that says it, and where.
func FuzzErrors(f *testing.F) {
	for _, text := range []string{
		"READONLY You can't write against a read only replica.", "KIND the key is in use as rw", "WRONGTYPE Operation", "ERR unknown command 'EVALSHA'", "", " ", "x", "OOM",
		"ERR Error running script (call to f_1): @user_script:12: READONLY You can't write", "ERR @user_script:", "The user executing the script can't run this", "-", "ERR ",
		"MOVED 3999 127.0.0.1:6381", "MOVED", "MOVED 1", "MOVED  ", "MOVEDx a b", "MOVED 1 ::1:7000", "MOVED 1 ", "ASK 1", "ASKING is not allowed here",
		"NOPERM this user has no permissions to run the 'evalsha' command", "ERR Error running script (call to f_1): @user_script:12: -WRONGTYPE Operation",
	} {
		f.Add(text)
	}
	server := resptest.Start(f)
	s := &Store{addr: "redis:6379"}
	f.Fuzz(func(t *testing.T, text string) {
		result := server.Answer("-" + strings.NewReplacer("\n", " ", "\r", " ").Replace(text))
		answer := result.Error()
		require.Error(t, answer)
		if address, moved := movedTo(result); moved {
			require.True(t, strings.HasPrefix(answer.Error(), "MOVED "))
			require.NotContains(t, address, " ")
		}
		err := s.wrap("acquire", answer)
		require.False(t, broken(answer), "the connection is fine")
		var failure *Error
		if errors.Is(err, lease.ErrKind) {
			require.NotErrorAs(t, err, &failure)
			return
		}
		require.ErrorAs(t, err, &failure)
		require.NotEmpty(t, failure.Code)
		require.NotContains(t, failure.Code, " ")
		require.Contains(t, []string{StageServer, StageConnect}, failure.Stage)
		require.ErrorContains(t, err, "acquire at redis:6379")
		require.ErrorContains(t, err, answer.Error())
		require.ErrorIs(t, err, answer)
	})
}

// FuzzVersions: the version of a server is older than another, or not, as its numbers are; what has none is not guessed at.
func FuzzVersions(f *testing.F) {
	for _, version := range []string{"7.0.15", "6", "6.2", "7.2-rc1", "v7.0.0", "255.255.255", "", "x", "7.x.1", "-1.0", "7..1", "99999999999999999999.1", "7.0.15\r"} {
		f.Add(version, uint8(7), uint8(0), uint8(5))
	}
	f.Fuzz(func(t *testing.T, version string, a, b, c uint8) {
		n, ok := parseVersion(version)
		if !ok {
			require.Zero(t, n)
			return
		}
		for _, part := range n {
			require.GreaterOrEqual(t, part, 0)
		}
		require.True(t, strings.HasPrefix(strings.TrimLeft(version, "0"), strings.TrimLeft(strconv.Itoa(n[0]), "0")))
		exact := fmt.Sprintf("%d.%d.%d", a, b, c)
		got, ok := parseVersion(exact)
		require.True(t, ok)
		require.Equal(t, [3]int{int(a), int(b), int(c)}, got)
		text := parseInfoText("# Server\r\nredis_version:" + exact + "\r\nrole:master\r\n")
		require.Equal(t, map[string]string{"redis_version": exact, "role": "master"}, text)
		require.NotPanics(t, func() { parseInfoText(version) })
	})
}
