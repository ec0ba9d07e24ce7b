package faulttest

import (
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-leasehold/leasehold/internal/faults"
)

// verb names the script that a command on its way to Redis runs: "acquire", "renew" (a downgrade looks the same),
// "release", "annotate", or "" for anything else. Scripts are told apart by their arguments, as their headers have them.
func verb(cmd []string) string {
	const keys, common = 3, 7
	if len(cmd) < 3+keys+common || !strings.HasPrefix(strings.ToUpper(cmd[0]), "EVAL") || cmd[2] != "3" {
		return ""
	}
	return map[int]string{2: "annotate", 4: "renew", 8: "acquire", 10: "release"}[len(cmd)-3-keys-common]
}

// nameIn is the lock's name in Redis that a script's command is about, and ownerIn the lease.
func nameIn(cmd []string) string  { return cmd[3] }
func ownerIn(cmd []string) string { return cmd[3+3+7] }

// is returns a match for the commands that run the named script.
func is(script string) func(cmd []string) bool {
	return func(cmd []string) bool { return verb(cmd) == script }
}

// wire notes the commands that pass a proxy.
type wire struct {
	mu   sync.Mutex
	seen []passed
}

type passed struct {
	cmd []string
	at  time.Time
}

// listen notes every command from now on that p forwards, and passes it on.
func listen(p *faults.Proxy) *wire {
	w := &wire{}
	p.OnCommand(func(cmd []string) faults.Action {
		w.note(cmd)
		return faults.Pass
	})
	return w
}

func (w *wire) note(cmd []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.seen = append(w.seen, passed{slices.Clone(cmd), time.Now()})
}

// all are the commands so far that match likes (nil: every one).
func (w *wire) all(match func(cmd []string) bool) []passed {
	w.mu.Lock()
	defer w.mu.Unlock()
	var found []passed
	for _, p := range w.seen {
		if match == nil || match(p.cmd) {
			found = append(found, p)
		}
	}
	return found
}

func (w *wire) count(match func(cmd []string) bool) int { return len(w.all(match)) }
