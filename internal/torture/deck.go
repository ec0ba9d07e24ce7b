package torture

import "github.com/go-leasehold/leasehold/internal/redistest"

// deck is what can happen, some of it more often than the rest: each card once before the next round.
func (d *director) deck() []func(*director) {
	deck := append(wayActs(),
		(*director).kill, (*director).pause, (*director).blink, (*director).blink,
		(*director).cut, (*director).cut, (*director).stall, (*director).forget, (*director).hang,
		(*director).remove, (*director).remove, (*director).flush,
	)
	switch d.w.Kind() {
	case redistest.Sentinel:
		return append(deck, (*director).killPrimary, (*director).killReplica, (*director).hangPrimary, (*director).failOver)
	case redistest.Cluster:
		return append(deck, (*director).killPrimary, (*director).killReplica, (*director).hangPrimary, (*director).failOver,
			(*director).moveSlot, (*director).moveSlot, (*director).moveSlot)
	default:
		return append(deck, (*director).restart)
	}
}
