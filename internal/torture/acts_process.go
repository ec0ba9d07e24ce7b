package torture

import (
	"time"

	"github.com/go-leasehold/leasehold/internal/faults"
	"github.com/go-leasehold/leasehold/internal/history"
)

// someone is one of the processes.
func (d *director) someone() *actor { return oneOf(d.rnd, d.cast...) }

// kill kills a process and starts another one in its place.
func (d *director) kill() {
	a := d.someone()
	e := history.Event{What: history.Killed, Process: a.number, Call: history.Now()}
	a.Kill()
	e.Return = history.Now()
	d.done = append(d.done, e)
	d.start(a) // which says that it is ready when it is: the ways may be out of order
	d.count("kills", "%d, then %d", e.Process, a.number)
}

// pause stops a process for longer than its leases live.
func (d *director) pause() { d.pauseFor("long pauses", d.order.TTL*time.Duration(11+d.rnd.IntN(6))/10) }

// blink stops a process for a moment.
func (d *director) blink() { d.pauseFor("short pauses", d.order.TTL*time.Duration(d.rnd.IntN(4))/10) }

func (d *director) pauseFor(name string, length time.Duration) {
	a := d.someone()
	child, number := a.Child, a.number
	select {
	case <-child.Done():
		return
	default:
	}
	child.Stop()
	e := history.Event{What: history.Paused, Process: number, Call: history.Now()}
	d.endTroubles(time.Now().Add(length))
	e.Return = history.Now()
	child.Cont()
	d.done = append(d.done, e)
	d.count(name, "of %d, %v", number, length)
}

// ways are some of the proxies: those of one process, those to one server, or one alone.
func (d *director) ways() []*faults.Proxy {
	a, s := d.someone(), oneOf(d.rnd, d.w.Servers()...)
	var ways []*faults.Proxy
	switch d.rnd.IntN(3) {
	case 0:
		return append(ways, a.ways[s.Addr()])
	case 1:
		for _, server := range d.w.Servers() {
			ways = append(ways, a.ways[server.Addr()])
		}
	case 2:
		for _, other := range d.cast {
			ways = append(ways, other.ways[s.Addr()])
		}
	}
	return ways
}

// between is a time by chance.
func (d *director) between(low, high time.Duration) time.Duration {
	return low + time.Duration(d.rnd.Int64N(int64(high-low)))
}

// on does something to some ways, and takes it back later.
func on(name string, longest time.Duration, begin, end func(d *director, p *faults.Proxy)) func(*director) {
	return func(d *director) {
		ways := d.ways()
		for _, p := range ways {
			begin(d, p)
		}
		d.begin(name, d.between(longest/20, longest), func() {
			for _, p := range ways {
				end(d, p)
			}
		})
	}
}

// wayActs are what befalls ways. The longest time is in TTLs of the run: one second.
func wayActs() []func(*director) {
	direction := func(d *director) faults.Direction { return oneOf(d.rnd, faults.Up, faults.Down) }
	return []func(*director){
		on("delays", 2*time.Second,
			func(d *director, p *faults.Proxy) {
				p.SetDelay(d.between(0, 60*time.Millisecond), d.between(0, 60*time.Millisecond))
			},
			func(_ *director, p *faults.Proxy) { p.SetDelay(0, 0) }),
		on("jitters", 2*time.Second,
			func(d *director, p *faults.Proxy) {
				p.SetJitter(d.between(1, 60*time.Millisecond), d.between(1, 60*time.Millisecond))
			},
			func(_ *director, p *faults.Proxy) { p.SetJitter(0, 0) }),
		on("throttles", 2*time.Second,
			func(d *director, p *faults.Proxy) { p.Throttle(20_000+d.rnd.IntN(100_000), 20_000+d.rnd.IntN(100_000)) },
			func(_ *director, p *faults.Proxy) { p.Throttle(0, 0) }),
		on("black holes", 2*time.Second,
			func(_ *director, p *faults.Proxy) { p.BlackHole(true) },
			func(_ *director, p *faults.Proxy) { p.BlackHole(false) }),
		on("one-way holes", 2*time.Second,
			func(d *director, p *faults.Proxy) { p.Hold(direction(d), true) },
			func(_ *director, p *faults.Proxy) { p.BlackHole(false) }),
		on("one-way losses", time.Second,
			func(d *director, p *faults.Proxy) { p.Swallow(direction(d), true) },
			func(_ *director, p *faults.Proxy) { p.Swallow(faults.Up, false); p.Swallow(faults.Down, false) }),
		on("half-open connections", time.Second,
			func(_ *director, p *faults.Proxy) { p.HalfOpen(true); p.Reset() },
			func(_ *director, p *faults.Proxy) { p.HalfOpen(false) }),
		on("refused connections", time.Second,
			func(_ *director, p *faults.Proxy) { p.Refuse(true); p.Reset() },
			func(_ *director, p *faults.Proxy) { p.Refuse(false) }),
		func(d *director) {
			for _, p := range d.ways() {
				p.Reset()
			}
			d.count("resets", "")
		},
		func(d *director) {
			lose := oneOf(d.rnd, (*faults.Proxy).DropReply, (*faults.Proxy).DropReplySilently)
			for _, p := range d.ways() {
				lose(p, faults.Is(oneOf(d.rnd, "EVALSHA", "EVALSHA", "EVAL", "HMGET")))
			}
			d.count("lost replies", "")
		},
	}
}
