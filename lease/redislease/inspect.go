package redislease

import (
	"fmt"
	"regexp"
	"strconv"
	"time"

	"github.com/redis/rueidis"

	"github.com/go-leasehold/leasehold/lease"
)

// parseInfo reads the answer of the inspect script.
func parseInfo(result rueidis.RedisResult) (info lease.Info, err error) {
	values, err := result.ToArray()
	if err != nil {
		return info, err
	}
	if len(values) != 4 {
		return info, fmt.Errorf("redislease: inspect: the script's answer has %d values, not 4", len(values))
	}
	layout, err := values[0].ToString()
	if err != nil {
		return info, fmt.Errorf("redislease: inspect: %w", err)
	}
	kind, ok := kinds[layout]
	if !ok {
		return info, fmt.Errorf("redislease: inspect: the layout %q is not known", shorten(layout))
	}
	token, err := values[1].ToInt64()
	if err == nil && token < 0 {
		err = fmt.Errorf("%d is negative", token)
	}
	if err != nil {
		return info, fmt.Errorf("redislease: inspect: the token: %w", err)
	}
	holders, err := parseHolders(values[2])
	if err != nil {
		return info, fmt.Errorf("redislease: inspect: %w", err)
	}
	waiters, err := parseQueue(values[3])
	if err != nil {
		return info, fmt.Errorf("redislease: inspect: the queue: %w", err)
	}
	if (len(holders) == 0) != (kind == 0) {
		return info, fmt.Errorf("redislease: inspect: the layout is %q, and there are %d holders", layout, len(holders))
	}
	return lease.Info{Kind: kind, Token: uint64(token), Holders: holders, Waiters: waiters}, nil
}

// kinds are what the inspect script calls the layout of a key; one that nobody holds has none.
var kinds = map[string]lease.Kind{"": 0, "mutex": lease.Mutex, "rw": lease.ReadWrite}

// parseHolders reads owner, mode, ms left, since in µs, trace, and so on.
func parseHolders(message rueidis.RedisMessage) (holders []lease.Holder, err error) {
	values, err := message.ToArray()
	if err != nil {
		return nil, fmt.Errorf("the holders: %w", err)
	}
	if len(values)%5 != 0 {
		return nil, fmt.Errorf("%d values for the holders, not five each", len(values))
	}
	for ; len(values) > 0; values = values[5:] {
		var h lease.Holder
		h.Owner, err = values[0].ToString()
		if err != nil {
			return nil, fmt.Errorf("a holder's owner: %w", err)
		}
		mode, err := values[1].ToString()
		if err != nil {
			return nil, fmt.Errorf("a holder's mode: %w", err)
		}
		switch mode {
		case "exclusive":
			h.Mode = lease.Exclusive
		case "shared":
			h.Mode = lease.Shared
		default:
			return nil, fmt.Errorf("a holder's mode: %q is none", shorten(mode))
		}
		left, err := values[2].ToInt64()
		if err != nil {
			return nil, fmt.Errorf("a holder's time to live: %w", err)
		}
		h.TTL = ofMillis(max(0, left))
		if start, err := values[3].AsInt64(); err == nil && start > 0 {
			h.Since = time.UnixMicro(start)
		}
		h.Trace = parseTraceOf(values[4])
		holders = append(holders, h)
	}
	return holders, nil
}

// parseQueue reads place, score, and so on. What is no place is left out: the scripts pass it over, too.
func parseQueue(message rueidis.RedisMessage) (waiters []lease.Waiter, err error) {
	values, err := message.ToArray()
	if err != nil {
		return nil, err
	}
	if len(values)%2 != 0 {
		return nil, fmt.Errorf("%d values, not two each", len(values))
	}
	for ; len(values) > 0; values = values[2:] {
		member, err := values[0].ToString()
		if err != nil {
			return nil, err
		}
		score, err := values[1].ToString()
		if err != nil {
			return nil, err
		}
		if waiter, ok := parsePlace(member, score); ok {
			waiters = append(waiters, waiter)
		}
	}
	return waiters, nil
}

// place is that of the scripts: see advance in functions.lua.
var place = regexp.MustCompile(`(?s)\A([A-Za-z])([0-9]+)/[0-9]+:(.+)\z`)

// parsePlace reads a place of the queue, such as W30000/64:host-1-a:7.
func parsePlace(member, score string) (waiter lease.Waiter, ok bool) {
	terms := place.FindStringSubmatch(member)
	if terms == nil {
		return waiter, false
	}
	waiter.Owner, waiter.Mode = terms[3], lease.Exclusive
	if terms[1] == "R" || terms[1] == "r" {
		waiter.Mode = lease.Shared
	}
	ms, err := strconv.ParseInt(terms[2], 10, 64)
	if err != nil || ms == 0 {
		return lease.Waiter{}, false
	}
	waiter.TTL = ofMillis(ms)
	if arrival, err := strconv.ParseFloat(score, 64); err == nil && arrival > 0 && arrival < 1<<62 {
		waiter.Since = time.UnixMicro(int64(arrival))
	}
	return waiter, true
}
