package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const summary = `starting benchmark...
spawning thread #0: 2 total client(s). 1000 total requests
Application protocol: h2c
progress: 100% done

finished in 12.61ms, 79314.72 req/s, 3.07MB/s
requests: 1000 total, 1000 started, 1000 done, 990 succeeded, 10 failed, 0 errored, 0 timeout
status codes: 990 2xx, 0 3xx, 10 4xx, 0 5xx
traffic: 39.63KB (40586) total, 2.04KB (2086) headers (space savings 97.63%), 8.79KB (9000) data
                     min         max         mean         sd        +/- sd
time for request:      411us      3.30ms      1.92ms       613us    69.60%
`

func TestParseLoad(t *testing.T) {
	tests := []struct {
		name     string
		from, to string // a change of the summary
		requests int
		err      string // a part of it; "" for none
	}{
		{"as it is", "", "", 1000, ""},
		{"requests left over", "1000 done", "999 done", 1000, "of 1000 requests 999 were done, 0 with an error, 0 too late"},
		{"other requests", "", "", 2000, "of 2000 requests 1000 were done"},
		{"an error", "0 errored", "3 errored", 1000, "3 with an error"},
		{"a timeout", "0 timeout", "4 timeout", 1000, "4 too late"},
		{"no rate", "finished in", "ended after", 1000, "nothing matches (?m)^finished"},
		{"no statuses", "status codes", "codes", 1000, "nothing matches"},
		{"no traffic", "(9000) data", "data", 1000, "nothing matches"},
		{"a bad rate", "79314.72", "1.2.3", 1000, "reading h2load's summary: strconv.ParseFloat"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := parseLoad(strings.Replace(summary, tt.from, tt.to, 1), tt.requests)
			if tt.err != "" {
				if err == nil || !strings.Contains(err.Error(), tt.err) || strings.Contains(err.Error(), "\n") {
					t.Fatalf("error %v, want one line with %q", err, tt.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			want := loaded{rate: 79314.72, dataBytes: 9000, statuses: "990 2xx, 0 3xx, 10 4xx, 0 5xx"}
			if got != want {
				t.Errorf("got %+v, want %+v", got, want)
			}
		})
	}
}

func TestReadLatencies(t *testing.T) {
	tests := []struct {
		name, log string
		p50, p99  float64
		err       string
	}{
		{"one", "1763722800000000\t200\t1500\n", 1.5, 1.5, ""},
		{"out of order", "1 200 4000\n2 200 1000\n3 404 3000\n4 200 2000\n", 2, 4, ""},
		{"none", "", 0, 0, "it is empty"},
		{"cut off", "1 200\n", 0, 0, `line "1 200" does not have three columns`},
		{"no number", "1 200 soon\n", 0, 0, "ParseFloat"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "h2load.log")
			if err := os.WriteFile(path, []byte(tt.log), 0o600); err != nil {
				t.Fatal(err)
			}
			var l loaded
			err := l.readLatencies(path)
			if tt.err != "" {
				if err == nil || !strings.Contains(err.Error(), tt.err) {
					t.Fatalf("error %v, want %q", err, tt.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff([]float64{tt.p50, tt.p99}, []float64{l.p50, l.p99}); diff != "" {
				t.Errorf("p50, p99 (-want +got):\n%s", diff)
			}
		})
	}
	if err := new(loaded).readLatencies(filepath.Join(t.TempDir(), "none")); err == nil {
		t.Error("a missing log is no error")
	}
}

func TestPercentile(t *testing.T) {
	var hundred []float64
	for i := range 100 {
		hundred = append(hundred, float64(i+1))
	}
	for of, want := range map[float64]float64{0: 1, 50: 50, 99: 99, 100: 100} {
		if got := percentile(hundred, of); got != want {
			t.Errorf("percentile %v is %v, want %v", of, got, want)
		}
	}
}
