package segment

import (
	"fmt"
	"strings"

	"github.com/go-leasehold/leasehold/coordinator"
)

// Commands are those that this package sends beside redislease.Commands, in the
// form in which ACL rules have them: redislease.ACLRule(user, prefix,
// segment.Commands...) makes a user who may do both. A user who may not is told by
// the first use of a stock, before anything is changed.
var Commands = []string{"hget", "hincrby", "hlen", "hscan", "hsetnx", "unlink", "zrangebyscore"}

// rights finds out, once, whether the scripts may run all that they need to.
func (s *Stock) rights() error {
	s.allowing.Lock()
	defer s.allowing.Unlock()
	if s.allowed {
		return nil
	}
	a := s.run(call{script: rightsScript, keys: []string{s.homes[0].keys.of("rights")}})[0]
	if a.err != nil {
		return a.err
	}
	refused, err := a.message.AsStrSlice()
	if err != nil || len(refused)%2 != 0 {
		return fmt.Errorf("%w: rights: %w", coordinator.ErrUnavailable, errUnreadable)
	}
	if len(refused) > 0 {
		var commands []string
		for i := 0; i < len(refused); i += 2 {
			commands = append(commands, refused[i])
		}
		return fmt.Errorf("%w: scripts may not call %s on %s*: %s (segment.Commands has what the user needs)",
			coordinator.ErrUnavailable, strings.Join(commands, ", "), s.settings.KeyPrefix, refused[1])
	}
	s.allowed = true
	return nil
}
