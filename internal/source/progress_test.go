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
		name        string
		after       time.Duration
		done, total int64
		want        string // "": no line
	}{
		{"at the start", 0, 0, 200, ""},
		{"too early", logEvery - 1, 10, 200, ""},
		{"in time", 1, 50, 200, "from=ids.csv bytes=50 percent=25"},
		{"too early again", time.Second, 60, 200, ""},
		{"size unknown", logEvery, 70, 0, "from=ids.csv bytes=70\n"},
	} {
		out.Reset()
		now = now.Add(tc.after)
		p.Report(tc.done, tc.total)
		if got := out.String(); !strings.Contains(got, tc.want) || (tc.want == "") != (got == "") {
			t.Errorf("%s: logged %q, want %q", tc.name, got, tc.want)
		}
	}
	p.Close()
}

func TestProgressOnATerminal(t *testing.T) {
	for _, total := range []int64{200, 0} {
		var log, out strings.Builder
		p := newProgress(&out, slog.New(slog.NewTextHandler(&log, nil)), "ids.csv", time.Now)
		p.Report(50, total)
		if total > 0 && !strings.Contains(out.String(), "25%") || !strings.Contains(out.String(), "ids.csv") {
			t.Errorf("drawn %q", out.String())
		}
		p.Close()
		if !strings.HasSuffix(out.String(), "\r") {
			t.Errorf("the bar is left behind: %q", out.String())
		}
		if log.Len() > 0 {
			t.Errorf("logged %q beside the bar", log.String())
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
	p.Report(1, 2)
	p.Close()
	if info, err := file.Stat(); err != nil || info.Size() != 0 {
		t.Errorf("%v, %v: a bar was drawn into a file", info, err)
	}
}
