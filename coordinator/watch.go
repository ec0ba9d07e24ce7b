package coordinator

import "time"

const (
	// watchEvery is how often the watchdog asks whether the machine slept.
	watchEvery = time.Second
	// When everything has to be looked at, examineBatch keys are every
	// examineEvery: 10,000 a second, so that a lost connection does not become
	// a storm on the server that just came back.
	examineBatch = 100
	examineEvery = 10 * time.Millisecond
)

// watch is the coordinator's one goroutine: it notices suspensions of the
// machine, tells of abandoned holds, sees whether telemetry is wanted, and has
// everything looked at when notices were lost. Renewals are not its work: each actor's timer asks for them, and
// the store sends together what comes together.
func (c *Coordinator) watch() {
	ticker := time.NewTicker(watchEvery)
	defer ticker.Stop()
	for {
		select {
		case <-c.stop:
			return
		case <-ticker.C:
			c.checkSleep()
			c.tellAbandoned()
			c.tel.Look()
		case <-c.examiner:
			c.examineAll()
		}
	}
}

// checkSleep asks whether the machine was suspended, and tells every key if it
// was, whoever noticed it.
func (c *Coordinator) checkSleep() {
	c.clock.look(true)
	if lost := c.clock.lost.Load(); lost != c.sleptThrough {
		c.sleptThrough = lost
		c.tickAll()
	}
}

// tickAll makes every actor look at the clock: timers stand still while the
// machine is suspended, so those that run are late.
func (c *Coordinator) tickAll() {
	c.actors.Range(func(_ string, a *actor) bool {
		a.tick()
		return true
	})
}

// examineAll has every key looked at, those that are held first.
func (c *Coordinator) examineAll() {
	var holders, others []*actor
	c.actors.Range(func(_ string, a *actor) bool {
		if a.holding() {
			holders = append(holders, a)
		} else {
			others = append(others, a)
		}
		return true
	})
	for i, a := range append(holders, others...) {
		if i%examineBatch == 0 && i > 0 {
			select {
			case <-c.stop:
				return
			case <-time.After(examineEvery):
			}
			c.checkSleep()
		}
		a.examine()
	}
}

func (a *actor) holding() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.inUse()
}
