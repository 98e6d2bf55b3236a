package source

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestProgressInTheLog(t *testing.T) {
	var out strings.Builder
	now := time.Unix(0, 0)
	p := newProgress(nil, slog.New(slog.NewTextHandler(&out, nil)), "ids.csv", func() time.Time { return now })
	for _, tc := range []struct {
		name  string
		after time.Duration
		step  Step
		want  string // "": no line
	}{
		{"at the start", 0, Step{Total: 200}, ""},
		{"too early", logEvery - 1, Step{IDs: 5, Done: 10, Total: 200}, ""},
		{"in time", 1, Step{IDs: 25, Done: 50, Total: 200}, "from=ids.csv ids=25 per_second=5 percent=25 left=15s\n"},
		{"too early again", time.Second, Step{IDs: 30, Done: 60, Total: 200}, ""},
		{"the rate is that of late", 4 * time.Second, Step{IDs: 100, Done: 100, Total: 200}, "ids=100 per_second=15 percent=50 left=10s\n"},
		{"size unknown", logEvery, Step{IDs: 100, Done: 70}, "from=ids.csv ids=100 per_second=0\n"},
		{"size estimated", logEvery, Step{IDs: 100, Done: 100, Total: 200, Rough: true}, "percent=50 left=20s about=200\n"},
		{"more than estimated", logEvery, Step{IDs: 300, Done: 300, Total: 200, Rough: true}, "ids=300 per_second=40 about=200\n"},
	} {
		out.Reset()
		now = now.Add(tc.after)
		p.Report(tc.step)
		if got := out.String(); !strings.HasSuffix(got, tc.want) || (tc.want == "") != (got == "") {
			t.Errorf("%s: logged %q, want %q", tc.name, got, tc.want)
		}
	}
	p.Close()
}

func TestProgressOnATerminal(t *testing.T) {
	for _, tc := range []struct {
		name  string
		steps []Step
		want  []string // parts of what is drawn, in order
	}{
		{"known", []Step{{IDs: 5, Done: 50, Total: 200}}, []string{"ids.csv: 5 IDs, 5/s, 3s left", "25%"}},
		{"unknown", []Step{{IDs: 5, Done: 50}}, []string{"ids.csv: 5 IDs, 5/s"}},
		{"estimated", []Step{{IDs: 50, Done: 50, Total: 200, Rough: true}, {IDs: 450, Done: 450, Total: 200, Rough: true}},
			[]string{"50 IDs of about 200, 50/s, 3s left", "25%", "450 IDs of about 200, 400/s", "99%"}},
	} {
		var log, out strings.Builder
		now := time.Unix(0, 0)
		p := newProgress(&out, slog.New(slog.NewTextHandler(&log, nil)), "ids.csv", func() time.Time { return now })
		for _, s := range tc.steps {
			now = now.Add(time.Second)
			p.Report(s)
			p.Report(s) // too soon to draw
		}
		rest := out.String()
		for _, want := range tc.want {
			_, after, found := strings.Cut(rest, want)
			if !found {
				t.Errorf("%s: drawn %q, %q is missing", tc.name, out.String(), want)
			}
			rest = after
		}
		p.Close()
		if !strings.HasSuffix(out.String(), "\r") {
			t.Errorf("%s: the bar is left behind: %q", tc.name, out.String())
		}
		if log.Len() > 0 {
			t.Errorf("%s: logged %q beside the bar", tc.name, log.String())
		}
	}
}

func TestProgressChoosesTheLogWithoutATerminal(t *testing.T) {
	file, err := os.Create(filepath.Join(t.TempDir(), "stderr"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	p := NewProgress(file, slog.New(slog.DiscardHandler), "ids.csv")
	p.Report(Step{IDs: 1, Done: 1, Total: 2})
	p.Close()
	if info, err := file.Stat(); err != nil || info.Size() != 0 {
		t.Errorf("%v, %v: a bar was drawn into a file", info, err)
	}
}
