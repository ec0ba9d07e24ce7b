package coordinator

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/lease"
)

// Rule 4: what comes for a ticket that nobody here knows is answered by its
// release.

func TestRule4NoticeForAnUnknownTicketIsAnsweredByRelease(t *testing.T) {
	for _, typ := range []lease.EventType{lease.Granted, lease.Wanted} {
		t.Run(typ.String(), func(t *testing.T) {
			scripted(t, func(t *testing.T, s *script, c *Coordinator) {
				s.tell(lease.Event{Type: typ, Key: "k", Ticket: 77, First: 1, Last: 10})
				r := s.next(lease.Release)
				require.Equal(t, lease.Ticket(77), r.Ticket)
				require.Nil(t, r.Next)
				r.end()
				s.quiet(time.Minute)
				require.Empty(t, c.Snapshot().Keys)
				require.EqualValues(t, 1, c.Snapshot().Stats.Orphans)
			})
		})
	}
}

func TestRule4NoticeForAnUnknownTicketBesideOneInUse(t *testing.T) {
	for _, typ := range []lease.EventType{lease.Granted, lease.Wanted} {
		t.Run(typ.String(), func(t *testing.T) {
			scripted(t, func(t *testing.T, s *script, c *Coordinator) {
				a := lockOf(t, c.Mutex("k"))
				s.next(lease.Acquire).held(1, 100)
				s.tell(lease.Event{Type: typ, Key: "k", Ticket: 77, First: 101, Last: 110})
				require.Equal(t, lease.Ticket(77), s.next(lease.Release).Ticket)
				require.True(t, a.holds().Valid())
				require.False(t, s.key(c).Wanted)
			})
		})
	}
}

func TestRule4NoticeForATicketWhoseReleaseWasAnswered(t *testing.T) {
	scripted(t, func(t *testing.T, s *script, c *Coordinator) {
		a := lockOf(t, c.Mutex("k"))
		q := s.next(lease.Acquire)
		q.held(1, 100)
		unlock(t, a.holds())
		s.next(lease.Release).end()
		s.quiet(time.Second)
		s.grant(q.Ticket, 101, 200)
		require.Equal(t, q.Ticket, s.next(lease.Release).Ticket)
	}, WithRetention(0))
}

func TestRule4GrantByReplyAfterAllWaitersWentIsReleased(t *testing.T) {
	scripted(t, func(t *testing.T, s *script, c *Coordinator) {
		a := begin(t, func() (*Hold, error) { return c.Mutex("k").TryLockFor(t.Context(), time.Second) })
		q := s.next(lease.Acquire)
		time.Sleep(1500 * time.Millisecond)
		a.fails(ErrUnavailable)
		q.held(1, 100)
		require.Equal(t, q.Ticket, s.next(lease.Release).Ticket)
	}, WithRetention(0))
}

// reSent are the ways in which an acquire of a ticket is sent more than once.
var reSent = map[string]func(t *testing.T, s *script) lease.Ticket{
	"never": func(_ *testing.T, s *script) lease.Ticket {
		q := s.next(lease.Acquire)
		q.waits()
		return q.Ticket
	},
	"by the actor": func(_ *testing.T, s *script) lease.Ticket {
		s.next(lease.Acquire).fail(errStore)
		q := s.within(time.Second, lease.Acquire)
		q.waits()
		return q.Ticket
	},
	"by the store": func(_ *testing.T, s *script) lease.Ticket {
		q := s.next(lease.Acquire)
		r := q.waiting()
		r.Resent = true
		q.reply(r)
		return q.Ticket
	},
}

func TestRule4NoticeDuringTheReleaseReleasesOnceMoreIfAnAcquireWasReSent(t *testing.T) {
	for how, ask := range reSent {
		for _, typ := range []lease.EventType{lease.Granted, lease.Wanted} {
			t.Run(fmt.Sprintf("%s, %v", how, typ), func(t *testing.T) {
				scripted(t, func(t *testing.T, s *script, c *Coordinator) {
					ctx, cancel := context.WithCancel(t.Context())
					a := begin(t, func() (*Hold, error) { return c.Mutex("k").Lock(ctx) })
					ticket := ask(t, s)
					cancel()
					a.fails(context.Canceled)
					r := s.next(lease.Release)
					require.Equal(t, ticket, r.Ticket)
					event := lease.Event{Type: typ, Key: "k", Ticket: ticket, First: 1, Last: 9}
					s.tell(event)
					r.end()
					if how == "never" {
						s.quiet(time.Minute)
						return
					}
					r = s.next(lease.Release)
					require.Equal(t, ticket, r.Ticket)
					s.tell(event)
					r.end()
					s.quiet(time.Minute) // once more, not for ever
				})
			})
		}
	}
}

func TestRule4ReSentRejoinIsReleasedOnceMore(t *testing.T) {
	scripted(t, func(t *testing.T, s *script, c *Coordinator) {
		a := lockOf(t, c.Mutex("k"))
		q := s.next(lease.Acquire)
		q.reply(lease.Reply{Status: lease.Held, First: 1, Last: 100, Contended: true})
		ctx, cancel := context.WithCancel(t.Context())
		b := begin(t, func() (*Hold, error) { return c.Mutex("k").Lock(ctx) })
		unlock(t, a.holds())
		s.next(lease.Release).fail(errStore)
		r := s.within(time.Second, lease.Release)
		ticket := r.Next.Ticket
		r.waits()
		cancel()
		b.fails(context.Canceled)
		r = s.next(lease.Release)
		require.Equal(t, ticket, r.Ticket)
		s.grant(ticket, 101, 200)
		r.end()
		require.Equal(t, ticket, s.next(lease.Release).Ticket)
	}, WithHandoff(1, time.Second))
}

func TestRule4QuietReleaseIsSentOnce(t *testing.T) {
	for how, ask := range reSent {
		t.Run(how, func(t *testing.T) {
			scripted(t, func(t *testing.T, s *script, c *Coordinator) {
				ctx, cancel := context.WithCancel(t.Context())
				a := begin(t, func() (*Hold, error) { return c.Mutex("k").Lock(ctx) })
				ask(t, s)
				cancel()
				a.fails(context.Canceled)
				s.next(lease.Release).end()
				s.quiet(time.Minute)
			})
		})
	}
}

// Rule 5: at most one command of a key is on its way. The scripted store fails
// every test in which there are two.

func TestRule5OneCommandAtATime(t *testing.T) {
	tracked(t, func(t *testing.T, s *script, c *Coordinator) {
		ctx, cancel := context.WithCancel(t.Context())
		a := begin(t, func() (*Hold, error) { return c.Mutex("k").Lock(ctx) })
		q := s.next(lease.Acquire)
		cancel()
		a.fails(context.Canceled)
		b := lockOf(t, c.Mutex("k"))
		s.emit(lease.Wanted, "k", q.Ticket)
		s.emit(lease.Wanted, "k", 99)
		s.emit(lease.Changed, "k", 0)
		s.tell(lease.Event{Type: lease.Connected})
		s.quiet(10 * time.Second) // the looks that are due meanwhile wait as well
		q.waits()
		r := s.next(lease.Release)
		require.Equal(t, lease.Ticket(99), r.Ticket)
		s.grant(q.Ticket, 1, 2)
		b.waits() // the grant is from before the looks: too old to be used
		s.emit(lease.Changed, "k", 0)
		s.quiet(time.Second)
		r.end()
		r = s.next(lease.Release)
		require.Equal(t, q.Ticket, r.Ticket)
		require.NotNil(t, r.Next)
		s.quiet(10 * time.Second)
		r.held(3, 100)
		r = s.next(lease.Release) // too late for use, too
		s.quiet(10 * time.Second)
		s.emit(lease.Changed, "k", 0)
		r.held(101, 200)
		require.Equal(t, lease.Release, s.next(lease.Release).Op)
	}, WithUnavailableAfter(0))
}

func TestRule5BusyGoesAtAnyTime(t *testing.T) {
	scripted(t, func(t *testing.T, s *script, c *Coordinator) {
		a := lockOf(t, c.Mutex("k"))
		q := s.next(lease.Acquire)
		q.held(1, 100)
		s.after(time.Second, lease.Renew) // is on its way
		s.tell(lease.Event{Type: lease.Wanted, Key: "k", Ticket: q.Ticket, Asker: "other:5"})
		require.Equal(t, "other:5", s.next(lease.Busy).Asker)
		unlock(t, a.holds())
		s.quiet(time.Second) // the release waits for the renewal's answer
	})
}

// Rule 6: when notices come again, everything is looked at.

func TestRule6WaiterLooksAgainWhenNoticesComeAgain(t *testing.T) {
	scripted(t, func(t *testing.T, s *script, c *Coordinator) {
		a := lockOf(t, c.Mutex("k"))
		q := s.next(lease.Acquire)
		q.waits()
		s.tell(lease.Event{Type: lease.Disconnected})
		s.quiet(100 * time.Millisecond)
		s.tell(lease.Event{Type: lease.Connected})
		look := s.next(lease.Acquire)
		require.Equal(t, q.Ticket, look.Ticket)
		look.held(1, 100)
		a.holds()
	})
}

func TestRule6HolderLooksAgainWhenNoticesComeAgain(t *testing.T) {
	for _, idle := range []bool{false, true} {
		t.Run(fmt.Sprintf("idle=%v", idle), func(t *testing.T) {
			scripted(t, func(t *testing.T, s *script, c *Coordinator) {
				a := lockOf(t, c.Mutex("k"))
				s.next(lease.Acquire).held(1, 100)
				if idle {
					unlock(t, a.holds())
				}
				time.Sleep(10 * time.Millisecond)
				s.tell(lease.Event{Type: lease.Connected})
				s.next(lease.Renew).reply(lease.Reply{Status: lease.Held})
				s.quiet(10 * time.Millisecond) // once
			})
		})
	}
}

func TestRule6WhatIsOnItsWayIsLookedAtWhenItsReplyIsIn(t *testing.T) {
	t.Run("acquire, still waiting", func(t *testing.T) {
		scripted(t, func(t *testing.T, s *script, c *Coordinator) {
			lockOf(t, c.Mutex("k"))
			q := s.next(lease.Acquire)
			s.tell(lease.Event{Type: lease.Connected})
			s.quiet(10 * time.Millisecond)
			q.waits()
			s.next(lease.Acquire).waits()
			s.quiet(10 * time.Millisecond)
		})
	})
	t.Run("acquire, granted", func(t *testing.T) {
		scripted(t, func(t *testing.T, s *script, c *Coordinator) {
			lockOf(t, c.Mutex("k"))
			q := s.next(lease.Acquire)
			s.tell(lease.Event{Type: lease.Connected})
			q.held(1, 100)
			s.next(lease.Renew).reply(lease.Reply{Status: lease.Held})
			s.quiet(10 * time.Millisecond)
		})
	})
	t.Run("look", func(t *testing.T) {
		scripted(t, func(t *testing.T, s *script, c *Coordinator) {
			lockOf(t, c.Mutex("k"))
			s.next(lease.Acquire).waits()
			q := s.after(time.Second, lease.Acquire)
			s.tell(lease.Event{Type: lease.Connected})
			q.waits()
			s.next(lease.Acquire).waits()
		})
	})
	t.Run("renewal", func(t *testing.T) {
		scripted(t, func(t *testing.T, s *script, c *Coordinator) {
			lockOf(t, c.Mutex("k"))
			s.next(lease.Acquire).held(1, 100)
			q := s.after(time.Second, lease.Renew)
			s.tell(lease.Event{Type: lease.Connected})
			q.reply(lease.Reply{Status: lease.Held})
			s.next(lease.Renew)
		})
	})
	for _, status := range []lease.Status{lease.Waiting, lease.Held} {
		t.Run("rejoin, "+status.String(), func(t *testing.T) {
			scripted(t, func(t *testing.T, s *script, c *Coordinator) {
				a := lockOf(t, c.Mutex("k"))
				s.next(lease.Acquire).reply(lease.Reply{Status: lease.Held, First: 1, Last: 100, Contended: true})
				lockOf(t, c.Mutex("k"))
				unlock(t, a.holds())
				r := s.next(lease.Release)
				s.tell(lease.Event{Type: lease.Connected})
				if status == lease.Held {
					r.held(101, 200)
					s.next(lease.Renew)
				} else {
					r.waits()
					s.next(lease.Acquire)
				}
			}, WithHandoff(1, time.Second))
		})
	}
}

func TestRule6HoldersAreLookedAtFirstAndAtABoundedRate(t *testing.T) {
	const n = 3 * examineBatch / 2
	scripted(t, func(t *testing.T, s *script, c *Coordinator) {
		for i := range 2 * n { // every other one is held
			lockOf(t, c.Mutex(fmt.Sprint(i)))
			if q := s.next(lease.Acquire); i%2 == 0 {
				q.held(1, 100)
			} else {
				q.waits()
			}
		}
		begin := time.Now()
		s.tell(lease.Event{Type: lease.Connected})
		time.Sleep(100 * time.Millisecond)
		synctest.Wait()
		for i := range 2 * n {
			q := s.take()
			require.NotNil(t, q, "%d were looked at", i)
			want := lease.Renew
			if i >= n {
				want = lease.Acquire
			}
			require.Equal(t, want, q.Op, "the %dth", i)
			require.Equal(t, time.Duration(i/examineBatch)*examineEvery, q.at.Sub(begin), "the %dth", i)
			q.obey()
		}
	})
}
