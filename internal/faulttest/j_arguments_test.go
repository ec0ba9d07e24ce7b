package faulttest

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/coordinator"
	"github.com/go-leasehold/leasehold/internal/faults"
	"github.com/go-leasehold/leasehold/internal/redistest"
)

// refusedOption is an option out of its limits, and what its error has to name: the value and the limit.
type refusedOption struct {
	option coordinator.Option
	says   []string
}

var refusedOptions = []refusedOption{
	{coordinator.WithTTL(0), []string{"WithTTL", "0s", "100ms", "24h"}},
	{coordinator.WithTTL(-time.Second), []string{"WithTTL", "-1s", "100ms"}},
	{coordinator.WithTTL(99 * time.Millisecond), []string{"99ms", "100ms"}},
	{coordinator.WithTTL(999 * time.Microsecond), []string{"999µs", "100ms"}},
	{coordinator.WithTTL(24*time.Hour + 1), []string{"24h0m0.000000001s", "24h0m0s"}},
	{coordinator.WithTTL(math.MaxInt64), []string{"2562047h", "24h"}},
	{coordinator.WithRetention(-1), []string{"WithRetention", "-1ns", "negative"}},
	{coordinator.WithHandoff(0, time.Second), []string{"WithHandoff", "budget of 0", "1 and 65536"}},
	{coordinator.WithHandoff(-1, time.Second), []string{"budget of -1", "1 and 65536"}},
	{coordinator.WithHandoff(65_537, time.Second), []string{"65537", "65536"}},
	{coordinator.WithHandoff(1, -time.Second), []string{"WithHandoff", "-1s", "negative"}},
	{coordinator.WithKeyPrefix("a{b"), []string{"WithKeyPrefix", "a{b", "one {tag}"}},
	{coordinator.WithKeyPrefix("a}b"), []string{"a}b", "one {tag}"}},
	{coordinator.WithKeyPrefix("{}"), []string{"{}", "not empty"}},
	{coordinator.WithKeyPrefix("}a{"), []string{"}a{", "one {tag}"}},
	{coordinator.WithKeyPrefix("{a}{b}"), []string{"{a}{b}", "one {tag}"}},
	{coordinator.WithLogger(nil), []string{"WithLogger", "nil"}},
	{coordinator.WithMaxWaiters(-1), []string{"WithMaxWaiters", "-1", "negative"}},
	{coordinator.WithUnavailableAfter(-time.Second), []string{"WithUnavailableAfter", "-1s", "negative"}},
	{coordinator.WithTokenRetention(-time.Hour), []string{"WithTokenRetention", "-1h", "the limit of 30s"}},
	{coordinator.WithTokenRetention(999 * time.Millisecond), []string{"999ms", "the limit of 30s"}},
}

// Bad input: options of New out of their limits. The error names value and limit, and nobody is called.
func TestOptionOutOfItsLimitsIsRefusedBeforeAnythingIsSent(t *testing.T) {
	t.Parallel()
	proxy := faults.NewProxy(t, redistest.Shared(t).Addr())
	for _, r := range refusedOptions {
		c, err := coordinator.New(at(proxy.Addr()), r.option)
		require.Nil(t, c)
		names(t, err, r.says)
	}
	for option, change := range map[string]func(o *rueidis.ClientOption){
		"InitAddress":           func(o *rueidis.ClientOption) { o.InitAddress = nil },
		"ReplicaOnly":           func(o *rueidis.ClientOption) { o.ReplicaOnly = true },
		"SendToReplicas":        func(o *rueidis.ClientOption) { o.SendToReplicas = func(rueidis.Completed) bool { return true } },
		"ConnLifetime":          func(o *rueidis.ClientOption) { o.ConnLifetime = time.Hour },
		"DisableAutoPipelining": func(o *rueidis.ClientOption) { o.DisableAutoPipelining = true },
		"Standalone":            func(o *rueidis.ClientOption) { o.Standalone.EnableRedirect = true },
	} {
		redis := at(proxy.Addr())
		change(&redis)
		c, err := coordinator.New(redis)
		require.Nil(t, c)
		names(t, err, []string{option})
	}
	require.Zero(t, proxy.Accepted(), "nobody was called")
	require.NotPanics(t, func() {
		c, err := coordinator.NewWithStore(nil)
		require.Nil(t, c)
		names(t, err, []string{"store", "nil"})
	})
}

// names requires that an error is one of bad input and says all of it.
func names(t *testing.T, err error, says []string) {
	t.Helper()
	require.ErrorIs(t, err, coordinator.ErrInvalid)
	for _, s := range says {
		require.ErrorContains(t, err, s)
	}
}

// Bad input: arguments of calls. The error names value and limit, and nothing is sent.
func TestArgumentOutOfItsLimitsIsRefusedBeforeAnythingIsSent(t *testing.T) {
	t.Parallel()
	proxy := faults.NewProxy(t, redistest.Shared(t).Addr())
	net := listen(proxy)
	c := steady(t, proxy.Addr(), ours(time.Second)...)
	ctx := context.Background()
	long := strings.Repeat("k", coordinator.MaxKey+1)
	limits := []string{"100ms", "24h"}
	var none context.Context // nil
	for name, call := range map[string]struct {
		fn   func() error
		says []string
	}{
		"no key":              {func() error { return lock(ctx, c.Mutex("")) }, []string{"key", "empty"}},
		"long key":            {func() error { return lock(ctx, c.Mutex(long)) }, []string{"65537 bytes", "65536"}},
		"TTL 0":               {func() error { return lock(ctx, c.Mutex("k", coordinator.TTL(0))) }, append(limits, "TTL(0s)")},
		"TTL below 0":         {func() error { return lock(ctx, c.Mutex("k", coordinator.TTL(-1))) }, append(limits, "-1ns")},
		"short TTL":           {func() error { return lock(ctx, c.Mutex("k", coordinator.TTL(99*time.Millisecond))) }, append(limits, "99ms")},
		"long TTL":            {func() error { return lock(ctx, c.Mutex("k", coordinator.TTL(25*time.Hour))) }, append(limits, "25h")},
		"MaxHold 0":           {func() error { return lock(ctx, c.Mutex("k", coordinator.MaxHold(0))) }, []string{"MaxHold(0s)", "positive"}},
		"MaxHold below 0":     {func() error { return lock(ctx, c.Mutex("k", coordinator.MaxHold(-time.Second))) }, []string{"-1s", "positive"}},
		"EndWith nil":         {func() error { return lock(ctx, c.Mutex("k", coordinator.EndWith(none))) }, []string{"EndWith", "nil"}},
		"Lock(nil)":           {func() error { return lock(none, c.Mutex("k")) }, []string{"context", "nil"}},
		"TryLock(nil)":        {func() error { _, err := c.Mutex("k").TryLock(none); return err }, []string{"context", "nil"}},
		"TryLockFor(nil)":     {func() error { _, err := c.Mutex("k").TryLockFor(none, 1); return err }, []string{"context", "nil"}},
		"TryLockFor below 0":  {func() error { _, err := c.Mutex("k").TryLockFor(ctx, -time.Second); return err }, []string{"-1s", "negative"}},
		"Do(nil)":             {func() error { return c.Mutex("k").Do(none, func(context.Context) error { return nil }) }, []string{"context", "nil"}},
		"Do without work":     {func() error { return c.Mutex("k").Do(ctx, nil) }, []string{"function"}},
		"LockAll of nothing":  {func() error { _, err := c.LockAll(ctx); return err }, []string{"LockAll"}},
		"LockAll, one empty":  {func() error { _, err := c.LockAll(ctx, "a", ""); return err }, []string{"key", "empty"}},
		"LockAll, one long":   {func() error { _, err := c.LockAll(ctx, "a", long); return err }, []string{"65537 bytes", "65536"}},
		"LockAll(nil)":        {func() error { _, err := c.LockAll(none, "a"); return err }, []string{"context", "nil"}},
		"Inspect no key":      {func() error { _, err := c.Inspect(ctx, ""); return err }, []string{"key", "empty"}},
		"Inspect(nil)":        {func() error { _, err := c.Inspect(none, "k"); return err }, []string{"context", "nil"}},
		"ForceUnlock no key":  {func() error { return c.ForceUnlock(ctx, "") }, []string{"key", "empty"}},
		"ForceUnlock long":    {func() error { return c.ForceUnlock(ctx, long) }, []string{"65537 bytes", "65536"}},
		"ForceUnlock(nil)":    {func() error { return c.ForceUnlock(none, "k") }, []string{"context", "nil"}},
		"Check(nil)":          {func() error { _, err := c.Check(none); return err }, []string{"context", "nil"}},
		"an error is no more": {func() error { return lock(ctx, c.Mutex("", coordinator.TTL(0))) }, []string{"key", "empty"}},
	} {
		before := net.count(notPing)
		var err error
		require.NotPanics(t, func() { err = call.fn() }, name)
		require.ErrorIs(t, err, coordinator.ErrInvalid, name)
		require.Less(t, len(err.Error()), 500, "%s: the error is as long as the key", name)
		for _, says := range call.says {
			require.ErrorContains(t, err, says, name)
		}
		require.Equal(t, before, net.count(notPing), "%s: %v was sent", name, last(net, notPing))
	}
	hold := grab(t, c.Mutex("x", coordinator.MaxHold(time.Hour)))
	names(t, hold.Extend(0), []string{"Extend(0s)", "positive"})
	names(t, hold.Extend(-time.Second), []string{"Extend(-1s)", "positive"})
	require.NoError(t, hold.Unlock())
	var nothing *coordinator.Hold
	require.ErrorIs(t, nothing.Unlock(), coordinator.ErrNotHeld)
	require.ErrorIs(t, nothing.Extend(time.Second), coordinator.ErrNotHeld)
	var nothings *coordinator.Holds
	require.ErrorIs(t, nothings.Unlock(), coordinator.ErrNotHeld)
}

func lock(ctx context.Context, m *coordinator.Mutex) error {
	hold, err := m.Lock(ctx)
	if err == nil {
		return errors.Join(errors.New("it was locked"), hold.Unlock())
	}
	return err
}

func init() {
	roles["nil closer"] = func(args []string) {
		c, err := coordinator.New(patient(args[0]), ours(time.Second)...)
		exitIf(err)
		var none context.Context
		faults.Say("closed %t", errors.Is(c.Close(none), coordinator.ErrInvalid))
		faults.Say("alive %t", c.Mutex("nil closer").Do(context.Background(), func(context.Context) error { return nil }) == nil)
		exitIf(shut(c))
	}
}

// Bad input: Close without a context, in a process of its own: what it does wrong it does in another goroutine.
func TestCloseWithoutAContextIsRefused(t *testing.T) {
	t.Parallel()
	child := faults.StartChild(t, "nil closer", redistest.Shared(t).Addr())
	require.Equal(t, "true", child.Expect(t, "closed"), "it is refused as any nil context")
	require.Equal(t, "true", child.Expect(t, "alive"), "and did not close")
	require.NoError(t, child.Wait())
}
