package torture

// deck is what can happen, some of it more often than the rest: each card once before the next round.
func (d *director) deck() []func(*director) {
	return append(wayActs(),
		(*director).kill, (*director).pause, (*director).blink, (*director).blink,
		(*director).cut, (*director).cut, (*director).stall, (*director).forget, (*director).hang,
		(*director).remove, (*director).remove, (*director).flush, (*director).restart,
	)
}
