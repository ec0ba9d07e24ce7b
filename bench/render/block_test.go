package render_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/go-leasehold/leasehold/bench/render"
	"github.com/go-leasehold/leasehold/bench/result"
)

// block is a block of a page.
func block(name, text string) string {
	return "<!-- bench: " + name + " -->\n" + text + "\n<!-- /bench -->"
}

func TestFillMakesBlocksAnew(t *testing.T) {
	for name, wanted := range map[string][]string{
		"machine":               {"`go run . -rtt 0,1`", "2026-03-01", "Z80, 2 cores"},
		"claims":                {"| at least 0.9 |", "not measured"},
		"contenders":            {"| leasehold/fair | ours |", "retry delay: random"},
		"table hot":             {"loopback", "| redsync |", "1 M/s (800 k/s to 1.1 M/s)"},
		"table hot 1ms":         {"1ms added to each round trip", "| semaphore |"},
		"table uncontended":     {"| retained | fresh |", "| redsync |"},
		"all hot 64":            {"| client CPU |", "| leasehold/fair |"},
		"all uncontended fresh": {"| wait max |", "| redsync |"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := render.Fill("# Page\n\n"+block(name, "old numbers")+"\n\nThe end.\n", madeUp())
			require.NoError(t, err)
			require.True(t, strings.HasPrefix(got, "# Page\n\n<!-- bench: "+name+" -->\n"), got)
			require.True(t, strings.HasSuffix(got, "\n<!-- /bench -->\n\nThe end.\n"), got)
			require.NotContains(t, got, "old numbers")
			require.NotContains(t, got, "## ", "the page has headings of its own")
			for _, text := range wanted {
				require.Contains(t, got, text)
			}
		})
	}
}

// What is between the blocks stays as it is, and a page that has just been filled does not change.
func TestFillAgain(t *testing.T) {
	names := []string{"machine", "claims", "contenders", "table hot", "all hot 64"}
	prose := rapid.SampledFrom([]string{"", "\n", "Prose.\n\n", "| a | table |\n", "<!-- another comment -->"})
	rapid.Check(t, func(t *rapid.T) {
		var before, around strings.Builder
		for _, name := range rapid.SliceOfN(rapid.SampledFrom(names), 0, 4).Draw(t, "blocks") {
			text := prose.Draw(t, "before")
			before.WriteString(text + block(name, "old"))
			around.WriteString(text)
		}
		text := prose.Draw(t, "end")
		before.WriteString(text)
		around.WriteString(text)

		once, err := render.Fill(before.String(), madeUp())
		require.NoError(t, err)
		twice, err := render.Fill(once, madeUp())
		require.NoError(t, err)
		require.Equal(t, once, twice)
		require.Equal(t, around.String(), withoutBlocks(once))
	})
}

func withoutBlocks(page string) string {
	var out strings.Builder
	for {
		before, rest, found := strings.Cut(page, "<!-- bench: ")
		out.WriteString(before)
		if !found {
			return out.String()
		}
		_, page, _ = strings.Cut(rest, "<!-- /bench -->")
	}
}

// A block that can't be made is named, and the page is not written.
func TestFillNamesTheBlockThatCannotBeMade(t *testing.T) {
	for _, test := range []struct{ page, wanted string }{
		{block("weather", ""), `"weather"`},
		{block("table", ""), `"table"`},
		{block("table cold", ""), `no scenario "cold"`},
		{block("table hot 7ms", ""), "7ms"},
		{block("table hot soon", ""), "soon"},
		{block("all hot", ""), `"all hot"`},
		{block("all hot 65", ""), `at "65"`},
		{"<!-- bench: machine -->\nno end", `"machine" has no end`},
		{"<!-- bench: machine", `"machine" has no end`},
		{block("machine", "") + "<!-- bench: claims -->", `"claims" has no end`},
	} {
		got, err := render.Fill(test.page, madeUp())
		require.ErrorContains(t, err, test.wanted, test.page)
		require.Empty(t, got)
	}
}

func ExampleFill() {
	report := result.Report{Scenarios: []result.Scenario{{
		Name: "hot", Axis: "goroutines", Headline: result.Throughput,
		Cells: []result.Cell{{Contender: "leasehold", Point: "64", Rounds: []result.Round{{result.Throughput: 1.2e6}}}},
	}}}
	page, err := render.Fill("Quick:\n\n<!-- bench: table hot -->\n<!-- /bench -->\n", report)
	fmt.Println(page, err)
	// Output:
	// Quick:
	//
	// <!-- bench: table hot -->
	// Throughput by goroutines, loopback:
	//
	// |  | 64 |
	// | --- | --- |
	// | leasehold | 1.2 M/s |
	// <!-- /bench -->
	//  <nil>
}
