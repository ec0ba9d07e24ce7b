// Package meter reads off how many commands a Redis has run, so that an example can say what its locks cost.
package meter

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"time"

	"github.com/redis/rueidis"
)

// limit bounds each wait for Redis.
const limit = 30 * time.Second

// Connect returns a client that runs nothing of its own among the commands that are counted.
func Connect(addr string) (rueidis.Client, error) {
	option := rueidis.ClientOption{InitAddress: []string{addr}, DisableCache: true, ConnWriteTimeout: limit}
	option.Dialer.KeepAlive = -1 // no pings
	redis, err := rueidis.NewClient(option)
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", addr, err)
	}
	return redis, nil
}

// Reading is what the server has run so far; -1 where it doesn't tell.
type Reading struct {
	Commands int64 // those inside scripts too
	Scripts  int64
}

var (
	commandsField = regexp.MustCompile(`total_commands_processed:(\d+)`)
	scriptsField  = regexp.MustCompile(`cmdstat_(?:evalsha|eval):calls=(\d+)`)
)

// Read asks the server.
func Read(redis rueidis.Client) Reading {
	return Reading{
		Commands: total(info(redis, "stats"), commandsField),
		Scripts:  total(info(redis, "commandstats"), scriptsField),
	}
}

func info(redis rueidis.Client, section string) string {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	text, err := redis.Do(ctx, redis.B().Info().Section(section).Build()).ToString()
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

// Per returns what was run between two readings, for each of n things that were done: commands, and scripts among
// them, each a round trip. It is -1 where the server doesn't tell, or nothing was done.
func Per(n int64, before, after Reading) (commands, scripts float64) {
	per := func(before, after int64) float64 {
		if n <= 0 || before < 0 || after < 0 {
			return -1
		}
		return float64(after-before) / float64(n)
	}
	return per(before.Commands, after.Commands), per(before.Scripts, after.Scripts)
}
