package torture

import (
	"time"

	"github.com/go-leasehold/leasehold/internal/history"
	"github.com/go-leasehold/leasehold/internal/redistest"
)

// somePlace is the present key of a place, and the server that has it; nil: none at the moment.
func (d *director) somePlace() (key string, primary *redistest.Server) {
	key = oneOf(d.rnd, d.order.Places...).key()
	return key, d.w.primary(key)
}

// shaken notes that a server lost what it had acknowledged, or may have, until then, when nobody goes on granting what it granted. Tokens
// tell which leases are from before: they are the time in µs, by the clock of this machine.
func (d *director) shaken(name string, call int64, then time.Time) {
	token := uint64(then.UnixMicro() + calm.Microseconds()/2)
	d.done = append(d.done, history.Event{What: history.Shaken, Call: call, Return: history.Now(), Token: token, Note: name})
	d.count(name, "leases up to token %d, since %.3f ms", token, float64(call)/1e6)
}

// restart kills the only server, which keeps nothing, and starts it again.
func (d *director) restart() {
	s, call := d.someServer(), history.Now()
	s.Kill()
	dead := time.Now()
	d.endTroubles(dead.Add(d.between(calm, d.order.TTL/2)))
	d.w.Restart(s)
	d.shaken("restarted servers", call, dead)
}

// killPrimary kills a primary. Its replica, which may lack the last writes, takes over, and it comes back as a replica.
func (d *director) killPrimary() {
	_, s := d.somePlace()
	if s == nil {
		return
	}
	call := history.Now()
	s.Kill()
	dead := time.Now()
	d.w.AwaitTakeover(s)
	d.shaken("killed primaries", call, dead)
	d.w.Restart(s)
	d.recover()
}

// killReplica kills a replica, which nobody but its primary minds.
func (d *director) killReplica() {
	primaries := map[*redistest.Server]bool{}
	for _, s := range d.w.Primaries() {
		primaries[s] = true
	}
	s := d.someServer()
	if primaries[s] {
		return
	}
	s.Kill()
	d.endTroubles(time.Now().Add(d.between(0, d.order.TTL)))
	d.w.Restart(s)
	d.recover()
	d.count("killed replicas", "%s", s.Addr())
}

// hangPrimary stops a primary for so long that its replica takes over. When it goes on it takes itself for the primary, until
// it is told: for a while two servers may grant the same key.
func (d *director) hangPrimary() {
	_, s := d.somePlace()
	if s == nil {
		return
	}
	call := history.Now()
	s.Pause()
	d.w.AwaitTakeover(s)
	d.endTroubles(time.Now().Add(d.between(0, d.order.TTL)))
	s.Resume()
	d.recover()
	d.shaken("hung primaries", call, time.Now())
}

// failOver has a replica take over from a primary that lives. On a cluster nothing is lost by it; with Sentinel both take writes for
// a while, so that two servers may grant the same key.
func (d *director) failOver() {
	_, s := d.somePlace()
	if s == nil {
		return
	}
	call := history.Now()
	d.w.Failover(s)
	d.recover()
	if d.w.Kind() == redistest.Sentinel {
		d.shaken("failovers on demand", call, time.Now())
		return
	}
	d.count("failovers on demand", "from %s, since %.3f ms", s.Addr(), float64(call)/1e6)
}

// recover waits until the topology is whole: a second server that goes away meanwhile could take all data with it, which would be
// another fault.
func (d *director) recover() {
	d.endAll() // some of them would keep it from being so
	d.w.Settle()
}

// moveSlot moves the slot of a key that is in use.
func (d *director) moveSlot() {
	key, from := d.somePlace()
	if from == nil {
		return
	}
	to := oneOf(d.rnd, d.w.Primaries()...)
	if to == from {
		return
	}
	slot := redistest.SlotOf(from, "lock:"+key)
	d.note("slot %d, of %q, begins to move", slot, key)
	err := d.w.MoveSlot(slot, to, func() {
		d.endTroubles(time.Now().Add(d.between(0, 50*time.Millisecond)))
	})
	if err != nil {
		d.t.Errorf("moving the slot of %q: %v", key, err)
	}
	d.count("moved slots", "that of %q, from %s to %s", key, from.Addr(), to.Addr())
}
