package changelog

import (
	"cmp"
	"context"
	"log/slog"
	"time"
)

// Options are the settings of a [Log]. The zero value is usable.
type Options struct {
	// OnDoubt receives each doubt, from the goroutine that calls apply and in the same order. It
	// must not block. No window opened before it returns holds.
	OnDoubt func(Doubt)
	// OnCleared receives, from the same goroutine, the position up to which the doubts sent to
	// OnDoubt are cleared; see [Log.ClearDoubts]. With again, the entry is read once more: it does
	// not concern doubts of other logs. It must not block.
	OnCleared func(upTo Mark, again bool)
	// PersistGaps appends the gaps that the reader finds as doubts, so that they survive a restart.
	// It is for a filter without a live source.
	PersistGaps bool
	// Member is the instance ID of this process: the same after a restart, and different for every
	// other process. "": the process only reads, or never has an ID whose append could fail. It
	// must not contain '#'.
	Member string
	// Require names members that must be there before a window opens, see [Log.NewMember].
	Require []string
	// MinEntries is how many entries the log keeps at least; 0: all of them. It is for a filter
	// whose live source has the trimmed orders, and must be the same everywhere.
	MinEntries int
	// Ephemeral is for a server that ends with this process. Its replication ID may be hidden.
	Ephemeral bool

	// Check returns the reason why a text in the inbox is no order ID, "" if it is one. Default: it
	// is one.
	Check func(id string) (reason string)

	// Parts are the names of the parts of IDs, in their order. An instance with other parts takes
	// an entry of this one for a doubt about orders, and not for an ID: it cannot tell which of
	// its orders the entry names.
	Parts []string

	// LoadSnapshot adds everything that the log had up to a mark, from the current [Log.Snapshot].
	// It returns that mark, or the zero Mark if no snapshot is usable. Run calls it when the log
	// starts after the last entry that was read, and continues in the log. It may block. Run calls
	// it again after an error. Nil: a log that starts later has a gap.
	LoadSnapshot func(ctx context.Context) (Mark, error)

	// Window is how long a [Window] lasts. Creators wait for the longest window of all readers. 0:
	// the reader opens none.
	Window time.Duration

	Logger    *slog.Logger     // default: none
	PollEvery time.Duration    // the longest time between two reads; default a fourth of Window, at most a fifth of Lease
	Timeout   time.Duration    // of a read, and of Wait; default 1 s
	PageSize  int              // entries in one read; default 1000
	Lease     time.Duration    // of this process as a member; default 2 s
	Expel     time.Duration    // time after which a lapsed member is expelled; default 5 min
	Pause     time.Duration    // between two reads while there are new entries, for each member beyond the second; default 700 µs
	Now       func() time.Time // dates State.LastRead; default time.Now
}

// EnsureDefaults sets the fields that are unset.
func (o *Options) EnsureDefaults() {
	if o.OnDoubt == nil {
		o.OnDoubt = func(Doubt) {}
	}
	if o.Check == nil {
		o.Check = func(string) string { return "" }
	}
	if o.OnCleared == nil {
		o.OnCleared = func(Mark, bool) {}
	}
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	o.Timeout = cmp.Or(o.Timeout, defaultLimit)
	o.PageSize = cmp.Or(o.PageSize, 1000)
	o.Lease = cmp.Or(o.Lease, defaultLease)
	o.PollEvery = cmp.Or(o.PollEvery, pollEvery(o.Window, o.Lease))
	o.Expel = cmp.Or(o.Expel, defaultExpel)
	o.Pause = cmp.Or(o.Pause, 700*time.Microsecond)
	if o.Now == nil {
		o.Now = time.Now
	}
}
