// Package archtest holds the test that keeps imports pointing one way. It has no code of its own.
package archtest

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

const module = "github.com/go-leasehold/leasehold"

// rule is one of depguard's, as far as it is read here.
type rule struct {
	ListMode string   `yaml:"list-mode"`
	Allow    []string `yaml:"allow"`
}

// permits tells whether the rule lets a package be imported. A path that ends in "$" is exact, any other a prefix.
func (r rule) permits(path string, standard bool) bool {
	for _, allowed := range r.Allow {
		exact, isExact := strings.CutSuffix(allowed, "$")
		switch {
		case allowed == "$gostd":
			if standard {
				return true
			}
		case isExact && path == exact, !isExact && strings.HasPrefix(path, allowed):
			return true
		}
	}
	return false
}

// goPackage is one of `go list`'s.
type goPackage struct {
	ImportPath string
	Name       string
	Imports    []string
	Standard   bool
}

// The layers stand in .golangci.yaml, for the linter; this test reads them there and holds to them without it.
func TestImportsPointDownOnly(t *testing.T) {
	t.Parallel()
	root := filepath.Join("..", "..")
	rules := layers(t, filepath.Join(root, ".golangci.yaml"))
	standard := map[string]bool{}
	for _, p := range list(t, root, "std") {
		standard[p.ImportPath] = true
	}
	checked := map[string]bool{}
	for _, p := range list(t, root, "./...") {
		folder, _ := strings.CutPrefix(p.ImportPath, module+"/")
		if strings.HasPrefix(folder, "internal/") {
			continue
		}
		layer, ok := rules[folder]
		require.True(t, ok, "%s has no rule in .golangci.yaml that says what it may import", folder)
		checked[folder] = true
		for _, imported := range p.Imports {
			require.True(t, layer.permits(imported, standard[imported]), "%s imports %s: see its rule in .golangci.yaml", folder, imported)
		}
	}
	require.Contains(t, checked, "lease")
}

func TestARuleWithoutTheDollarIsAPrefix(t *testing.T) {
	t.Parallel()
	r := rule{Allow: []string{"$gostd", "example.com/a$", "example.com/b"}}
	require.True(t, r.permits("fmt", true))
	require.True(t, r.permits("example.com/a", false))
	require.False(t, r.permits("example.com/a/c", false))
	require.True(t, r.permits("example.com/b/c", false))
	require.False(t, r.permits("example.com/c", false))
}

// layers reads the rules that are named after a folder.
func layers(t *testing.T, path string) map[string]rule {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	var config struct {
		Linters struct {
			Settings struct {
				Depguard struct {
					Rules map[string]rule
				}
			}
		}
	}
	require.NoError(t, yaml.Unmarshal(text, &config))
	rules := config.Linters.Settings.Depguard.Rules
	for name, r := range rules {
		if r.ListMode != "strict" {
			delete(rules, name)
		}
	}
	require.NotEmpty(t, rules)
	return rules
}

func list(t *testing.T, dir string, patterns ...string) []goPackage {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", append([]string{"list", "-e", "-json=ImportPath,Name,Imports,Standard"}, patterns...)...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOWORK=off")
	output, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	var packages []goPackage
	for decoder := json.NewDecoder(output); ; {
		var p goPackage
		err := decoder.Decode(&p)
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		packages = append(packages, p)
	}
	require.NoError(t, cmd.Wait())
	return packages
}
