package faults

import (
	"bufio"
	"bytes"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func reader(s string) *bufio.Reader { return bufio.NewReader(strings.NewReader(s)) }

func TestReadCommandTakesArraysAndInlineCommands(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string][]string{
		"*1\r\n$4\r\nPING\r\n":                    {"PING"},
		"*2\r\n$3\r\nGET\r\n$0\r\n\r\n":           {"GET", ""},
		"*2\r\n$3\r\nGET\r\n$4\r\na\r\nb\r\n":     {"GET", "a\r\nb"},
		"SET k  v\r\n":                            {"SET", "k", "v"},
		"*0\r\n":                                  nil,
		"*3\r\n$1\r\na\r\n$1\r\nb\r\n$1\r\n*\r\n": {"a", "b", "*"},
	} {
		c, err := readCommand(reader(raw + "next"))
		require.NoError(t, err, "%q", raw)
		require.Equal(t, want, c.args, "%q", raw)
		require.Equal(t, raw, string(c.raw))
	}
}

func TestReadCommandRefusesWhatIsNoCommand(t *testing.T) {
	t.Parallel()
	for _, raw := range []string{"\r\n", "*x\r\n", "*1\r\n:1\r\n", "*1\r\n$-7\r\n", "*1\r\n$1\r\nabc", "no end\n"} {
		_, err := readCommand(reader(raw))
		require.ErrorIs(t, err, errProtocol, "%q", raw)
	}
	_, err := readCommand(reader(""))
	require.ErrorIs(t, err, io.EOF)
	for _, raw := range []string{"*1", "*1\r\n", "*1\r\n$4\r\n", "*1\r\n$4\r\nPI"} {
		_, err := readCommand(reader(raw))
		require.ErrorIs(t, err, io.ErrUnexpectedEOF, "%q", raw)
	}
}

func TestReadFrameTakesEveryMessageWhole(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]frame{
		"+OK\r\n":                        {kind: '+'},
		"-ERR no\r\n":                    {kind: '-'},
		":7\r\n":                         {kind: ':'},
		"_\r\n":                          {kind: '_'},
		"#t\r\n":                         {kind: '#'},
		",1.5\r\n":                       {kind: ','},
		"(123456789012345678901\r\n":     {kind: '('},
		"$-1\r\n":                        {kind: '$'},
		"$2\r\n\r\n\r\n":                 {kind: '$'},
		"!3\r\nERR\r\n":                  {kind: '!'},
		"=7\r\ntxt:abc\r\n":              {kind: '='},
		"*-1\r\n":                        {kind: '*'},
		"*2\r\n$1\r\na\r\n:2\r\n":        {kind: '*', head: []string{"a", "2"}},
		"~1\r\n*1\r\n+x\r\n":             {kind: '~', head: []string{"1"}},
		"%1\r\n+k\r\n%1\r\n+a\r\n+b\r\n": {kind: '%', head: []string{"k", "1"}},
		">3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$1\r\nv\r\n": {kind: '>', head: []string{"message", "c"}},
		"|1\r\n+ttl\r\n:3\r\n+OK\r\n":                   {kind: '+'},
		"*1\r\n|1\r\n+ttl\r\n:3\r\n+x\r\n":              {kind: '*', head: []string{"1", "x"}},
	} {
		f, err := readFrame(reader(raw + "+next\r\n"))
		require.NoError(t, err, "%q", raw)
		require.Equal(t, raw, string(f.raw))
		require.Equal(t, string(want.kind), string(f.kind), "%q", raw)
		require.Equal(t, want.head, f.head, "%q", raw)
	}
}

func TestReadFrameTellsAnEndFromABreak(t *testing.T) {
	t.Parallel()
	_, err := readFrame(reader(""))
	require.ErrorIs(t, err, io.EOF)
	require.NotErrorIs(t, err, io.ErrUnexpectedEOF)
	for _, raw := range []string{"+O", "$5\r\nab", "*2\r\n+a\r\n", "$5\r\n"} {
		_, err := readFrame(reader(raw))
		require.ErrorIs(t, err, io.ErrUnexpectedEOF, "%q", raw)
	}
	for _, raw := range []string{"?\r\n", "*x\r\n", "$x\r\n", "$1\r\nabc", "x\n", strings.Repeat("*1\r\n", 100)} {
		_, err := readFrame(reader(raw))
		require.ErrorIs(t, err, errProtocol, "%q", raw)
	}
}

// What a reader returns is exactly what it took from the stream, whatever the stream holds.
func FuzzReadFrame(f *testing.F) {
	for _, seed := range []string{
		"+OK\r\n", "*2\r\n$1\r\na\r\n:2\r\n", ">2\r\n+invalidate\r\n*1\r\n$1\r\nk\r\n", "|1\r\n+a\r\n+b\r\n_\r\n", "$-1\r\n",
		"*1\r\n$4\r\nPING\r\n", "%1\r\n+k\r\n#f\r\n",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		check := func(raw []byte, err error, r *bufio.Reader) {
			if err != nil {
				return
			}
			rest, err := io.ReadAll(r)
			require.NoError(t, err)
			require.True(t, bytes.Equal(data, append(raw, rest...)))
		}
		r := bufio.NewReader(bytes.NewReader(data))
		fr, err := readFrame(r)
		check(fr.raw, err, r)
		r = bufio.NewReader(bytes.NewReader(data))
		c, err := readCommand(r)
		check(c.raw, err, r)
	})
}
