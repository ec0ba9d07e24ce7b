package segment

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"
	"weak"

	"github.com/go-leasehold/leasehold/coordinator"
)

const (
	// noteLife is how long the number of segments stays written down.
	noteLife = 2 * time.Hour

	// noteTrust is how long a process goes without asking again. It is also how
	// old a note may become before it is written anew. So a note is written at
	// most once in that time however many processes there are (each of them is
	// told, and reads it again), and lives for 80 minutes after the last use.
	noteTrust = 20 * time.Minute

	// fewFleets is how many are kept without looking for those that nobody needs.
	fewFleets = 64
)

// allFleets has the fleets of each coordinator, for as long as that lives. Nothing
// in it may lead back to the coordinator, or it would live for ever.
var allFleets sync.Map // of weak.Pointer[coordinator.Coordinator]: *fleets

// fleets are those of one coordinator, by the name of the locks.
type fleets struct {
	mu     sync.Mutex
	of     map[string]*fleet
	claims map[string]claim // in place of notes, where the store is not Redis
	room   int              // when there are as many fleets, those that nobody needs go
}

// claim is a note within this process.
type claim struct {
	n     int
	until time.Time
}

func fleetsOf(c *coordinator.Coordinator) *fleets {
	key := weak.Make(c)
	if f, ok := allFleets.Load(key); ok {
		return f.(*fleets)
	}
	f, found := allFleets.LoadOrStore(key, &fleets{of: map[string]*fleet{}, claims: map[string]claim{}, room: fewFleets})
	if !found {
		runtime.AddCleanup(c, func(key weak.Pointer[coordinator.Coordinator]) { allFleets.Delete(key) }, key)
	}
	return f.(*fleets)
}

// get returns the fleet of a name. Handles may use one that was put aside
// meanwhile; they then merely ask for themselves.
func (f *fleets) get(name string) *fleet {
	f.mu.Lock()
	defer f.mu.Unlock()
	if one := f.of[name]; one != nil {
		return one
	}
	if len(f.of)+len(f.claims) >= f.room {
		f.tidy()
		f.room = max(fewFleets, 2*(len(f.of)+len(f.claims)))
	}
	one := &fleet{all: f, name: name, questions: map[int]*question{}}
	f.of[name] = one
	return one
}

// tidy forgets the fleets of which nothing is known, and the claims that are over.
func (f *fleets) tidy() {
	for name, one := range f.of {
		if one.idle() {
			delete(f.of, name)
		}
	}
	now := time.Now()
	for name, c := range f.claims {
		if now.After(c.until) {
			delete(f.claims, name)
		}
	}
}

// claim is what the script does, within the process.
func (f *fleets) claim(name string, n int) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now()
	if c, ok := f.claims[name]; ok && c.n != n && now.Before(c.until) {
		return c.n
	}
	f.claims[name] = claim{n, now.Add(noteLife)}
	return n
}

// fleet is what a process knows of those who use locks of one name. It has a
// timer and a watch only while it knows something.
type fleet struct {
	all  *fleets
	name string
	n    atomic.Int64 // the number of segments that all have; 0 if it has to be asked for

	mu        sync.Mutex
	changes   uint64            // raised by whatever makes n unknown
	questions map[int]*question // on their way, by the number of segments
	timer     *time.Timer
	stop      func() // of the watch
}

// question is whether the fleet has a number of segments. err is written before
// done is closed.
type question struct {
	done chan struct{}
	err  error
}

func (f *fleet) idle() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.n.Load() == 0 && len(f.questions) == 0
}

// forget is called when what is known may not be right any more.
func (f *fleet) forget() {
	f.mu.Lock()
	f.n.Store(0)
	f.changes++
	if f.timer != nil {
		f.timer.Stop()
	}
	stop := f.stop
	f.timer, f.stop = nil, nil
	f.mu.Unlock()
	if stop != nil {
		stop()
	}
}

// changed returns a number for learn.
func (f *fleet) changed() uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.changes
}

// watch sees to it that forget is called when the note changes, where that can be
// known, and returns a number for learn.
func (f *fleet) watch(c *coordinator.Coordinator, key string) (changes uint64, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.stop == nil {
		f.stop, err = c.Watch(key, f.forget)
	}
	return f.changes, err
}

// learn keeps what is known from now on, unless it was changed since watch.
func (f *fleet) learn(n int, changes uint64) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.changes != changes {
		return false
	}
	f.n.Store(int64(n))
	if f.timer != nil {
		f.timer.Stop()
	}
	f.timer = time.AfterFunc(noteTrust, f.forget)
	return true
}

// ask returns the question whether the fleet has n segments, which is shared by
// all who ask while it is on its way.
func (f *fleet) ask(c *coordinator.Coordinator, n int) *question {
	f.mu.Lock()
	defer f.mu.Unlock()
	if q := f.questions[n]; q != nil {
		return q
	}
	q := &question{done: make(chan struct{})}
	f.questions[n] = q
	go func() { // ends with the store's answer, or with our patience
		q.err = f.answer(c, n)
		f.mu.Lock()
		delete(f.questions, n)
		unknown := f.n.Load() == 0 && len(f.questions) == 0
		f.mu.Unlock()
		if unknown {
			f.forget() // a watch may be left
		}
		close(q.done)
	}()
	return q
}
