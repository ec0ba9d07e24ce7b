package segment

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/lease/redislease"
)

// These tests hold README.md and docs/ to the code of this package, as those of
// the coordinator do to the rest. One that fails says which page is to be changed.

// docsPage returns a page of the documentation.
func docsPage(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", name))
	require.NoError(t, err)
	return string(text)
}

// docsSection returns what is under a heading.
func docsSection(t *testing.T, name, title string) string {
	t.Helper()
	_, text, found := strings.Cut(docsPage(t, name), "\n"+title+"\n")
	require.True(t, found, "%s has no section %q", name, title)
	// Up to the next heading of the same level or a higher one.
	if end := regexp.MustCompile(fmt.Sprintf(`\n#{1,%d} `, strings.Index(title, " "))).FindStringIndex(text); end != nil {
		text = text[:end[0]]
	}
	return text
}

// says fails the test where a text has not what it should; the text itself would be too long a message.
func says(t *testing.T, where, text, what string) {
	t.Helper()
	if !strings.Contains(text, what) {
		require.FailNow(t, "it is not there", "%s: %s", where, what)
	}
}

// docsRows returns the cells of the tables in a text, without their heads.
func docsRows(text string) (rows [][]string) {
	inside := false
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		switch {
		case !strings.HasPrefix(line, "|"):
			inside = false
		case strings.HasPrefix(line, "| ---"):
			inside = true
		case inside:
			cells := strings.Split(strings.Trim(line, "|"), "|")
			for i := range cells {
				cells[i] = strings.TrimSpace(cells[i])
			}
			rows = append(rows, cells)
		}
	}
	return rows
}

// sources are the names of the package's own files.
func sources(t *testing.T) (paths []string) {
	t.Helper()
	all, err := filepath.Glob("*.go")
	require.NoError(t, err)
	for _, path := range all {
		if !strings.HasSuffix(path, "_test.go") {
			paths = append(paths, path)
		}
	}
	return paths
}

func TestReadmeHasEveryErrorOfSegment(t *testing.T) {
	t.Parallel()
	readme, answers := docsPage(t, "README.md"), docsSection(t, "docs/stock.md", "## What a service answers")
	file, err := parser.ParseFile(token.NewFileSet(), "errors.go", nil, 0)
	require.NoError(t, err)
	// Those that an order does not get.
	others := []string{"ErrLoaded", "ErrAudit", "ErrSegments"}
	n := 0
	ast.Inspect(file, func(node ast.Node) bool {
		spec, ok := node.(*ast.ValueSpec)
		if !ok || !strings.HasPrefix(spec.Names[0].Name, "Err") {
			return true
		}
		n++
		row := "| `" + spec.Names[0].Name + "` |"
		says(t, "README.md, Errors", readme, row)
		if !slices.Contains(others, spec.Names[0].Name) {
			says(t, "docs/stock.md, What a service answers", answers, row)
		}
		return true
	})
	require.Greater(t, n, 10)
}

// TestStockPageAnswersAsTheExample: a service that copies the example answers as the page says.
func TestStockPageAnswersAsTheExample(t *testing.T) {
	t.Parallel()
	source := docsPage(t, "examples/seckill/shop/http.go")
	found := regexp.MustCompile(`\{(?:segment|coordinator)\.(Err\w+), http\.(Status\w+),`).FindAllStringSubmatch(source, -1)
	require.NotEmpty(t, found, "examples/seckill/shop/http.go has no table of answers")
	codes := map[string]string{
		"StatusBadRequest": "400", "StatusForbidden": "403", "StatusNotFound": "404", "StatusConflict": "409", "StatusGone": "410",
		"StatusUnprocessableEntity": "422", "StatusTooManyRequests": "429", "StatusServiceUnavailable": "503",
	}
	var example, page [][2]string
	for _, row := range found {
		example = append(example, [2]string{"`" + row[1] + "`", codes[row[2]]})
	}
	for _, row := range docsRows(docsSection(t, "docs/stock.md", "## What a service answers")) {
		page = append(page, [2]string{row[0], row[1]})
	}
	require.Equal(t, example, page, "docs/stock.md, What a service answers")
}

func TestReadmeHasTheConfig(t *testing.T) {
	t.Parallel()
	rows := map[string][]string{}
	for _, row := range docsRows(docsSection(t, "README.md", "## Options")) {
		rows[row[0]] = row
	}
	defaults := map[string]string{
		"Segments": strconv.Itoa(DefaultSegments), "Remember": fmt.Sprintf("%.0f h", DefaultRemember.Hours()), "PerUser": "0",
		"MaxWaiting": "as `WithMaxWaiters`",
	}
	for field := range reflect.TypeFor[Config]().Fields() {
		row := rows["`"+field.Name+"`"]
		require.NotNil(t, row, "README.md, Options: %s", field.Name)
		require.Equal(t, defaults[field.Name], row[1], "README.md, Options: %s", field.Name)
		says(t, "docs/stock.md, Config", docsPage(t, "docs/stock.md"), "\n**`"+field.Name+"`** (")
	}
	require.Contains(t, rows["`Segments`"][2], fmt.Sprintf("1 to %d", MaxSegments))
	require.Contains(t, rows["`Remember`"][2], fmt.Sprintf("%.0f min to %.0f days", MinRemember.Minutes(), MaxRemember.Hours()/24))
}

// methods are the exported ones of a type.
func methods(t *testing.T, of string) (names []string) {
	t.Helper()
	for _, path := range sources(t) {
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		require.NoError(t, err)
		for _, decl := range file.Decls {
			fn, ok := decl.(*ast.FuncDecl)
			if !ok || fn.Recv == nil || !fn.Name.IsExported() {
				continue
			}
			if star, ok := fn.Recv.List[0].Type.(*ast.StarExpr); ok && star.X.(*ast.Ident).Name == of {
				names = append(names, fn.Name.Name)
			}
		}
	}
	require.NotEmpty(t, names)
	return names
}

func TestPagesHaveEveryCallOfSegment(t *testing.T) {
	t.Parallel()
	plain := []string{"Name", "Segments", "Len"} // what they return is what they were made with
	named := func(text, name string) bool { return regexp.MustCompile("[`.]" + name + "[(`]").MatchString(text) }
	stock, locks := docsPage(t, "docs/stock.md"), docsPage(t, "docs/choosing.md")
	for _, name := range append(methods(t, "Stock"), "DeductAll", "ReturnAll") {
		require.True(t, slices.Contains(plain, name) || named(stock, name), "docs/stock.md does not name %s", name)
	}
	for _, name := range methods(t, "Locks") {
		require.True(t, slices.Contains(plain, name) || named(locks, name), "docs/choosing.md does not name %s", name)
	}
}

func TestStockPageHasEveryCounter(t *testing.T) {
	t.Parallel()
	text := docsSection(t, "docs/stock.md", "## What to watch")
	for field := range reflect.TypeFor[Snapshot]().Fields() {
		says(t, "docs/stock.md, What to watch", text, "| `"+field.Name+"` |")
	}
}

func TestProtocolPageHasEveryScriptAndName(t *testing.T) {
	t.Parallel()
	const page = "docs/stock-protocol.md"
	var inTable []string
	for _, row := range docsRows(docsSection(t, page, "## Scripts")) {
		inTable = append(inTable, row[0])
	}
	scripts, err := filepath.Glob("scripts/*.lua")
	require.NoError(t, err)
	require.NotEmpty(t, scripts)
	for _, path := range scripts {
		name := strings.TrimSuffix(filepath.Base(path), ".lua")
		if name != "prelude" && name != "books" { // parts of the others
			require.Contains(t, strings.Join(inTable, " "), "`"+name+"`", "%s, Scripts", page)
		}
	}

	text := docsSection(t, page, "## Names in Redis")
	three, zero := newKeys("lock:", "sku:9", 3), newKeys("lock:", "sku:9", 0)
	bucket := strings.Replace(three.orders(7), ":7{", ":<bucket>{", 1)
	for _, key := range []string{zero.meta(), three.books, bucket, three.open, three.due, three.parts, three.users, three.raised} {
		says(t, page+", Names in Redis", text, "| `"+key+"` |")
	}
	says(t, page, docsPage(t, page), "`"+zero.of("rights")+"`")
	locks := docsSection(t, page, "## Locks")
	says(t, page+", Locks", locks, "`"+tagged("cart", 63)+"`")
	says(t, page+", Locks", locks, "`stock:"+tagged("sku:9", 3)+"`")

	// What is in the books.
	_, names, found := strings.Cut(source("books"), "local names = {")
	require.True(t, found)
	names, _, _ = strings.Cut(names, "}")
	fields := regexp.MustCompile(`'(\w+)'`).FindAllStringSubmatch(names, -1)
	require.NotEmpty(t, fields)
	for _, field := range fields {
		says(t, page+", Names in Redis, the books", text, "`"+field[1]+"`")
	}
}

// TestOperationsHasTheRightsOfStock, beside the line of locks.
func TestOperationsHasTheRightsOfStock(t *testing.T) {
	t.Parallel()
	line := "```text\n+" + strings.Join(Commands, " +") + "\n```"
	says(t, "docs/operations.md, Rights", docsSection(t, "docs/operations.md", "## Rights"), line)
	// What Go sends is among them; of the scripts TestCommandsAreAllThatScriptsCall sees to that.
	sent := 0
	for _, path := range sources(t) {
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		for _, found := range regexp.MustCompile(`\.B\(\)\.(\w+)\(`).FindAllStringSubmatch(string(text), -1) {
			require.Contains(t, slices.Concat(Commands, redislease.Commands), strings.ToLower(found[1]), path)
			sent++
		}
	}
	require.Positive(t, sent)
}

// TestChoosingHasTheHash: the vectors on the page are right.
func TestChoosingHasTheHash(t *testing.T) {
	t.Parallel()
	vectors, err := os.ReadFile("testdata/index.tsv")
	require.NoError(t, err)
	rows := docsRows(docsSection(t, "docs/choosing.md", "### The hash"))
	require.Greater(t, len(rows), 5)
	for _, row := range rows {
		key := strings.Trim(strings.TrimSuffix(row[0], " (UTF-8)"), "`")
		if key == "(empty)" {
			key = ""
		}
		hash := strings.Trim(row[1], "`")
		says(t, "segment/testdata/index.tsv", string(vectors), fmt.Sprintf("\n%x\t%s\t", key, hash))
		for i, n := range []int{16, 100, MaxSegments} {
			require.Equal(t, strconv.Itoa(Index(key, n)), row[2+i], "docs/choosing.md, The hash: %q of %d", key, n)
		}
	}
}

// TestStockPageNamesTests: what is said to be tested is, in files that exist.
func TestStockPageNamesTests(t *testing.T) {
	t.Parallel()
	names := regexp.MustCompile("`([a-z_*]+_test\\.go)`").FindAllStringSubmatch(docsSection(t, "docs/stock.md", "## What is promised"), -1)
	require.NotEmpty(t, names)
	for _, name := range names {
		files, err := filepath.Glob(name[1])
		require.NoError(t, err)
		require.NotEmpty(t, files, "docs/stock.md, What is promised: %s", name[1])
	}
}

// TestPagesHaveTheConstants: numbers in sentences.
func TestPagesHaveTheConstants(t *testing.T) {
	t.Parallel()
	const stock, protocol, choosing = "docs/stock.md", "docs/stock-protocol.md", "docs/choosing.md"
	for _, c := range []struct {
		page, text string
		holds      bool
	}{
		{stock, "they go back within 30 s", lockedFor == 30*time.Second},
		{stock, "Up to 64 lines", MaxLines == 64},
		{stock, "they are held for 5 s", partLasts == 5*time.Second},
		{stock, "up to 1,000 of one process", maxFlight == 1000},
		{stock, "Each is 128 bytes at most", MaxID == 128},
		{stock, "with over a million orders on record", maxOnRecord == 1_000_000},
		{stock, "twice a second", verifyEvery == time.Second/2},
		{stock, "at least a minute", MinRemember == time.Minute},
		{protocol, "up to 1,000 orders", maxFlight == 1000},
		{protocol, "(as 64-bit hashes, up to a million)", maxOnRecord == 1_000_000},
		{protocol, "A part lasts 5 s", partLasts == 5*time.Second},
		{protocol, "for at most 4 s while it holds other parts", waitsInAttempt == 4*time.Second},
		{protocol, "more than half a minute after its attempt", 6*partLasts == time.Minute/2},
		{protocol, "after 20 minutes or when", noteTrust == 20*time.Minute},
		{protocol, "writes it, for two hours", noteLife == 2*time.Hour},
		{choosing, "wait two hours", noteLife == 2*time.Hour},
	} {
		says(t, c.page, docsPage(t, c.page), c.text)
		require.True(t, c.holds, "%s: %q", c.page, c.text)
	}
	says(t, "scripts/parts.lua", source("parts"), "local late = 6 * lasts")
	says(t, "scripts/books.lua", source("books"), "'LIMIT', 0, 128")
	says(t, protocol, docsPage(t, protocol), "128 at most")
}

// TestStockPageHasTheAnswers carries out the page's table: each call in each state of an order.
func TestStockPageHasTheAnswers(t *testing.T) {
	t.Parallel()
	s := loaded(t, Config{Segments: 2}, 1000)
	ctx := t.Context()
	reserveFor := func(ttl time.Duration) func(o Order) error {
		return func(o Order) error {
			_, err := s.Reserve(ctx, o, ttl)
			return err
		}
	}
	deductIt := func(o Order) error {
		_, err := s.Deduct(ctx, o)
		return err
	}
	states := []func(o Order) error{ // in the order of the columns
		func(Order) error { return nil },
		deductIt,
		reserveFor(time.Hour),
		func(o Order) error { return errors.Join(deductIt(o), s.Return(ctx, o)) },
		func(o Order) error {
			err := reserveFor(time.Millisecond)(o)
			time.Sleep(2 * time.Millisecond) // the server's clock has gone on, too
			return err
		},
	}
	calls := map[string]func(o Order) error{
		"`Deduct`":  deductIt,
		"`Reserve`": reserveFor(time.Hour),
		"`Confirm`": func(o Order) error {
			_, err := s.Confirm(ctx, o)
			return err
		},
		"`Cancel`": func(o Order) error { return s.Cancel(ctx, o) },
		"`Return`": func(o Order) error { return s.Return(ctx, o) },
	}
	sentinels := map[string]error{
		"`ErrReserved`": ErrReserved, "`ErrReturned`": ErrReturned, "`ErrExpired`": ErrExpired, "`ErrUnknownOrder`": ErrUnknownOrder,
		"`ErrConfirmed`": ErrConfirmed,
	}
	rows := docsRows(docsSection(t, "docs/stock.md", "## The life of an order"))
	require.Len(t, rows, len(calls))
	for _, row := range rows {
		call := calls[row[0]]
		require.NotNil(t, call, row[0])
		for i, state := range states {
			o := Order{ID: fmt.Sprintf("%s in state %d", row[0], i), User: "u", Quantity: 1}
			require.NoError(t, state(o))
			cell, _, _ := strings.Cut(row[i+1], ",")
			if want, isError := sentinels[cell]; isError {
				require.ErrorIs(t, call(o), want, "docs/stock.md, The life of an order: %s, column %d", row[0], i+1)
				continue
			}
			require.NotContains(t, cell, "Err")
			require.NoError(t, call(o), "docs/stock.md, The life of an order: %s, column %d", row[0], i+1)
		}
	}
}
