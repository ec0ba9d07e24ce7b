package childproc

import (
	"errors"

	"golang.org/x/sys/unix"
)

// stopped tells whether every thread of a child has stopped, and leaves that to be asked again.
func stopped(pid int) (bool, error) {
	var info unix.Siginfo
	err := unix.Waitid(unix.P_PID, pid, &info, unix.WSTOPPED|unix.WNOHANG|unix.WNOWAIT, nil)
	switch {
	case errors.Is(err, unix.ECHILD): // it was waited for a moment ago: Stop sees that it has ended
		return false, nil
	case errors.Is(err, unix.EINTR):
		return false, nil
	}
	return info.Signo != 0, err
}
