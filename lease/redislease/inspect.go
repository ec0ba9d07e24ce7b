package redislease

import (
	"fmt"
	"strconv"
	"strings"
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
	info.Kind = map[string]lease.Kind{"mutex": lease.Mutex, "rw": lease.ReadWrite}[layout]
	token, err := values[1].AsInt64()
	if err != nil {
		return info, fmt.Errorf("redislease: inspect: the token: %w", err)
	}
	info.Token = uint64(max(0, token))
	if info.Holders, err = parseHolders(values[2]); err != nil {
		return info, fmt.Errorf("redislease: inspect: %w", err)
	}
	places, err := values[3].AsStrSlice()
	if err != nil {
		return info, fmt.Errorf("redislease: inspect: the queue: %w", err)
	}
	for i := 0; i+1 < len(places); i += 2 {
		if waiter, ok := parsePlace(places[i], places[i+1]); ok {
			info.Waiters = append(info.Waiters, waiter)
		}
	}
	return info, nil
}

// parseHolders reads owner, mode, ms left, since in µs, trace, and so on.
func parseHolders(message rueidis.RedisMessage) (holders []lease.Holder, err error) {
	values, err := message.ToArray()
	if err != nil || len(values)%5 != 0 {
		return nil, fmt.Errorf("%d values for the holders, not five each: %w", len(values), err)
	}
	for ; len(values) > 0; values = values[5:] {
		var h lease.Holder
		h.Owner, err = values[0].ToString()
		if err != nil {
			return nil, fmt.Errorf("a holder's owner: %w", err)
		}
		h.Mode = lease.Exclusive
		if mode, _ := values[1].ToString(); mode == "shared" {
			h.Mode = lease.Shared
		}
		left, err := values[2].AsInt64()
		if err != nil {
			return nil, fmt.Errorf("a holder's time to live: %w", err)
		}
		h.TTL = time.Duration(max(0, left)) * time.Millisecond
		if start, err := values[3].AsInt64(); err == nil && start > 0 {
			h.Since = time.UnixMicro(start)
		}
		h.Trace = parseTraceOf(values[4])
		holders = append(holders, h)
	}
	return holders, nil
}

// parsePlace reads a place of the queue, such as W30000/64:host-1-a:7.
func parsePlace(member, score string) (waiter lease.Waiter, ok bool) {
	terms, owner, ok := strings.Cut(member, ":")
	if !ok || len(terms) < 2 || owner == "" {
		return waiter, false
	}
	waiter.Owner, waiter.Mode = owner, lease.Exclusive
	if terms[0] == 'R' || terms[0] == 'r' {
		waiter.Mode = lease.Shared
	}
	ttl, _, _ := strings.Cut(terms[1:], "/")
	ms, err := strconv.ParseInt(ttl, 10, 64)
	if err != nil || ms <= 0 || ms > int64(1<<63-1)/int64(time.Millisecond) {
		return waiter, false
	}
	waiter.TTL = time.Duration(ms) * time.Millisecond
	if arrival, err := strconv.ParseFloat(score, 64); err == nil && arrival > 0 && arrival < 1<<62 {
		waiter.Since = time.UnixMicro(int64(arrival))
	}
	return waiter, true
}
