package main

import (
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

// composition is what is looked at of compose.yaml.
type composition struct {
	Services map[string]struct {
		Image    string
		Ports    []string
		Profiles []string
		Command  []string
		Volumes  []string
		Configs  []struct{ Source, Target string }
	}
	Configs map[string]struct{ Content string }
}

func readCompose(t *testing.T) (c composition, text string) {
	t.Helper()
	body, err := os.ReadFile("compose.yaml")
	require.NoError(t, err)
	require.NoError(t, yaml.Unmarshal(body, &c))
	return c, string(body)
}

// What is started is named by its version, and only this machine gets at it.
func TestComposeIsPinnedAndLocal(t *testing.T) {
	t.Parallel()
	c, _ := readCompose(t)
	require.Len(t, c.Services, 4)
	for name, s := range c.Services {
		require.Regexp(t, `^[a-z/]+:v?\d+\.\d+\.\d+$`, s.Image, name)
		require.NotEmpty(t, s.Ports, name)
		for _, p := range s.Ports {
			require.Regexp(t, `^127\.0\.0\.1:(\d+):(\d+)$`, p, name)
			parts := strings.Split(p, ":")
			require.Equal(t, parts[1], parts[2], name)
		}
		metrics := name == "prometheus" || name == "grafana"
		require.Equal(t, metrics, slices.Equal(s.Profiles, []string{"metrics"}), name)
	}
}

// The ports that the comments, the program and its documentation name are there.
func TestComposePortsAreThoseThatAreNamed(t *testing.T) {
	t.Parallel()
	c, text := readCompose(t)
	published := map[string]string{}
	for name, s := range c.Services {
		for _, p := range s.Ports {
			published[strings.Split(p, ":")[1]] = name
		}
	}
	require.Equal(t, map[string]string{
		"6379": "redis", "16686": "jaeger", "4317": "jaeger", "4318": "jaeger", "9090": "prometheus", "3000": "grafana",
	}, published)
	s, err := parse(nil, io.Discard)
	require.NoError(t, err)
	for name, said := range map[string]string{"compose.yaml": text, "-trace-url": s.traceURL, "main.go": read(t, "main.go")} {
		for _, port := range regexp.MustCompile(`(?:localhost|127\.0\.0\.1):(\d+)`).FindAllStringSubmatch(said, -1) {
			require.Contains(t, published, port[1], name)
		}
	}
	require.Contains(t, text, "go run ./examples/tracing -redis localhost:6379")
	require.Contains(t, text, "OTEL_EXPORTER_OTLP_ENDPOINT=http://localhost:4318")
}

// What is mounted is there, and what is written into containers is YAML that leads to it.
func TestComposeFilesAreThere(t *testing.T) {
	t.Parallel()
	c, _ := readCompose(t)
	targets := map[string]string{}
	for name, s := range c.Services {
		for _, v := range s.Volumes {
			from, to, _ := strings.Cut(v, ":")
			_, err := os.Stat(filepath.FromSlash(from))
			require.NoError(t, err, name)
			require.True(t, strings.HasSuffix(to, ":ro"), name)
			targets[strings.TrimSuffix(to, ":ro")] = name
		}
		for _, conf := range s.Configs {
			require.Contains(t, c.Configs, conf.Source, name)
			targets[conf.Target] = name
		}
	}
	require.Contains(t, c.Services["prometheus"].Command, "--web.enable-otlp-receiver")
	require.Contains(t, targets, "/etc/prometheus/prometheus.yml")
	require.Contains(t, c.Services["prometheus"].Command, "--config.file=/etc/prometheus/prometheus.yml")
	var prometheus struct {
		RuleFiles []string `yaml:"rule_files"`
	}
	require.NoError(t, yaml.Unmarshal([]byte(c.Configs["prometheus"].Content), &prometheus))
	require.Len(t, prometheus.RuleFiles, 1)
	require.Equal(t, "prometheus", targets[prometheus.RuleFiles[0]])
	var sources struct {
		Datasources []struct{ Type, URL string }
	}
	require.NoError(t, yaml.Unmarshal([]byte(c.Configs["datasources"].Content), &sources))
	require.Len(t, sources.Datasources, 2)
	for _, d := range sources.Datasources {
		require.Contains(t, c.Services, d.Type)
		require.Regexp(t, "^http://"+d.Type+`:\d+$`, d.URL)
	}
	var dashboards struct {
		Providers []struct{ Options struct{ Path string } }
	}
	require.NoError(t, yaml.Unmarshal([]byte(c.Configs["dashboards"].Content), &dashboards))
	require.Len(t, dashboards.Providers, 1)
	require.Equal(t, "grafana", targets[dashboards.Providers[0].Options.Path])
}

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	require.NoError(t, err)
	return string(text)
}
