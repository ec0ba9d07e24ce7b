package torture

import (
	"strconv"
	"strings"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/internal/history"
	"github.com/go-leasehold/leasehold/internal/redistest"
)

// someServer is one of the servers.
func (d *director) someServer() *redistest.Server { return oneOf(d.rnd, d.w.servers()...) }

// cut ends connections of the processes at a server, one or all.
func (d *director) cut() {
	s := d.someServer()
	var ids []string
	for _, kind := range []string{"NORMAL", "PUBSUB"} {
		message := s.Do(d.t, "CLIENT", "LIST", "TYPE", kind)
		list, err := message.ToString()
		require.NoError(d.t, err)
		for line := range strings.Lines(list) {
			if id, rest, ok := strings.Cut(strings.TrimPrefix(line, "txt:"), " "); ok && strings.Contains(rest, "name="+clientName+" ") {
				ids = append(ids, strings.TrimPrefix(id, "id="))
			}
		}
	}
	if len(ids) > 0 && d.rnd.IntN(3) > 0 {
		ids = []string{oneOf(d.rnd, ids...)}
	}
	for _, id := range ids {
		_, _ = s.DoErr("CLIENT", "KILL", "ID", id) // it may be gone by itself
	}
	d.once("killed connections")
}

// stall has a server leave its clients waiting, or those that write.
func (d *director) stall() {
	length := d.between(10*time.Millisecond, d.order.TTL)
	d.someServer().Do(d.t, "CLIENT", "PAUSE", strconv.FormatInt(length.Milliseconds(), 10), oneOf(d.rnd, "ALL", "WRITE"))
	d.once("CLIENT PAUSE")
}

// forget has a server forget the scripts it knows.
func (d *director) forget() {
	d.someServer().Do(d.t, "SCRIPT", "FLUSH")
	d.once("SCRIPT FLUSH")
}

// hang stops a server for less time than would make others take it for dead.
func (d *director) hang() {
	s := d.someServer()
	s.Pause()
	d.endTroubles(time.Now().Add(d.between(10*time.Millisecond, d.w.patience())))
	s.Resume()
	d.once("hung servers")
}

// remove deletes the key of a lock that is in use, whoever has it.
func (d *director) remove() {
	const script = `local counter = redis.call('GET', KEYS[2])
if redis.call('DEL', KEYS[1]) == 0 then return '' end
return string.match(counter or '', '^%d+') or ''`
	key := oneOf(d.rnd, d.order.Places...).key()
	e := history.Event{What: history.Deleted, Key: key, Call: history.Now()}
	message, err := d.w.primary(key).DoErr("EVAL", script, "2", "lock:"+key, "lock:~token{lock:"+key+"}lock:"+key)
	e.Return = history.Now()
	if err != nil {
		return // its slot is moving, or the server has just become a replica
	}
	text, err := message.ToString()
	require.NoError(d.t, err)
	if text == "" {
		return // nobody had it
	}
	e.Token, err = strconv.ParseUint(text, 10, 64)
	require.NoError(d.t, err)
	d.done = append(d.done, e)
	d.once("deleted keys")
}

// calm is for how long a server that has lost something grants nothing to anybody, so that tokens tell what was before: they are the
// server's time in µs, and no process of a run gets so far ahead of it.
const calm = 20 * time.Millisecond

// flush empties the primaries, all data and scripts.
func (d *director) flush() {
	for _, s := range d.w.primaries() {
		e := history.Event{What: history.Shaken, Call: history.Now()}
		for _, command := range [][]string{
			{"MULTI"},
			{"FLUSHALL"},
			{"CLIENT", "PAUSE", strconv.FormatInt(calm.Milliseconds(), 10), "WRITE"},
			{"EXEC"},
		} {
			if _, err := s.DoErr(command...); err != nil {
				return // it has just become a replica: nothing was done
			}
		}
		e.Token = uint64(time.Now().UnixMicro() + calm.Microseconds()/2)
		e.Return = history.Now()
		d.done = append(d.done, e)
	}
	d.once("FLUSHALL")
}

// restart kills a server that keeps nothing, and starts it again.
func (d *director) restart() {
	s := d.someServer()
	e := history.Event{What: history.Shaken, Call: history.Now()}
	s.Kill()
	e.Token = uint64(time.Now().UnixMicro() + calm.Microseconds()/2)
	d.endTroubles(time.Now().Add(d.between(calm, d.order.TTL/2)))
	s.Restart()
	e.Return = history.Now()
	d.done = append(d.done, e)
	d.once("restarted servers")
}
