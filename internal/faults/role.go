package faults

import (
	"bufio"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/go-leasehold/leasehold/internal/redistest"
)

// roleVariable tells a copy of the test binary what it is to be.
const roleVariable = "LEASEHOLD_TEST_ROLE"

// Roles are the programs that a test binary can also be, by name. A role gets the arguments of [StartChild]
// and ends its process by returning.
type Roles map[string]func(args []string)

// Main is redistest.Main for packages whose tests start children of themselves:
//
//	func TestMain(m *testing.M) { faults.Main(m, faults.Roles{"holder": holder}) }
func Main(m *testing.M, roles Roles, options ...goleak.Option) {
	RunRole(roles)
	redistest.Main(m, options...)
}

// RunRole plays the role this process was started for, and then ends it; it returns at once in the process of
// the tests themselves. It comes first in a TestMain that does not use [Main].
func RunRole(roles Roles) {
	name, ok := os.LookupEnv(roleVariable)
	if !ok {
		return
	}
	role, ok := roles[name]
	if !ok {
		fmt.Fprintf(os.Stderr, "faults: this test binary has no role %q\n", name)
		os.Exit(2)
	}
	role(os.Args[1:])
	os.Exit(0)
}

var childIO struct {
	read, write sync.Mutex
	in          *bufio.Reader
}

// Say tells the parent one line, from inside a role.
func Say(format string, args ...any) {
	line := strings.ReplaceAll(fmt.Sprintf(format, args...), "\n", " ") + "\n"
	childIO.write.Lock()
	defer childIO.write.Unlock()
	if _, err := os.Stdout.WriteString(line); err != nil {
		os.Exit(1) // the parent is gone
	}
}

// Hear waits for the parent's next line, from inside a role; false means that no more will come.
func Hear() (string, bool) {
	childIO.read.Lock()
	defer childIO.read.Unlock()
	if childIO.in == nil {
		childIO.in = bufio.NewReader(os.Stdin)
	}
	line, err := childIO.in.ReadString('\n')
	return strings.TrimSuffix(line, "\n"), err == nil
}
