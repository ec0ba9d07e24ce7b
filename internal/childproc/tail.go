package childproc

import "sync"

// tailSize is enough for a server's start-up lines, or for one goroutine dump of a small program.
const tailSize = 64 << 10

// Tail is a writer that keeps the end of a child's output, for the message of a failed test.
type Tail struct {
	mu  sync.Mutex
	buf []byte
}

// Write keeps p and forgets what is older than the last 64 KiB.
func (t *Tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.buf = append(t.buf, p...)
	if extra := len(t.buf) - tailSize; extra > 0 {
		t.buf = append(t.buf[:0], t.buf[extra:]...)
	}
	return len(p), nil
}

// String returns what was kept.
func (t *Tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.buf)
}
