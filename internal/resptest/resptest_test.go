package resptest

import (
	"strings"
	"testing"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"
)

func TestFrames(t *testing.T) {
	for text, want := range map[string]string{
		"":                        "_\r\n",
		".":                       "_\r\n",
		"_":                       "_\r\n",
		":-7":                     ":-7\r\n",
		":x":                      ":0\r\n",
		",1.5":                    ",1.5\r\n",
		"#t":                      "#t\r\n",
		"#":                       "#f\r\n",
		"-ERR no\r":               "-ERR no\r\n",
		"=ab":                     "=6\r\ntxt:ab\r\n",
		"plain":                   "$5\r\nplain\r\n",
		"$:1":                     "$2\r\n:1\r\n",
		":1\n":                    "*2\r\n:1\r\n$0\r\n\r\n",
		"*":                       "*0\r\n",
		"*\n:1\n.\n:2":            "*2\r\n*1\r\n:1\r\n:2\r\n",
		"*\n~\n:1\n.":             "*1\r\n~1\r\n:1\r\n",
		"%\na\n:1\nb":             "%1\r\n$1\r\na\r\n:1\r\n",
		strings.Repeat("*\n", 40): strings.Repeat("*1\r\n", maxDepth-1) + "*0\r\n",
	} {
		require.Equal(t, want, Frame(text), "%q", text)
	}
}

func TestAnswersAreThoseOfTheText(t *testing.T) {
	s := Start(t)
	result := s.Answer("*\n:1\nabc\n_\n#t\n*\n:2")
	values, err := result.ToArray()
	require.NoError(t, err)
	require.Len(t, values, 5)
	require.True(t, values[0].IsInt64())
	require.True(t, values[1].IsString())
	require.True(t, values[2].IsNil())
	require.True(t, values[3].IsBool())
	require.True(t, values[4].IsArray())
	err = s.Answer("-ODD thing").Error()
	require.ErrorContains(t, err, "ODD thing")
	require.True(t, rueidis.IsRedisNil(s.Answer("").Error()))
}

// FuzzFrame: every text is one answer, and the connection is fit for the next.
func FuzzFrame(f *testing.F) {
	for _, text := range []string{"", ":1", "*\n:1\n%\na\nb\n.\n~\n.\n", "-ERR x", "+OK", "(12", "=x", strings.Repeat("*\n", 40), "$\r\n", "+\r"} {
		f.Add(text)
	}
	s := Start(f)
	f.Fuzz(func(t *testing.T, text string) {
		err := s.Answer(text).NonRedisError()
		require.NoError(t, err)
		n, err := s.Answer(":7").ToInt64()
		require.NoError(t, err)
		require.EqualValues(t, 7, n)
	})
}
