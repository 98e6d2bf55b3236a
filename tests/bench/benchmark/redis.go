package benchmark

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// RedisCPU returns the CPU time that a Redis has used, user and system.
func RedisCPU(ctx context.Context, client *redis.Client) (time.Duration, error) {
	text, err := client.Info(ctx, "cpu").Result()
	if err != nil {
		return 0, fmt.Errorf("reading Redis's CPU time: %w", err)
	}
	return parseCPU(text)
}

// parseCPU adds the lines "used_cpu_sys:1.5" and "used_cpu_user:1.5", seconds.
func parseCPU(text string) (time.Duration, error) {
	total := 0.0
	for _, field := range []string{"used_cpu_sys", "used_cpu_user"} {
		value := infoField(text, field)
		seconds, err := strconv.ParseFloat(value, 64)
		if err != nil {
			return 0, fmt.Errorf("reading Redis's CPU time: %s is %q", field, value)
		}
		total += seconds
	}
	return time.Duration(total * float64(time.Second)), nil
}

// RedisVersion returns that of a Redis, "" if it is away: the first round fails then.
func RedisVersion(ctx context.Context, client *redis.Client) string {
	text, _ := client.Info(ctx, "server").Result()
	return infoField(text, "redis_version")
}

// infoField returns a field of INFO's answer, "" if it is not there.
func infoField(text, field string) string {
	for line := range strings.Lines(text) {
		if value, found := strings.CutPrefix(line, field+":"); found {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// Micros returns a duration in µs.
func Micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }
