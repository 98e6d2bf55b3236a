package changelog

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"golang.org/x/time/rate"
)

// WaitForPeers blocks until clients may receive the orders acknowledged here before the call: every
// window that holds includes them. If all readers report them, that takes one round trip. It takes
// at most the longest window and its margin, and after a failover a lease and its margin more. The
// error is [ErrUnavailable] with that of ctx. Without Run it takes the longest time.
//
// The longest wait covers every window opened before the entry was acknowledged, at this server, or
// at a demoted primary before the acknowledgement was valid. The wait ends earlier when all readers
// have reported the entry. In a new lease epoch the log does not list its readers yet. So a report
// counts only once the windows of former lease epochs are over. Reads opened those before this
// process saw the epoch, or at a demoted primary.
func (l *Log) WaitForPeers(ctx context.Context) error {
	l.mu.Lock()
	a := l.lastAck
	l.mu.Unlock()
	if a.seq == 0 {
		return nil
	}
	window := l.longestWindow()
	last := laterOf(a.validFrom, a.received).Add(over(window))
	since, known := l.member.epochSeenAt(a.leaseEpoch)
	if window == 0 || !known || !l.started.Load() {
		return l.peersUninformed(waitUntil(ctx, last))
	}
	if err := waitUntil(ctx, laterOf(a.validFrom, since).Add(over(window))); err != nil {
		return l.peersUninformed(err)
	}
	timer := time.NewTimer(time.Until(last))
	defer timer.Stop()
	l.peerWaiters.Add(1)
	defer l.peerWaiters.Add(-1)
	signal(l.peersKick)
	for {
		switch all, changed := l.isAppliedByAll(a.ackedEntry); {
		case all:
			return nil
		case !time.Now().Before(last):
			l.unreported.Store(&a.ackedEntry)
			return nil
		default:
			select {
			case <-changed:
			case <-timer.C:
			case <-ctx.Done():
				return l.peersUninformed(context.Cause(ctx))
			}
		}
	}
}

// peersUninformed is the error of a wait that ended before all readers had an entry.
func (l *Log) peersUninformed(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w: %s: others may not have the entry yet: %w", ErrUnavailable, l.keys[keyLog], err)
}

// readerProgress is the progress of all readers, as a creator knows it.
type readerProgress struct {
	leaseEpoch string
	applied    uint64        // all readers have applied the log up to this entry in the lease epoch
	changed    chan struct{} // closed when applied grows
}

// noteProgress records the entry up to which all readers have applied the log.
func (l *Log) noteProgress(leaseEpoch string, least uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if leaseEpoch == l.progress.leaseEpoch && least <= l.progress.applied {
		return
	}
	close(l.progress.changed)
	l.progress = readerProgress{leaseEpoch, least, make(chan struct{})}
}

func (l *Log) appliedByAll() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.progress.applied
}

// isAppliedByAll reports whether all readers have applied an entry. The channel is closed when that
// may have changed.
func (l *Log) isAppliedByAll(e ackedEntry) (bool, <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.progress.leaseEpoch == e.leaseEpoch && l.progress.applied >= e.seq, l.progress.changed
}

// peerWindows is the longest window of any reader, as the log reports it. In a new lease epoch the
// log may have lost the former value. A reader with that window may still answer Absent: at a
// demoted primary it can open windows for as long as a lease lasts there.
type peerWindows struct {
	leaseEpoch  string
	now, before time.Duration
	until       time.Time // the end of before
}

func (w *peerWindows) note(leaseEpoch string, window, lease time.Duration) {
	if leaseEpoch != w.leaseEpoch {
		w.before = w.longest()
		w.leaseEpoch, w.until = leaseEpoch, time.Now().Add(lease+margin(lease)+over(w.before))
	}
	w.now = window
}

func (w *peerWindows) longest() time.Duration {
	if time.Now().Before(w.until) {
		return max(w.now, w.before)
	}
	return w.now
}

// longestWindow returns the longest window that any reader may have open.
func (l *Log) longestWindow() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return max(l.peers.longest(), l.opts.Window)
}

// receiveProgress receives the progress of all readers while a creator waits for them. It ends
// within a second after ctx.
func (l *Log) receiveProgress(ctx context.Context) {
	limiter := rate.NewLimiter(rate.Inf, readBurst)
	for {
		select {
		case <-l.peersKick:
		case <-ctx.Done():
			return
		}
		for l.peerWaiters.Load() > 0 && ctx.Err() == nil {
			messages, err := l.readStream(ctx, l.keys[keyHad], endOf(l.appliedByAll()))
			for _, m := range messages {
				leaseEpoch, _ := m.Values["era"].(string)
				text, _ := m.Values["least"].(string)
				if least, err := strconv.ParseUint(text, 10, 64); err == nil {
					l.noteProgress(leaseEpoch, least)
				}
			}
			limiter.SetLimit(rate.Every(l.pause() / 4)) // the pause grows with each reader that reports
			_ = limiter.Wait(ctx)                       // it fails only when ctx ends
			if err != nil {
				_ = waitUntil(ctx, time.Now().Add(listenFor))
			}
		}
	}
}

// removeSilentReaders removes the readers that WaitForPeers waited for in vain: they have ended
// without deregistering. If it fails, the next wait repeats it.
func (l *Log) removeSilentReaders(ctx context.Context) {
	e := l.unreported.Swap(nil)
	if e == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, l.opts.Timeout)
	defer cancel()
	l.runScript(ctx, l.forget, l.keys, e.seq, e.leaseEpoch)
}
