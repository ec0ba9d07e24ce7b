package faulttest

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/coordinator"
	"github.com/go-leasehold/leasehold/internal/redistest"
)

// A3: the callers of one process share its lease, and one mutex object, but not the lock.
func TestCallersThatShareOneLeaseExcludeEachOther(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	order := crowdOrder{
		Addr: s.Addr(), Goroutines: 100, TTL: 30 * time.Second, CountIn: true, Lasting: lasting(2*time.Second, time.Minute),
	}
	reports := runCrowd(t, 2, order, time.Sleep)
	requireExact(t, s, reports)
	for _, r := range reports {
		require.EqualValues(t, 1, r.Most, "in the section at a time")
	}
	message := s.Do(t, "GET", insideKey)
	text, err := message.ToString()
	require.NoError(t, err)
	require.Equal(t, "0", text)
}

// A5: a thousand other keys come and go; the held one is not forgotten, and they don't wait for it.
func TestOtherKeysNeitherEvictTheHeldOneNorWaitForIt(t *testing.T) {
	t.Parallel()
	const others = 1000
	s := redistest.Start(t)
	c := process(t, s.Addr())
	elsewhere := process(t, s.Addr())
	hold := take(t, c.Mutex("k"))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	here, there := lockLater(ctx, c.Mutex("k")), lockLater(ctx, elsewhere.Mutex("k"))
	awaitQueue(t, c, "k", 1)

	for round := range 2 { // once one by one, once all of them held together
		var holds []*coordinator.Hold
		for i := range others {
			h, err := c.Mutex(fmt.Sprintf("other-%d", i)).TryLock(t.Context())
			require.NoError(t, err, "nobody has this key")
			if round == 0 {
				require.NoError(t, h.Unlock())
			} else {
				holds = append(holds, h)
			}
		}
		require.NoError(t, hold.Err())
		_, err := c.Mutex("k").TryLock(t.Context())
		require.ErrorIs(t, err, coordinator.ErrNotAcquired)
		for _, h := range holds {
			require.NoError(t, h.Unlock())
		}
	}
	require.Empty(t, here)
	require.Empty(t, there)
	require.NoError(t, hold.Unlock())
	newest := hold.Token()
	for range 2 { // which of them is first is a matter of turns
		var got outcome
		select {
		case got = <-here:
		case got = <-there:
		case <-time.After(hangs):
			require.FailNow(t, "a waiter was forgotten")
		}
		require.NoError(t, got.err)
		require.Greater(t, got.hold.Token(), newest)
		newest = got.hold.Token()
		require.NoError(t, got.hold.Unlock())
	}
}

// A5: names that fall together wherever names are hashed or cut are two locks: those of one slot of a cluster, those
// that share a tag, those that look like a helper's name.
func TestDifferentNamesAreDifferentLocks(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	p1, p2 := process(t, s.Addr()), process(t, s.Addr())
	names := []string{
		"{tag}a", "{tag}b", "tag", "a", "a ", " a", "A", "a\x00", "a\n", "a:1", "a:2", "{}a", "}a{", "a{b}c", "a}b{c",
		"~queue{a}lock:a", "~token{a}lock:a", "~inbox:x", "~~inbox:x", "lock:a", "mode", "7", "\u00e9", "e\u0301", string([]byte{0xff}),
	}
	seen := map[uint16]string{}
	for i := 0; len(names) < 40; i++ {
		name := fmt.Sprintf("n%d", i)
		slot := crc16("lock:"+name) % 16384
		if twin, ok := seen[slot]; ok {
			names = append(names, name, twin)
		}
		seen[slot] = name
	}
	var holds []*coordinator.Hold
	for _, name := range names {
		hold, err := p1.Mutex(name).TryLock(t.Context())
		require.NoError(t, err, "%q", name)
		holds = append(holds, hold)
	}
	for i, name := range names {
		_, err := p2.Mutex(name).TryLock(t.Context())
		require.ErrorIs(t, err, coordinator.ErrNotAcquired, "%q", name)
		require.NoError(t, holds[i].Unlock())
		other, err := p2.Mutex(name).TryLock(t.Context())
		require.NoError(t, err, "%q", name)
		holds[i] = other
	}
	var errs []error
	for _, hold := range holds {
		errs = append(errs, hold.Unlock())
	}
	require.NoError(t, errors.Join(errs...))
}

// crc16 is what decides on a name's slot (XMODEM).
func crc16(name string) uint16 {
	var crc uint16
	for _, b := range []byte(name) {
		crc ^= uint16(b) << 8
		for range 8 {
			if crc&0x8000 != 0 {
				crc = crc<<1 ^ 0x1021
			} else {
				crc <<= 1
			}
		}
	}
	return crc
}
