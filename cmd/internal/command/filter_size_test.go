package command

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/ordergate/ordergate/filter/redisbf"
	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// sized runs filter size and returns its answer.
func sized(t *testing.T, args ...string) sizing {
	t.Helper()
	code, stdout, stderr := command(t.Context(), append([]string{"filter", "size", "--json"}, args...)...)
	if code != exitDone || stderr != "" {
		t.Fatalf("%v: exit code %d, %s", args, code, stderr)
	}
	var s sizing
	if err := json.Unmarshal([]byte(stdout), &s); err != nil {
		t.Fatalf("%v: %v in %s", args, err, stdout)
	}
	return s
}

// kind returns the size of a kind by its name in the table.
func (s *sizing) kind(t *testing.T, name string) kindSize {
	t.Helper()
	for _, k := range s.Kinds {
		if k.name() == name {
			return k
		}
	}
	t.Fatalf("there is no kind %q", name)
	return kindSize{}
}

func near(t *testing.T, what string, got, want, within float64) {
	t.Helper()
	if math.Abs(got/want-1) > within {
		t.Errorf("%s: %g, want %g within %g", what, got, want, within)
	}
}

// TestFilterSize holds the figures that are asked for against the textbook's
// formulas: m = -n ln p / (ln 2)^2, k = m/n ln 2.
func TestFilterSize(t *testing.T) {
	for _, tc := range []struct {
		ids, rate      string
		n, p           float64
		classicMB      float64 // as it is told elsewhere
		hashes         int
		bloom, bitmaps int // shards; 0: a set of Redisson does as well
	}{
		{"200_000_000", "0.001", 2e8, 0.001, 359.4, 10, 1, 1},
		{"1e8", "0.01", 1e8, 0.01, 119.9, 7, 1, 1},
		{"100000000", "1e-3", 1e8, 0.001, 179.7, 10, 1, 1},
		{"3e10", "0.001", 3e10, 0.001, 53_916, 10, 28, 102},
		{"30_000_000_000", "0.01", 3e10, 0.01, 35_974, 7, 28, 68},
	} {
		t.Run(tc.ids+" at "+tc.rate, func(t *testing.T) {
			s := sized(t, "--ids", tc.ids, "--rate", tc.rate, "--processes", "3", "--replicas", "2")
			m := -tc.n * math.Log(tc.p) / (math.Ln2 * math.Ln2)
			classic := s.kind(t, "local, classic")
			// With a whole number of hashes it takes a little more than m.
			k := float64(tc.hashes)
			whole := -k * tc.n / math.Log(1-math.Pow(tc.p, 1/k))
			near(t, "bytes", float64(classic.ProcessBytes), whole/8, 1e-6)
			near(t, "bytes", float64(classic.ProcessBytes), m/8, 3e-3)
			near(t, "MB", float64(classic.ProcessBytes), tc.classicMB*1e6, 5e-4)
			near(t, "all bytes", float64(classic.TotalBytes), 3*whole/8, 1e-6)
			if *classic.Hashes != tc.hashes || tc.hashes != int(math.Round(m/tc.n*math.Ln2)) || classic.Shards != nil || classic.RoundTrips != (roundTrips{}) {
				t.Errorf("%d hashes, shards %v, %v", *classic.Hashes, classic.Shards, classic.RoundTrips)
			}
			near(t, "rate", classic.FalsePositiveRate, tc.p, 1e-5)

			blocked := s.kind(t, "local, blocked")
			if more := float64(blocked.ProcessBytes)*8/m - 1; more < 0.02 || more > 0.09 {
				t.Errorf("blocked takes %.3f more than classic", more)
			}
			near(t, "blocked rate", blocked.FalsePositiveRate, inBlocks(tc.n*512/float64(blocked.ProcessBytes*8), float64(*blocked.Hashes)), 0.05)
			near(t, "blocked rate", blocked.FalsePositiveRate, tc.p, 5e-3)

			bitmap := s.kind(t, "redis-bitmap")
			if more := float64(bitmap.RedisBytes)*8/m - 1; more < 0 || more > 0.02 {
				t.Errorf("a bitmap takes %.3f more than classic", more)
			}
			near(t, "bitmap rate", bitmap.FalsePositiveRate, tc.p, 1e-3)
			if needs := int(math.Ceil(float64(bitmap.RedisBytes) * 8 / (1 << 32))); *bitmap.Shards != tc.bitmaps || needs != tc.bitmaps {
				t.Errorf("a bitmap has %d shards, want %d, by its bits %d", *bitmap.Shards, tc.bitmaps, needs)
			}
			if bitmap.TotalBytes != 3*bitmap.RedisBytes || bitmap.ProcessBytes != 0 || bitmap.RoundTrips != (roundTrips{1, 1}) {
				t.Errorf("a bitmap: %+v", bitmap)
			}

			bloom := s.kind(t, "redis-bloom")
			near(t, "bytes of redis-bloom", float64(bloom.RedisBytes), m/8, 1e-3)
			if k := int(math.Ceil(m / tc.n * math.Ln2)); *bloom.Hashes != k || *bloom.Shards != tc.bloom || tc.bloom != int(math.Ceil(tc.n/(1<<30))) {
				t.Errorf("redis-bloom has %d hashes, want %d, and %d shards", *bloom.Hashes, k, *bloom.Shards)
			}
			near(t, "rate of redis-bloom", bloom.FalsePositiveRate, math.Pow(1-math.Exp(-float64(*bloom.Hashes)*tc.n/m), float64(*bloom.Hashes)), 5e-3)

			redisson := s.kind(t, "redisson")
			if tooLarge := m > 1<<32-2; tooLarge {
				if redisson.Problem == nil || !strings.Contains(*redisson.Problem, "2^32-2") || redisson.Hashes != nil {
					t.Errorf("redisson: %+v", redisson)
				}
			} else {
				near(t, "bytes of redisson", float64(redisson.RedisBytes), m/8, 1e-6)
				near(t, "most that pass of redisson", redisson.FalsePositiveRateMost, 2.1*tc.p, 5e-3)
				if *redisson.Hashes != tc.hashes || *redisson.Shards != 1 {
					t.Errorf("redisson: %+v", redisson)
				}
			}

			layered := s.kind(t, "layered")
			near(t, "rate of layered", layered.FalsePositiveRate, tc.p*9/8, 0.01) // an eighth is the local part's
			eighth := sized(t, "--ids", tc.ids, "--rate", fmt.Sprint(tc.p/8))
			if local := eighth.kind(t, "local, blocked"); layered.TotalBytes != 3*local.ProcessBytes+3*bitmap.RedisBytes || layered.RoundTrips != (roundTrips{0, 1}) {
				t.Errorf("layered: %+v", layered)
			}
			if exact := s.kind(t, "exact"); exact.Problem == nil || !strings.Contains(*exact.Problem, "--sample") {
				t.Errorf("exact: %+v", exact)
			}
		})
	}
}

// inBlocks is the rate of a blocked filter as Putze, Sanders and Singler have it: a
// mean over the loads of a block.
func inBlocks(load, hashes float64) (rate float64) {
	for j := range int(load + 12*math.Sqrt(load)) {
		gamma, _ := math.Lgamma(float64(j) + 1)
		weight := math.Exp(-load + float64(j)*math.Log(load) - gamma)
		rate += weight * math.Pow(1-math.Pow(1-1.0/512, float64(j)*hashes), hashes)
	}
	return rate
}

// TestRedisSizes holds the arithmetic against sets that are in a Redis.
func TestRedisSizes(t *testing.T) {
	bed := bedtest.New(t)
	client := redis.NewClient(&redis.Options{Addr: bed.Redis(bed.RedisBloomArgs()...).Addr()})
	t.Cleanup(func() { _ = client.Close() })
	for i, o := range []redisbf.Options{
		{Capacity: 50_000, FalsePositiveRate: 0.01, Shards: 1},
		{Capacity: 1_000_001, FalsePositiveRate: 0.001, Shards: 7},
		{Capacity: 300_000, FalsePositiveRate: 1e-6, Shards: 3},
		{Capacity: 5_000, FalsePositiveRate: 0.3, Shards: 1},
	} {
		for _, kind := range []redisbf.Kind{redisbf.Bloom, redisbf.Bitmap, redisbf.Redisson} {
			o := o
			o.Kind, o.Key, o.Secret = kind, fmt.Sprintf("%s-%d", kind, i), [16]byte{1}
			args := []string{"--ids", fmt.Sprint(o.Capacity), "--rate", fmt.Sprint(o.FalsePositiveRate), "--shards", fmt.Sprint(o.Shards)}
			if kind == redisbf.Redisson {
				o.Shards = 1
			}
			s := sized(t, args...)
			k := s.kind(t, string(kind))
			set, err := redisbf.New(client, o)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(set.Close)
			if err := set.Open(t.Context()); err != nil {
				t.Fatal(err)
			}
			info, err := set.Info(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if *k.Hashes != info.Shards[0].Hashes || *k.Shards != len(info.Shards) {
				t.Errorf("%s of %v: %d hashes in %d shards, it has %d in %d", kind, args, *k.Hashes, *k.Shards, info.Shards[0].Hashes, len(info.Shards))
			}
			var there uint64
			switch kind {
			case redisbf.Bloom:
				there = info.Bytes - uint64(len(info.Shards))*bloomHeader // as the server says
			case redisbf.Bitmap:
				for _, sh := range info.Shards {
					there += uint64(client.StrLen(t.Context(), sh.Key).Val())
				}
			case redisbf.Redisson: // whose bitmap is as long as the last bit that is set
				there = (info.Shards[0].Bits + 7) / 8
			}
			if k.RedisBytes != there {
				t.Errorf("%s of %v: %d bytes, it has %d", kind, args, k.RedisBytes, there)
			}
		}
	}
}

// bloomHeader is what RedisBloom counts besides the bits of a filter.
const bloomHeader = 96

// TestFilterSizeShards gives a number of shards.
func TestFilterSizeShards(t *testing.T) {
	s := sized(t, "--ids", "3e10", "--shards", "300")
	for _, name := range []string{"redis-bloom", "redis-bitmap", "layered"} {
		if k := s.kind(t, name); *k.Shards != 300 {
			t.Errorf("%s has %d shards", name, *k.Shards)
		}
	}
	near(t, "a shard", float64(s.kind(t, "redis-bitmap").RedisBytes)/300, 1e8*14.378/8, 0.01)
	// Enough for one kind, and not for the other.
	s = sized(t, "--ids", "3e10", "--shards", "28")
	if k := s.kind(t, "redis-bitmap"); k.Problem == nil || !strings.Contains(*k.Problem, "at least 102 shards") {
		t.Errorf("a bitmap in 28 shards: %+v", k)
	}
	if k := s.kind(t, "layered"); k.Problem == nil || s.Recommended.Kind != "redis-bloom" || *s.Recommended.Shards != 28 {
		t.Errorf("in 28 shards: %+v, %+v", k, s.Recommended)
	}
	if s = sized(t, "--ids", "1e6", "--shards", "5"); *s.kind(t, "redisson").Shards != 1 {
		t.Error("redisson has shards")
	}
}

// TestFilterSizeTable looks at the table for people.
func TestFilterSizeTable(t *testing.T) {
	_, stdout, _ := command(t.Context(), "filter", "size", "--ids", "3e10", "--processes", "4", "--replicas", "1")
	lines := strings.Split(stdout, "\n")
	if len(lines) != 15 || !strings.HasPrefix(lines[13], "recommended: redis-bitmap: ") {
		t.Fatalf("it is\n%s", stdout)
	}
	for at, want := range map[int]string{
		0:  "30,000,000,000 IDs, of absent ones 0.1% may pass; 4 processes, Redis with 1 replica",
		2:  "KIND A PROCESS REDIS BYTES/ID HASHES SHARDS ROUND TRIPS PASS IN ALL",
		3:  "local, blocked 58.3 GB - 1.94 9 - 0 0.1% 233.2 GB",
		5:  "exact - - - - - - - -",
		7:  "redis-bitmap - 54.3 GB 1.81 10 102 1 0.1% 108.7 GB",
		11: "exact: for numbers that lie close together: --sample shows whether they do",
	} {
		if got := strings.TrimSpace(blanks.ReplaceAllString(lines[at], " ")); got != want {
			t.Errorf("line %d is %q, want %q", at+1, got, want)
		}
	}
}

// TestFilterSizeRecommends covers what is recommended, and why.
func TestFilterSizeRecommends(t *testing.T) {
	file := func(line func(i int) string) string {
		var text strings.Builder
		for i := range 20_000 {
			text.WriteString(line(i) + "\n")
		}
		path := filepath.Join(t.TempDir(), "ids.csv")
		if err := os.WriteFile(path, []byte(text.String()), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	dense := file(func(i int) string { // every tenth of every second
		if i == 0 {
			return "order_id,paid"
		}
		return strconv.Itoa(7_000_000_000+20*i) + ",yes"
	})
	sparse := file(func(i int) string { return strconv.Itoa(1_000_000_007 * (i + 1)) })
	letters := file(func(i int) string { return strconv.Itoa(i) + strings.Repeat("x", i/19_999) }) // the last one
	for _, tc := range []struct {
		name         string
		args         []string
		kind, layout string
		shards       int
		reason       string
	}{
		{"it fits", []string{"--ids", "2e8"}, "local", "blocked", 0, "388.6 MB in each process are within the memory limit of 1.0 GB"},
		{"classic fits", []string{"--ids", "2e8", "--memory-limit", "360MB"}, "local", "classic", 0, "which those of layout blocked are not"},
		{"a low rate", []string{"--ids", "1e6", "--rate", "1e-7"}, "local", "classic", 0, "4.2 MB in each process"},
		{"it does not fit", []string{"--ids", "2e8", "--memory-limit", "359 MB"}, "redis-bitmap", "", 1, "past the memory limit of 359.0 MB"},
		{"it is far too large", []string{"--ids", "3e10"}, "redis-bitmap", "", 102, "54.3 GB in Redis for all of them, in 102 shards"},
		{"dense numbers", []string{"--ids", "2e5", "--sample", dense}, "exact", "", 0, "no absent number passes"},
		{"dense numbers past the limit", []string{"--ids", "3e10", "--sample", dense}, "redis-bitmap", "", 102, "an exact one would take"},
		{"sparse numbers", []string{"--ids", "2e5", "--sample", sparse}, "local", "blocked", 0, "an exact one would take"},
		{"not only numbers", []string{"--ids", "2e5", "--sample", letters}, "local", "blocked", 0, "waits for no Redis"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := sized(t, tc.args...)
			r := s.Recommended
			layout, shards := "", 0
			if r.Layout != nil {
				layout = *r.Layout
			}
			if r.Shards != nil {
				shards = *r.Shards
			}
			if r.Kind != tc.kind || layout != tc.layout || shards != tc.shards || !strings.Contains(r.Reason, tc.reason) {
				t.Errorf("%s, layout %q, shards %d: %s", r.Kind, layout, shards, r.Reason)
			}
		})
	}
	s := sized(t, "--ids", "2e5", "--sample", letters)
	if k := s.kind(t, "exact"); k.Problem == nil || !strings.HasPrefix(*k.Problem, "1 of 20,000 IDs in the sample") || s.Sample.NotNumeric != 1 {
		t.Errorf("exact: %+v of %+v", k, s.Sample)
	}
	// 2*10^5 IDs of which every tenth was seen, 20 apart: half of all numbers.
	s = sized(t, "--ids", "2e5", "--sample", dense)
	near(t, "bytes an ID of an exact one", s.kind(t, "exact").BytesPerID, 8192.0/32768, 0.02)
}
