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
	logEvery  = 5 * time.Second        // interval of log lines
	drawEvery = 100 * time.Millisecond // interval of drawing the bar
)

// Step is the progress of a read.
type Step struct {
	IDs   int64 // read so far
	Done  int64 // of Total, in bytes or rows
	Total int64 // 0: unknown
	Rough bool  // the total is an estimate
}

// percent returns the finished part, and whether it is known. An estimate may be too low.
func (s Step) percent() (int64, bool) {
	if s.Total <= 0 || s.Rough && s.Done >= s.Total {
		return 0, false
	}
	return s.Done * 100 / s.Total, true
}

// Progress shows the progress of a read: a bar on a terminal, otherwise a log line every five
// seconds. So a short read logs nothing. It is not safe for concurrent use: one goroutine reports.
type Progress struct {
	out   io.Writer // nil: no terminal
	log   *slog.Logger
	what  string
	now   func() time.Time
	first time.Time // when the read began
	last  time.Time // when the last line was logged or the rate was updated
	ids   int64     // as of last
	rate  float64   // IDs a second, as of last
	bar   *progressbar.ProgressBar
}

// NewProgress returns the progress of reading what. It draws on out (os.Stderr) if that is a
// terminal, and logs otherwise.
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

// Report implements the Progress field of [Options] and [TableOptions].
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

// updateRate computes the rate since the last call.
func (p *Progress) updateRate(now time.Time, s Step) {
	if passed := now.Sub(p.last).Seconds(); passed > 0 {
		p.rate = float64(s.IDs-p.ids) / passed
	}
	p.last, p.ids = now, s.IDs
}

// remaining returns the expected duration of the rest, at the average rate so far.
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
			total = -1 // the bar's value for unknown
		}
		p.bar = progressbar.NewOptions64(total,
			progressbar.OptionSetWriter(p.out),
			progressbar.OptionSetPredictTime(false), // the text has it
			progressbar.OptionSetElapsedTime(false),
			progressbar.OptionClearOnFinish(),
		)
	}
	done := s.Done
	text := fmt.Sprintf("%s: %d IDs", p.what, s.IDs)
	if s.Rough && s.Total > 0 {
		done = min(done, s.Total-1) // a full bar would disappear
		text += fmt.Sprintf(" of about %d", s.Total)
	}
	text += fmt.Sprintf(", %d/s", int64(p.rate))
	if _, known := s.percent(); known {
		text += fmt.Sprintf(", %v left", p.remaining(now, s))
	}
	// Reading continues if the terminal cannot be written to.
	_ = p.bar.Set64(done)
	p.bar.Describe(text)
}

// Close removes the bar from the terminal.
func (p *Progress) Close() {
	if p.bar != nil {
		_ = p.bar.Finish()
	}
}
