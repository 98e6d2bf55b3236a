package command

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ordergate/ordergate/config"
	"github.com/ordergate/ordergate/internal/engine"
	"github.com/ordergate/ordergate/internal/locking"
	"github.com/ordergate/ordergate/internal/redisconn"
)

// examineServers checks what ordergate needs besides Envoy.
func (d *doctor) examineServers(ctx context.Context) {
	d.examineReadiness(ctx)
	d.examineRedis(ctx)
	live := engine.CheckLive(ctx, d.config)
	for _, name := range slices.Sorted(maps.Keys(live.Clocks)) {
		d.compareClock("the database of "+name, live.Clocks[name])
	}
	for _, v := range slices.Concat(live.Problems, live.Misfits) {
		d.fail("check --live", "", "", "%s: %s", v.Path, v.Message)
	}
	for _, v := range live.Notes {
		d.skip("check --live", "", "%s: %s", v.Path, v.Message)
	}
	for _, line := range live.Samples {
		d.ok("check --live", "", "%s", line)
	}
	if len(live.Problems)+len(live.Misfits) == 0 {
		d.ok("check --live", "", "Redis and the sources serve what the file needs")
	}
}

// examineReadiness asks the running ordergate for its conditions.
func (d *doctor) examineReadiness(ctx context.Context) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://localhost/readyz", nil)
	if err != nil {
		return
	}
	var state struct {
		Conditions []struct {
			Name, Reason string
			Ready        bool
		}
	}
	if d.askAdmin(request, &state) != nil {
		return // askRunning has its line
	}
	for _, c := range state.Conditions {
		switch {
		case !c.Ready:
			d.fail("readiness", "", "", "%s: %s", c.Name, c.Reason)
		case c.Reason != "":
			d.skip("readiness", "", "%s: %s", c.Name, c.Reason)
		}
	}
}

const (
	// pings are as many as the median of a latency needs.
	pings = 20
	// slowRedis is a median that settlements would notice: each takes two round trips.
	slowRedis = 20 * time.Millisecond
	// farClock is a difference between clocks that an operator would notice in times of logs, and in
	// marks.
	farClock = 2 * time.Second
)

// examineRedis checks the common Redis, as far as check --live does not.
func (d *doctor) examineRedis(ctx context.Context) {
	c := d.config.Redis
	switch {
	case c == nil:
		return
	case c.Mode == config.RedisEmbedded:
		d.skip("redis", "", "it is inside ordergate, and its data ends with the process")
		return
	}
	client, shut, err := redisconn.Connect(ctx, c, 1)
	if err != nil {
		return // check --live has its line
	}
	defer shut()
	times := make([]time.Duration, 0, pings)
	for range pings {
		began := time.Now()
		if client.Ping(ctx).Err() != nil {
			return // as above
		}
		times = append(times, time.Since(began))
	}
	slices.Sort(times)
	median := times[pings/2]
	text := fmt.Sprintf("the median of %d pings is %.2f ms", pings, median.Seconds()*1e3)
	if median > slowRedis {
		d.fail("redis", "", "have a Redis that is nearer", "%s, and each settlement takes two round trips", text)
	} else {
		d.ok("redis", "", "%s", text)
	}
	d.examineRedisInfo(ctx, client)
	d.examinePublished(ctx, client)
	d.examineRights(ctx, client)
	before := time.Now()
	if there, err := client.Time(ctx).Result(); err == nil {
		d.compareClock("Redis", ahead(there, before, time.Now()))
	}
}

// examinePublished proves that releases wake waiters.
func (d *doctor) examinePublished(ctx context.Context, client redis.UniversalClient) {
	for _, name := range slices.Sorted(maps.Keys(d.config.Locks)) {
		if took, err := locking.CheckPublished(ctx, client, d.config, name); err != nil {
			d.fail("redis", "", "give its user the rights that ordergate grants prints, and let no proxy stand in between", "lock %s: releases wake no waiter, so each waits for its next try: %v", name, err)
		} else {
			d.ok("redis", "", "lock %s: a release wakes waiters, within %.2f ms", name, took.Seconds()*1e3)
		}
	}
}

// examineRights reports whether the user may read a key that the file has no use for.
func (d *doctor) examineRights(ctx context.Context, client redis.UniversalClient) {
	const foreign = "doctor:foreign"
	switch err := client.Exists(ctx, foreign).Err(); {
	case err == nil:
		d.skip("redis", "", "its user may do more than the file needs, such as reading the key %s: ordergate grants prints the rights", foreign)
	case redis.HasErrorPrefix(err, "NOPERM"):
		d.ok("redis", "", "its user may not read other keys")
	}
}

func (d *doctor) examineRedisInfo(ctx context.Context, client redis.UniversalClient) {
	text, err := client.Info(ctx).Result() // of a cluster: of any node
	if err != nil {
		d.skip("redis", "", "version and persistence are unknown: %v", err)
		return
	}
	info := make(map[string]string)
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			info[name] = value
		}
	}
	least := "6.2"
	if d.config.Redis.Mode == config.RedisCluster {
		least = "7.0"
	}
	if version := info["redis_version"]; isOlder(version, least) {
		d.fail("redis", "", "install Redis "+least+" or newer", "its version is %s", version)
	} else {
		d.ok("redis", "", "its version is %s", version)
	}
	if info["aof_enabled"] == "0" {
		d.fail("redis", "", "set appendonly yes", "it does not write to disk as it goes: after a restart, locks that are held are free")
	} else if info["aof_enabled"] == "1" {
		d.ok("redis", "", "a restart keeps locks (appendonly yes)")
	}
}

// isOlder compares the first two numbers of versions.
func isOlder(version, than string) bool {
	var a, b [2]int
	if _, err := fmt.Sscanf(version, "%d.%d", &a[0], &a[1]); err != nil {
		return false
	}
	_, _ = fmt.Sscanf(than, "%d.%d", &b[0], &b[1]) // it is one of ours
	return slices.Compare(a[:], b[:]) < 0
}

// ahead returns how far a clock, which had the time there between two times of this machine, is ahead;
// negative: behind.
func ahead(there, before, after time.Time) time.Duration {
	return max(there.Sub(after), 0) - max(before.Sub(there), 0)
}

// compareClock reports how far a clock is ahead of this machine's.
func (d *doctor) compareClock(of string, off time.Duration) {
	if off.Abs() > farClock {
		d.fail("clocks", "", "synchronise clocks (NTP)", "that of %s is %v away", of, off.Abs().Round(time.Millisecond))
	} else {
		d.ok("clocks", "", "that of %s agrees with this one", of)
	}
}
