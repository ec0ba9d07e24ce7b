package history

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// FuzzLoad: a record is refused with the line that is wrong, or read so that it can be written and read again; and whatever
// it tells, the check comes to an end.
func FuzzLoad(f *testing.F) {
	var record bytes.Buffer
	require.NoError(f, Save(&record, lines(
		locked("1a", Write, 1, 0, 1), said("1a", Alive, 2, 3), paused(1, 4, 5), downgraded("1a", "1b", 1, 6, 7), said("1b", Unlocked, 8, 9),
		killed(2), deleted(4, 10, 12), Event{What: Refused, Key: "k", Process: 2, Mode: Write, Call: 2, Return: 8}, Event{What: Odd, Note: "x"},
	)))
	f.Add(record.String())
	f.Add(record.String() + `{"what":"locked","pro`)
	for _, text := range []string{"", "\n", "{}\n", "null\n", "[]\n", "{\"what\":\"new\"}\n", "{\"token\":-1}\n", "{\"call\":9223372036854775807,\"return\":-9223372036854775808,\"what\":\"paused\"}\n",
		"{\"what\":\"locked\",\"hold\":\"a\",\"key\":\"k\",\"token\":1,\"mode\":\"odd\"}\n{\"what\":\"unlocked\",\"hold\":\"a\",\"key\":\"k\"}\n",
		"{\"what\":\"downgraded\",\"hold\":\"a\",\"next\":\"a\",\"key\":\"k\"}\n",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		events, err := Load(strings.NewReader(text))
		if err != nil {
			require.ErrorContains(t, err, "history: line ")
			require.Nil(t, events)
			return
		}
		require.Len(t, events, strings.Count(text, "\n"))
		var again bytes.Buffer
		require.NoError(t, Save(&again, events))
		back, err := Load(&again)
		require.NoError(t, err)
		require.Equal(t, events, back)
		if len(events) <= 8 { // a search takes as long as it takes
			_ = Check(events, Rules{TTL: 100, Limit: 5 * time.Second})
		}
	})
}
