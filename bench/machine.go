package main

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"

	"github.com/go-leasehold/leasehold/bench/contender"
	"github.com/go-leasehold/leasehold/bench/result"
)

// machine tells what this runs on, as far as the system says it.
func machine(redisVersion string) result.Machine {
	m := result.Machine{CPU: runtime.GOARCH, Cores: runtime.NumCPU(), Kernel: runtime.GOOS, Go: runtime.Version(), Redis: redisVersion}
	if name := field("/proc/cpuinfo", "model name"); name != "" {
		m.CPU = name
	}
	if total, _, _ := strings.Cut(field("/proc/meminfo", "MemTotal"), " "); total != "" {
		if kib, err := strconv.ParseFloat(total, 64); err == nil {
			m.MemoryG = kib / (1 << 20)
		}
	}
	if release, err := exec.Command("uname", "-sr").Output(); err == nil {
		m.Kernel = strings.TrimSpace(string(release))
	}
	if text, err := os.ReadFile("/proc/loadavg"); err == nil {
		minute, _, _ := strings.Cut(string(text), " ")
		if load, err := strconv.ParseFloat(minute, 64); err == nil {
			m.Load = load
		}
	}
	return m
}

// field returns a field of a file of /proc, or nothing.
func field(path, name string) string {
	file, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer func() { _ = file.Close() }() // it was only read
	for lines := bufio.NewScanner(file); lines.Scan(); {
		if key, value, ok := strings.Cut(lines.Text(), ":"); ok && strings.TrimSpace(key) == name {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// participants tells who takes part, and in which version.
func participants(contenders []contender.Info) []result.Contender {
	var all []result.Contender
	for _, info := range contenders {
		all = append(all, result.Contender{
			Name: info.Name, Kind: string(info.Kind), Variant: info.Variant, About: info.About,
			Version: version(info.Module), Settings: info.Settings,
		})
	}
	return all
}

// version returns that of a module this program was built with.
func version(module string) string {
	build, ok := debug.ReadBuildInfo()
	if module == "" || !ok {
		return runtime.Version()
	}
	for _, m := range build.Deps {
		if m.Path != module {
			continue
		}
		if m.Replace != nil || m.Version == "(devel)" {
			return revision()
		}
		return fmt.Sprintf("%s %s", module, m.Version)
	}
	return "this checkout"
}

// revision is the commit of this checkout, if it is one.
func revision() string {
	out, err := exec.Command("git", "rev-parse", "--short", "HEAD").Output()
	if err != nil {
		return "this checkout"
	}
	return "commit " + strings.TrimSpace(string(out))
}
