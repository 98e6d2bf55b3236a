package redislock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// TestChecker has a case for each kind of condition, and for what a key may hold instead.
func TestChecker(t *testing.T) {
	t.Parallel()
	for _, top := range topologies {
		t.Run(top.name, func(t *testing.T) {
			t.Parallel()
			client := top.start(t, 1)[0]
			checker := NewChecker(client)
			t.Cleanup(checker.Close)
			fillForConditions(t, client)
			for _, tt := range conditionCases {
				t.Run(tt.name, func(t *testing.T) {
					if got := describeCheck(checker.Check(t.Context(), tt.conditions)); got != tt.want {
						t.Errorf("got %q, want %q", got, tt.want)
					}
				})
			}
		})
	}
}

func fillForConditions(t *testing.T, client redis.UniversalClient) {
	t.Helper()
	ctx := t.Context()
	for key, value := range map[string]string{
		"latch:2": "2", "latch:0": "0", "latch:-1": "-1", "latch:text": "soon", "latch:hex": "0x0", "latch:blank": " 1", "latch:empty": "",
		"latch:large": "9223372036854775807", "day": "closed", "empty": "",
	} {
		bedtest.Check(t, client.Set(ctx, key, value, 0).Err())
	}
	bedtest.Check(t, client.RPush(ctx, "list", "closed").Err())
	bedtest.Check(t, client.GeoAdd(ctx, "couriers",
		&redis.GeoLocation{Name: "42", Longitude: 13.361389, Latitude: 38.115556},
		&redis.GeoLocation{Name: "store", Longitude: 13.361389, Latitude: 38.119556}, // 445 m north
		&redis.GeoLocation{Name: "far", Longitude: 15.087269, Latitude: 37.502669},
	).Err())
}

// near is a condition on the distance of two couriers.
func near(member, to string, meters float64) Condition {
	return Condition{Kind: GeoWithin, Key: "couriers", Member: member, To: to, Meters: meters}
}

var conditionCases = []struct {
	name       string
	conditions []Condition
	want       string
}{
	{"latch above 0", []Condition{{Kind: LatchOpen, Key: "latch:2"}}, "1 unmet"},
	{"latch at 0", []Condition{{Kind: LatchOpen, Key: "latch:0"}}, "holds"},
	{"latch below 0", []Condition{{Kind: LatchOpen, Key: "latch:-1"}}, "holds"},
	{"latch at the largest number", []Condition{{Kind: LatchOpen, Key: "latch:large"}}, "1 unmet"},
	{"no latch", []Condition{{Kind: LatchOpen, Key: "latch:none"}}, "holds"},
	{"latch that is a text", []Condition{{Kind: LatchOpen, Key: "latch:text"}}, "1 NOLATCH"},
	{"latch that Lua takes for a number", []Condition{{Kind: LatchOpen, Key: "latch:hex"}}, "1 NOLATCH"},
	{"latch with a blank", []Condition{{Kind: LatchOpen, Key: "latch:blank"}}, "1 NOLATCH"},
	{"latch that is empty", []Condition{{Kind: LatchOpen, Key: "latch:empty"}}, "1 NOLATCH"},
	{"latch that is a list", []Condition{{Kind: LatchOpen, Key: "list"}}, "1 WRONGTYPE"},
	{"key that exists", []Condition{{Kind: KeyExists, Key: "list"}}, "holds"},
	{"key that does not exist", []Condition{{Kind: KeyExists, Key: "none"}}, "1 unmet"},
	{"no key that is missing", []Condition{{Kind: KeyMissing, Key: "list"}}, "1 unmet"},
	{"missing key", []Condition{{Kind: KeyMissing, Key: "none"}}, "holds"},
	{"value", []Condition{{Kind: ValueIs, Key: "day", Value: "closed"}}, "holds"},
	{"another value", []Condition{{Kind: ValueIs, Key: "day", Value: "close"}}, "1 unmet"},
	{"no value", []Condition{{Kind: ValueIs, Key: "none", Value: "closed"}}, "1 unmet"},
	{"empty value of no key", []Condition{{Kind: ValueIs, Key: "none"}}, "1 unmet"},
	{"empty value", []Condition{{Kind: ValueIs, Key: "empty"}}, "holds"},
	{"value that is a list", []Condition{{Kind: ValueIs, Key: "list", Value: "closed"}}, "1 WRONGTYPE"},
	{"not this value", []Condition{{Kind: ValueIsNot, Key: "day", Value: "open"}}, "holds"},
	{"this value", []Condition{{Kind: ValueIsNot, Key: "day", Value: "closed"}}, "1 unmet"},
	{"not this value, no key", []Condition{{Kind: ValueIsNot, Key: "none", Value: "closed"}}, "holds"},
	{"not this value, a list", []Condition{{Kind: ValueIsNot, Key: "list", Value: "open"}}, "1 WRONGTYPE"},
	{"near", []Condition{near("42", "store", 500)}, "holds"},
	{"a little too far", []Condition{near("42", "store", 444.5)}, "1 unmet"},
	{"far", []Condition{near("42", "far", 160e3)}, "1 unmet"},
	{"at most", []Condition{near("42", "far", 167e3)}, "holds"},
	{"at one place", []Condition{near("42", "42", 0)}, "holds"},
	{"nobody is near", []Condition{near("43", "store", 1e7)}, "1 unmet"},
	{"near nobody", []Condition{near("42", "depot", 1e7)}, "1 unmet"},
	{"near, in no set", []Condition{{Kind: GeoWithin, Key: "none", Member: "42", To: "store", Meters: 1e7}}, "1 unmet"},
	{"near, in a list", []Condition{{Kind: GeoWithin, Key: "list", Member: "42", To: "store", Meters: 1e7}}, "1 WRONGTYPE"},
	{"none", nil, "holds"},
	{"all of several", []Condition{
		{Kind: LatchOpen, Key: "latch:none"}, near("42", "store", 500), {Kind: ValueIs, Key: "day", Value: "closed"}, {Kind: KeyMissing, Key: "none"},
	}, "holds"},
	{"the first that does not hold", []Condition{
		{Kind: LatchOpen, Key: "latch:none"}, near("42", "store", 500), {Kind: ValueIsNot, Key: "day", Value: "closed"}, {Kind: LatchOpen, Key: "list"},
	}, "3 unmet"},
	{"the first that cannot be checked", []Condition{
		{Kind: KeyExists, Key: "day"}, {Kind: LatchOpen, Key: "list"}, {Kind: KeyExists, Key: "none"},
	}, "2 WRONGTYPE"},
	{"more than one script has", slices.Concat(missing(3*maxChecked), []Condition{{Kind: KeyExists, Key: "none"}}), fmt.Sprint(3*maxChecked+1, " unmet")},
}

// missing are conditions that hold, on keys in many slots.
func missing(n int) (conditions []Condition) {
	for i := range n {
		conditions = append(conditions, Condition{Kind: KeyMissing, Key: fmt.Sprint("none:", i)})
	}
	return conditions
}

// describeCheck returns what a check found, with the place of a condition from 1.
func describeCheck(err error) string {
	if err == nil {
		return "holds"
	}
	if unmet, ok := errors.AsType[*UnmetError](err); ok {
		return fmt.Sprint(unmet.Index+1, " unmet")
	}
	if failed, ok := errors.AsType[*ConditionError](err); ok {
		word, _, _ := strings.Cut(failed.Cause(), " ")
		return fmt.Sprint(failed.Index+1, " ", word)
	}
	return err.Error()
}

// TestCheckerOfMany has many callers check at once.
func TestCheckerOfMany(t *testing.T) {
	t.Parallel()
	onEveryRedis(t, func(t *testing.T, client redis.UniversalClient) {
		checker := NewChecker(client)
		t.Cleanup(checker.Close)
		fillForConditions(t, client)
		var wg sync.WaitGroup
		for i := range 200 {
			tt := conditionCases[i%(len(conditionCases)-1)]
			wg.Go(func() {
				if got := describeCheck(checker.Check(t.Context(), tt.conditions)); got != tt.want {
					t.Errorf("%s: got %q, want %q", tt.name, got, tt.want)
				}
			})
		}
		wg.Wait()
	})
}

// TestCheckerAway asks a Redis that is away, and one that is back without the script.
func TestCheckerAway(t *testing.T) {
	t.Parallel()
	server := bedtest.New(t).Redis()
	client := connect(t, clientOptions(server.Addr()))
	checker := NewChecker(client)
	t.Cleanup(checker.Close)
	open := []Condition{{Kind: LatchOpen, Key: "latch"}}
	bedtest.Check(t, checker.Check(t.Context(), open))
	server.Kill()
	err := checker.Check(t.Context(), open)
	if _, unmet := errors.AsType[*UnmetError](err); err == nil || unmet {
		t.Errorf("away: %v", err)
	}
	bedtest.Check(t, server.Restart(t.Context()))
	bedtest.Eventually(t, "the check is answered again", func() bool { return checker.Check(t.Context(), open) == nil })
	bedtest.Check(t, server.Pause())
	ctx, leave := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer leave()
	if err := checker.Check(ctx, open); !errors.Is(err, context.DeadlineExceeded) { // of the caller, not of Redis
		t.Errorf("hanging: %v", err)
	}
	bedtest.Check(t, server.Resume())
}

// TestCheckerOfAMovingSlot checks keys of one slot while it moves. Each key is found at one
// of the two nodes.
func TestCheckerOfAMovingSlot(t *testing.T) {
	t.Parallel()
	c := cluster(t, 1)[0].(*redis.ClusterClient)
	checker := NewChecker(c)
	t.Cleanup(checker.Close)
	ctx := t.Context()
	for tag, want := range map[string]string{"{7}": "4 unmet", "{8}": "holds"} {
		if want != "holds" {
			bedtest.Check(t, c.Set(ctx, "latch:"+tag, "1", 0).Err())
		}
		bedtest.Check(t, c.Set(ctx, "open:"+tag, "yes", 0).Err())
		conditions := []Condition{
			{Kind: KeyExists, Key: "open:" + tag}, {Kind: KeyMissing, Key: "none"}, {Kind: KeyMissing, Key: "frozen:" + tag}, {Kind: LatchOpen, Key: "latch:" + tag},
		}
		check := func(when string) {
			t.Helper()
			if got := describeCheck(checker.Check(ctx, conditions)); got != want {
				t.Errorf("%s, %s: got %q, want %q", tag, when, got, want)
			}
		}
		check("before")
		m := beginMove(t, c, "latch:"+tag)
		check("begun")
		m.move()
		check("moved")
		m.end()
		check("ended")
	}
}

// TestCheckerWithoutRights has a user that may not read some of the keys. Redis does not say which
// key of a script it denies.
func TestCheckerWithoutRights(t *testing.T) {
	t.Parallel()
	server := bedtest.New(t).Redis("--user", "checker", "on", ">checker-secret", "~latch:*", "~open:*", "+@read", "+eval", "+evalsha", "+client|setname")
	opts := clientOptions(server.Addr())
	opts.Username, opts.Password = "checker", "checker-secret"
	checker := NewChecker(connect(t, opts))
	t.Cleanup(checker.Close)
	latch, open, denied := Condition{Kind: LatchOpen, Key: "latch:1"}, Condition{Kind: KeyExists, Key: "open:1"}, Condition{Kind: LatchOpen, Key: "loaders:1"}
	for _, tt := range []struct {
		conditions []Condition
		want       string
	}{
		{[]Condition{latch}, "holds"},
		{[]Condition{denied}, "1 NOPERM"},
		{[]Condition{latch, denied}, "2 NOPERM"},
		{[]Condition{denied, latch}, "1 NOPERM"},
		{[]Condition{latch, latch, latch, denied, denied, latch, latch}, "4 NOPERM"},
		{[]Condition{latch, open, latch, denied}, "2 unmet"}, // it decides, whatever is behind it
		{[]Condition{latch, denied, open}, "2 NOPERM"},
	} {
		if got := describeCheck(checker.Check(t.Context(), tt.conditions)); got != tt.want {
			t.Errorf("%v: %s, want %s", tt.conditions, got, tt.want)
		}
	}
}
