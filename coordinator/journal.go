package coordinator

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/go-leasehold/leasehold/lease"
)

// journal writes log lines on a goroutine of its own, for a logger is the
// user's code: it must not run inside an actor, nor where Redis is read.
type journal struct {
	logger  *slog.Logger
	lines   chan func(*slog.Logger)
	quit    chan struct{} // closed by end
	done    chan struct{} // closed when the goroutine has ended
	dropped atomic.Uint64
}

func newJournal(l *slog.Logger) *journal {
	j := &journal{logger: l, lines: make(chan func(*slog.Logger), 256), quit: make(chan struct{}), done: make(chan struct{})}
	go j.write() // ended by end
	return j
}

func (j *journal) write() {
	defer close(j.done)
	for {
		select {
		case line := <-j.lines:
			line(j.logger)
		case <-j.quit:
			for {
				select {
				case line := <-j.lines:
					line(j.logger)
				default:
					return
				}
			}
		}
	}
}

// end writes what is left and ends the goroutine. A logger that never returns
// does not hold it up for longer than a moment.
func (j *journal) end() {
	close(j.quit)
	select {
	case <-j.done:
	case <-time.After(closeGrace):
	}
}

// log returns a logger that writes by the journal, and never blocks.
func (j *journal) log() *slog.Logger {
	return slog.New(journalHandler{j, j.logger.Handler()})
}

// journalHandler has what a store logs written by the journal.
type journalHandler struct {
	journal *journal
	to      slog.Handler
}

// Enabled implements [slog.Handler]. It does not ask the user's handler.
func (h journalHandler) Enabled(context.Context, slog.Level) bool { return true }

// Handle implements [slog.Handler].
func (h journalHandler) Handle(ctx context.Context, r slog.Record) error {
	r = r.Clone()
	ctx = context.WithoutCancel(ctx)
	h.journal.put(func(*slog.Logger) {
		if h.to.Enabled(ctx, r.Level) {
			_ = h.to.Handle(ctx, r) // as slog does
		}
	})
	return nil
}

// WithAttrs implements [slog.Handler].
func (h journalHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return journalHandler{h.journal, h.to.WithAttrs(attrs)}
}

// WithGroup implements [slog.Handler].
func (h journalHandler) WithGroup(name string) slog.Handler {
	return journalHandler{h.journal, h.to.WithGroup(name)}
}

// put never blocks: a logger that is too slow loses lines.
func (j *journal) put(line func(*slog.Logger)) {
	select {
	case j.lines <- line:
	default:
		j.dropped.Add(1)
	}
}

func (j *journal) lost(key string, t lease.Ticket, holds int, cause error) {
	j.put(func(l *slog.Logger) {
		l.Warn("leasehold: lease lost under its holders", "key", shown(key), "ticket", t, "holds", holds, "cause", cause)
	})
}

func (j *journal) trouble(key string, op lease.Op, err error) {
	j.put(func(l *slog.Logger) {
		l.Warn("leasehold: renewal failed, trying again", "key", shown(key), "op", op, "error", err)
	})
}

func (j *journal) unreleased(key string, t lease.Ticket, err error) {
	j.put(func(l *slog.Logger) {
		l.Warn("leasehold: release failed for as long as the lease lasted", "key", shown(key), "ticket", t, "error", err)
	})
}

func (j *journal) fallback(server, what string) {
	j.put(func(l *slog.Logger) {
		l.Warn("leasehold: working with less", "server", server, "missing", what)
	})
}

func (j *journal) disconnected(err error) {
	j.put(func(l *slog.Logger) { l.Info("leasehold: connection lost", "error", err) })
}

func (j *journal) abandoned(key string, token uint64, place string) {
	if place == "" {
		place = "unknown: see WithDebug"
	}
	j.put(func(l *slog.Logger) {
		l.Error("leasehold: a hold was garbage-collected while it was held; nobody can unlock it now",
			"key", shown(key), "token", token, "locked_at", place)
	})
}
