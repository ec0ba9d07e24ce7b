//go:build !unix

package childproc

import "errors"

// Stop is not possible on this system.
func (p *Process) Stop() error { return errors.ErrUnsupported }

// Cont is not possible on this system.
func (p *Process) Cont() error { return errors.ErrUnsupported }
