package main

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"time"

	"github.com/redis/rueidis"
)

// meterLimit bounds what the parent asks of Redis.
const meterLimit = 30 * time.Second

// meter reads off how many commands Redis has run.
type meter struct{ redis rueidis.Client }

func newMeter(addr string) (*meter, error) {
	option := rueidis.ClientOption{InitAddress: []string{addr}, DisableCache: true, ConnWriteTimeout: meterLimit}
	option.Dialer.KeepAlive = -1 // no pings of its own among the commands that are counted
	redis, err := rueidis.NewClient(option)
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", addr, err)
	}
	return &meter{redis}, nil
}

func (m *meter) close() { m.redis.Close() }

// stats is what the server has run so far; -1 where it doesn't tell.
type stats struct {
	commands int64 // those inside scripts too
	scripts  int64
}

var (
	commandsField = regexp.MustCompile(`total_commands_processed:(\d+)`)
	scriptsField  = regexp.MustCompile(`cmdstat_(?:evalsha|eval):calls=(\d+)`)
)

func (m *meter) stats() stats {
	return stats{
		commands: total(m.info("stats"), commandsField),
		scripts:  total(m.info("commandstats"), scriptsField),
	}
}

func (m *meter) info(section string) string {
	ctx, cancel := context.WithTimeout(context.Background(), meterLimit)
	defer cancel()
	text, err := m.redis.Do(ctx, m.redis.B().Info().Section(section).Build()).ToString()
	if err != nil {
		return "" // not every server has every section, and not every user may ask
	}
	return text
}

// total adds up the numbers that the field has in INFO's text; -1 if there is none.
func total(text string, field *regexp.Regexp) int64 {
	sum := int64(-1)
	for _, match := range field.FindAllStringSubmatch(text, -1) {
		n, err := strconv.ParseInt(match[1], 10, 64)
		if err != nil {
			return -1
		}
		sum = max(sum, 0) + n
	}
	return sum
}
