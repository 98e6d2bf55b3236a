package changelog

import (
	"context"
	"log/slog"
	"time"
)

// Options are the settings of a [Log]. The zero value is usable.
type Options struct {
	// Doubt is told of each doubt, by the goroutine that calls apply and in the same
	// order. It must not block. No window holds that is opened between the finding and its
	// return.
	OnDoubt func(Doubt)
	// Cleared is told, by the same goroutine, up to where the doubts are cleared that Doubt
	// was told of; see [Log.Clear]. Again: it is read once more, and says nothing of the
	// doubts of other logs. It must not block.
	OnCleared func(upTo Mark, again bool)
	// Lasting has the gaps that the reader finds appended, as doubts: they are there after
	// a restart. It is for a filter without a live source.
	PersistGaps bool
	// Member is the place that this process appends from, the same after a restart and
	// another one for every other process; "": it only reads, or never has an ID whose
	// append could fail. It must not have '#' in it.
	Member string
	// Require are members that there must be for a window to open, see [Log.Member].
	Require []string
	// Keep is how many entries the log keeps at least; 0: all of them. It is for a
	// filter whose live source has whatever is trimmed, and must be the same everywhere.
	MinEntries int
	// Ephemeral is for a server that ends with this process, and need not tell whether it
	// is another one.
	Ephemeral bool

	// CanonicalForms converts IDs that are appended. Each form is an entry of its own:
	// followers of an earlier release may take an entry as it is. Default: no conversion.
	CanonicalForms func(ids []string) []string

	// Bridge adds everything that the log had up to a mark, from the current
	// [Log.Snapshot], and returns that mark; the zero Mark if there is none of use. Run
	// calls it when the log begins behind what it has, and goes on in the log. It may
	// block. An error is one that passes: it is called again. Nil: a log that begins
	// later lacks something.
	LoadSnapshot func(ctx context.Context) (Mark, error)

	// Window is how long a [Window] lasts. Creators wait for the longest of all readers.
	// 0: none is ever opened.
	Window time.Duration

	Logger    *slog.Logger     // default: none
	PollEvery time.Duration    // how often the log is read at least; default a fourth of Window, a fifth of Lease at most
	Timeout   time.Duration    // the longest that a read, and a Wait, may take; default 1 s
	PageSize  int              // entries a read; default 1000
	Lease     time.Duration    // of a member; default 2 s
	Expel     time.Duration    // after which a lapsed member is taken for gone; default 5 min
	Pause     time.Duration    // between two reads while there is something new, for each member beyond the second; default 700 µs
	Now       func() time.Time // default time.Now; dates State.LastRead
}

// EnsureDefaults fills in what is unset.
func (o *Options) EnsureDefaults() {
	if o.OnDoubt == nil {
		o.OnDoubt = func(Doubt) {}
	}
	if o.CanonicalForms == nil {
		o.CanonicalForms = func(ids []string) []string { return ids }
	}
	if o.OnCleared == nil {
		o.OnCleared = func(Mark, bool) {}
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Timeout <= 0 {
		o.Timeout = defaultLimit
	}
	if o.PageSize <= 0 {
		o.PageSize = 1000
	}
	if o.Lease <= 0 {
		o.Lease = defaultLease
	}
	if o.PollEvery <= 0 {
		o.PollEvery = pollEvery(o.Window, o.Lease)
	}
	if o.Expel <= 0 {
		o.Expel = defaultExpel
	}
	if o.Pause <= 0 {
		o.Pause = 700 * time.Microsecond
	}
	if o.Now == nil {
		o.Now = time.Now
	}
}
