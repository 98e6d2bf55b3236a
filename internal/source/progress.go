package source

import (
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"
)

const (
	logEvery  = 5 * time.Second        // between two lines in the log
	drawEvery = 100 * time.Millisecond // between two drawings of the bar
)

// Step is how far a read is.
type Step struct {
	IDs   int64 // read so far
	Done  int64 // of Total, in bytes or rows
	Total int64 // 0: unknown
	Rough bool  // the total is an estimate
}

// percent returns how much is done, and whether that is known. Of what was only
// estimated there may be more.
func (s Step) percent() (int64, bool) {
	if s.Total <= 0 || s.Rough && s.Done >= s.Total {
		return 0, false
	}
	return s.Done * 100 / s.Total, true
}

// Progress shows how far a read is: a bar on a terminal, otherwise a line in the
// log every five seconds, so that a short read says nothing. It is not safe for
// concurrent use: one goroutine reports.
type Progress struct {
	out   io.Writer // nil: no terminal
	log   *slog.Logger
	what  string
	now   func() time.Time
	first time.Time // when it began
	last  time.Time // when the last line was logged or the last rate measured
	ids   int64     // read by then
	rate  float64   // IDs a second, lately
	bar   *progressbar.ProgressBar
}

// NewProgress returns the progress of reading what is named, on out (os.Stderr) if
// that is a terminal, else in the log.
func NewProgress(out *os.File, log *slog.Logger, what string) *Progress {
	p := newProgress(nil, log, what, time.Now)
	if term.IsTerminal(int(out.Fd())) {
		p.out = out
	}
	return p
}

func newProgress(out io.Writer, log *slog.Logger, what string, now func() time.Time) *Progress {
	return &Progress{out: out, log: log, what: what, now: now, first: now(), last: now()}
}

// Report is an [Options] or [TableOptions] Progress.
func (p *Progress) Report(s Step) {
	now := p.now()
	if p.out != nil {
		if p.bar == nil || now.Sub(p.last) >= drawEvery {
			p.updateRate(now, s)
			p.draw(now, s)
		}
		return
	}
	if now.Sub(p.last) < logEvery {
		return
	}
	p.updateRate(now, s)
	attrs := []any{"from", p.what, "ids", s.IDs, "per_second", int64(p.rate)}
	if percent, ok := s.percent(); ok {
		attrs = append(attrs, "percent", percent, "left", p.remaining(now, s))
	}
	if s.Rough {
		attrs = append(attrs, "about", s.Total)
	}
	p.log.Info("reading order IDs", attrs...)
}

// measure takes the rate since it did so last.
func (p *Progress) updateRate(now time.Time, s Step) {
	if passed := now.Sub(p.last).Seconds(); passed > 0 {
		p.rate = float64(s.IDs-p.ids) / passed
	}
	p.last, p.ids = now, s.IDs
}

// left returns how long the rest takes at the pace of all so far.
func (p *Progress) remaining(now time.Time, s Step) time.Duration {
	if s.Done <= 0 {
		return 0
	}
	passed := now.Sub(p.first).Seconds()
	return time.Duration(passed * float64(s.Total-s.Done) / float64(s.Done) * float64(time.Second)).Round(time.Second)
}

func (p *Progress) draw(now time.Time, s Step) {
	if p.bar == nil {
		total := s.Total
		if total <= 0 {
			total = -1 // the bar's word for unknown
		}
		p.bar = progressbar.NewOptions64(total,
			progressbar.OptionSetWriter(p.out),
			progressbar.OptionSetPredictTime(false), // the text says it
			progressbar.OptionSetElapsedTime(false),
			progressbar.OptionClearOnFinish(),
		)
	}
	done := s.Done
	text := fmt.Sprintf("%s: %d IDs", p.what, s.IDs)
	if s.Rough && s.Total > 0 {
		done = min(done, s.Total-1) // a bar that was full once is gone
		text += fmt.Sprintf(" of about %d", s.Total)
	}
	text += fmt.Sprintf(", %d/s", int64(p.rate))
	if _, known := s.percent(); known {
		text += fmt.Sprintf(", %v left", p.remaining(now, s))
	}
	// A terminal that cannot be written to is no reason to stop reading.
	_ = p.bar.Set64(done)
	p.bar.Describe(text)
}

// Close takes the bar off the terminal.
func (p *Progress) Close() {
	if p.bar != nil {
		_ = p.bar.Finish()
	}
}
