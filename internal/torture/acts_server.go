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
func (d *director) someServer() *redistest.Server { return oneOf(d.rnd, d.w.Servers()...) }

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
	d.count("killed connections", "%d at %s", len(ids), s.Addr())
}

// stall has a server leave its clients waiting, or those that write.
func (d *director) stall() {
	length := d.between(10*time.Millisecond, d.order.TTL)
	s, what := d.someServer(), oneOf(d.rnd, "ALL", "WRITE")
	s.Do(d.t, "CLIENT", "PAUSE", strconv.FormatInt(length.Milliseconds(), 10), what)
	d.count("CLIENT PAUSE", "%s at %s, %v", what, s.Addr(), length)
}

// forget has a server forget the scripts it knows.
func (d *director) forget() {
	s := d.someServer()
	s.Do(d.t, "SCRIPT", "FLUSH")
	d.count("SCRIPT FLUSH", "at %s", s.Addr())
}

// hang stops a server for less time than would make others take it for dead.
func (d *director) hang() {
	s := d.someServer()
	s.Pause()
	d.note("%s hangs", s.Addr())
	d.endTroubles(time.Now().Add(d.between(10*time.Millisecond, downAfter/2)))
	s.Resume()
	d.count("hung servers", "%s", s.Addr())
}

// remove deletes the key of a lock that is in use, whoever has it.
func (d *director) remove() {
	const script = `local counter = redis.call('GET', KEYS[2])
if redis.call('DEL', KEYS[1]) == 0 then return '' end
return string.match(counter or '', '^%d+') or ''`
	key := oneOf(d.rnd, d.order.Places...).key()
	server := d.w.primary(key)
	if server == nil {
		return
	}
	e := history.Event{What: history.Deleted, Key: key, Call: history.Now()}
	message, err := server.DoErr("EVAL", script, "2", "lock:"+key, "lock:~token{lock:"+key+"}lock:"+key)
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
	d.count("deleted keys", "%s, newest token %d", key, e.Token)
}

// calm is for how long a server that has lost something grants nothing to anybody, so that leases from before and after can be told
// by their tokens.
const calm = 20 * time.Millisecond

// flush empties the primaries, all data and scripts.
func (d *director) flush() {
	for _, s := range d.w.Primaries() {
		call := history.Now()
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
		d.shaken("FLUSHALL", call, time.Now())
	}
}
