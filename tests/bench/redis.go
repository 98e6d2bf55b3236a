package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
)

// scriptsRun counts the scripts that Redis has run. Each is one command of
// ordergate's and one round trip: it sends no others. (What a script calls is in
// the same statistics, under the names of those commands.)
func (s *sidecar) scriptsRun(ctx context.Context) (float64, error) {
	text, err := s.redis.Info(ctx, "commandstats").Result()
	if err != nil {
		return 0, fmt.Errorf("reading Redis's statistics: %w", err)
	}
	return countScripts(text)
}

// countScripts adds the calls of "cmdstat_eval:calls=3,usec=..." and its like.
func countScripts(stats string) (float64, error) {
	total := 0.0
	for line := range strings.Lines(stats) {
		name, rest, _ := strings.Cut(strings.TrimSpace(line), ":")
		switch name {
		case "cmdstat_eval", "cmdstat_evalsha", "cmdstat_fcall":
		default:
			continue
		}
		calls, _, _ := strings.Cut(strings.TrimPrefix(rest, "calls="), ",")
		n, err := strconv.ParseFloat(calls, 64)
		if err != nil {
			return 0, fmt.Errorf("reading Redis's statistics: line %q: %w", line, err)
		}
		total += n
	}
	return total, nil
}
