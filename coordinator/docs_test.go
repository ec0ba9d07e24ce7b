package coordinator_test

import (
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

	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/coordinator"
	"github.com/go-leasehold/leasehold/lease/redislease"
	"github.com/go-leasehold/leasehold/rwlock"
)

// These tests hold README.md and docs/ to the code. One that fails says which
// page is to be changed.

const root = ".."

// page returns a page of the documentation.
func page(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, name))
	require.NoError(t, err)
	return string(text)
}

// block returns the first fenced block of a language.
func block(t *testing.T, name, language string) string {
	t.Helper()
	_, text, found := strings.Cut(page(t, name), "```"+language+"\n")
	require.True(t, found, "%s has no %s block", name, language)
	text, _, _ = strings.Cut(text, "```")
	return text
}

// exported returns the names that a file declares at its top, of one kind.
func exported(t *testing.T, path string, kind ast.ObjKind, begin string) (names []string) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
	require.NoError(t, err)
	for name, object := range file.Scope.Objects {
		if object.Kind == kind && strings.HasPrefix(name, begin) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	require.NotEmpty(t, names)
	return names
}

func TestOperationsHasTheACLLine(t *testing.T) {
	line := strings.TrimSpace(block(t, "docs/operations.md", "text"))
	require.Equal(t, redislease.ACLRule("leasehold", "lock:"), line, "docs/operations.md, Rights")
}

func TestReadmeAndChoosingHaveEveryOption(t *testing.T) {
	readme := page(t, "README.md")
	for _, name := range exported(t, "options.go", ast.Fun, "") {
		if ast.IsExported(name) {
			require.Contains(t, readme, "| `"+name+"(", "README.md, Options")
		}
	}
}

func TestChoosingHasEveryCall(t *testing.T) {
	choosing := page(t, "docs/choosing.md")
	for _, handle := range []reflect.Type{reflect.TypeFor[*coordinator.Mutex](), reflect.TypeFor[*rwlock.Lock]()} {
		n := 0
		for method := range handle.Methods() {
			if method.Name != "Key" {
				require.Regexp(t, "`"+method.Name+"[(`]", choosing, "docs/choosing.md, %v", handle)
				n++
			}
		}
		require.Positive(t, n)
	}
}

func TestReadmeHasEveryError(t *testing.T) {
	readme := page(t, "README.md")
	for _, name := range exported(t, "errors.go", ast.Var, "Err") {
		require.Contains(t, readme, "| `"+name+"` |", "README.md, Errors")
	}
}

func TestOperationsHasEveryProblem(t *testing.T) {
	text := page(t, "docs/operations.md")
	file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, "lease/redislease/check.go"), nil, 0)
	require.NoError(t, err)
	n := 0
	ast.Inspect(file, func(node ast.Node) bool {
		spec, ok := node.(*ast.ValueSpec)
		if !ok || !strings.HasPrefix(spec.Names[0].Name, "Problem") {
			return true
		}
		code, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
		require.NoError(t, err)
		require.Contains(t, text, "| `"+code+"` |", "docs/operations.md, Check")
		n++
		return true
	})
	require.Positive(t, n)
}

func TestOperationsHasEveryCounter(t *testing.T) {
	text := page(t, "docs/operations.md")
	for field := range reflect.TypeFor[coordinator.Stats]().Fields() {
		require.Regexp(t, "(?m)^\\| (`\\w+`, )*`"+field.Name+"`(, `\\w+`)* \\|", text, "docs/operations.md, Snapshot")
	}
	for field := range reflect.TypeFor[coordinator.Snapshot]().Fields() {
		require.Contains(t, text, "| `"+field.Name+"` |", "docs/operations.md, Snapshot")
	}
}

// TestOperationsHasEveryLogLine looks for the beginning of each.
func TestOperationsHasEveryLogLine(t *testing.T) {
	text := page(t, "docs/operations.md")
	line := regexp.MustCompile(`\.(?:Debug|Info|Warn|Error)\(\s*"leasehold: ([^";]+)`)
	n := 0
	for _, folder := range []string{"coordinator", "lease/redislease", "pubsub", "telemetry"} {
		files, err := filepath.Glob(filepath.Join(root, folder, "*.go"))
		require.NoError(t, err)
		for _, path := range files {
			if strings.HasSuffix(path, "_test.go") {
				continue
			}
			source, err := os.ReadFile(path)
			require.NoError(t, err)
			for _, found := range line.FindAllStringSubmatch(string(source), -1) {
				require.Contains(t, text, "`"+found[1], "docs/operations.md, Log lines: %s", path)
				n++
			}
		}
	}
	require.Positive(t, n)
}

func TestProtocolHasEveryScript(t *testing.T) {
	text := page(t, "docs/protocol.md")
	scripts, err := filepath.Glob(filepath.Join(root, "lease/redislease/scripts/*.lua"))
	require.NoError(t, err)
	require.NotEmpty(t, scripts)
	for _, path := range scripts {
		name := strings.TrimSuffix(filepath.Base(path), ".lua")
		if name != "prelude" && name != "functions" { // parts of the others
			require.Contains(t, text, "| `"+name+"` |", "docs/protocol.md, Scripts")
		}
	}
}

var (
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading = regexp.MustCompile(`(?m)^#+ (.+)$`)
	target  = regexp.MustCompile("`make ([a-z-]+)")
	fenced  = regexp.MustCompile("(?s)```.*?```")
)

// anchors are what links into a page can end with.
func anchors(text string) (all []string) {
	for _, found := range heading.FindAllStringSubmatch(fenced.ReplaceAllString(text, ""), -1) {
		name := regexp.MustCompile(`[^\p{L}\p{N} _-]`).ReplaceAllString(strings.ToLower(found[1]), "")
		all = append(all, strings.ReplaceAll(name, " ", "-"))
	}
	return all
}

// TestLinksLeadSomewhere looks at links within the repository, and at the
// commands of the Makefile that are named.
func TestLinksLeadSomewhere(t *testing.T) {
	makefile := page(t, "Makefile")
	pages, err := filepath.Glob(filepath.Join(root, "docs/*.md"))
	require.NoError(t, err)
	require.NotEmpty(t, pages)
	for _, name := range []string{"README.md", "CONTRIBUTING.md", "CHANGELOG.md"} {
		pages = append(pages, filepath.Join(root, name))
	}
	for _, path := range pages {
		bytes, err := os.ReadFile(path)
		require.NoError(t, err)
		text := string(bytes)
		for _, found := range link.FindAllStringSubmatch(text, -1) {
			file, anchor, _ := strings.Cut(found[1], "#")
			if strings.Contains(file, "://") {
				continue
			}
			to := path
			if file != "" {
				to = filepath.Join(filepath.Dir(path), file)
			}
			require.FileExistsf(t, maybeFolder(to), "%s links to %s", path, found[1])
			if anchor != "" {
				linked, err := os.ReadFile(to)
				require.NoError(t, err)
				require.Contains(t, anchors(string(linked)), anchor, "%s links to %s", path, found[1])
			}
		}
		for _, found := range target.FindAllStringSubmatch(text, -1) {
			require.Contains(t, makefile, "\n"+found[1]+":", "%s names make %s", path, found[1])
		}
	}
}

// TestDiagramsAreOnePiece: a semicolon ends a statement of Mermaid, also in the middle of a text, and then nothing is drawn.
func TestDiagramsAreOnePiece(t *testing.T) {
	pages, err := filepath.Glob(filepath.Join(root, "docs/*.md"))
	require.NoError(t, err)
	diagrams := 0
	for _, path := range append(pages, filepath.Join(root, "README.md")) {
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		for _, found := range regexp.MustCompile("(?s)```mermaid\n(.*?)```").FindAllStringSubmatch(string(text), -1) {
			require.NotContains(t, found[1], ";", path)
			diagrams++
		}
	}
	require.Positive(t, diagrams)
}

// maybeFolder returns a file that shows that a folder exists, or the path itself.
func maybeFolder(path string) string {
	if entries, err := os.ReadDir(path); err == nil && len(entries) > 0 {
		for _, entry := range entries {
			if !entry.IsDir() {
				return filepath.Join(path, entry.Name())
			}
		}
	}
	return path
}
