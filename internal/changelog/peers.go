package changelog

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"golang.org/x/time/rate"
)

// Spread blocks until clients may be told of whatever was acknowledged here before the call: no window
// holds any more that does not include it. That takes a round trip if all readers say
// that they have it, the longest window and its margin at most, and a lease and its margin
// longer after a failover. The error is [ErrUnavailable] with ctx's. It does not need Run, but takes
// the longest then.
//
// At the latest the longest window is over that any read may have opened before
// the entry was acknowledged, at this server or, before the acknowledgement counts, at one that
// was replaced. It is sooner when all readers say that they have the entry. In a new era the log
// does not know yet who reads: so that counts only when those windows are over that reads in
// other eras have opened. They ran before this process saw the era, or at a server
// that was replaced.
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

// unheard is the error of somebody who could not wait until all have an entry.
func (l *Log) peersUninformed(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w: %s: others may not have the entry yet: %w", ErrUnavailable, l.keys[0], err)
}

// told is what a creator knows of the readers.
type readerProgress struct {
	leaseEpoch string
	applied    uint64        // up to which entry of the log all had applied it, at one time in the era
	changed    chan struct{} // closed when that grows
}

// hear notes up to which entry all readers have the log.
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

// have reports whether all readers have an entry, and returns what is closed when
// that may have changed.
func (l *Log) isAppliedByAll(e ackedEntry) (bool, <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.progress.leaseEpoch == e.leaseEpoch && l.progress.applied >= e.seq, l.progress.changed
}

// widest is the longest window of any reader, as the log tells. In a new era it may have lost
// the one that it had before, whose reader may still refuse by it: it may open one at a server that
// was replaced for as long as a lease lasts there.
type peerWindows struct {
	leaseEpoch  string
	now, before time.Duration
	until       time.Time // before counts
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

// longestWindow returns how long a window may last, anybody's.
func (l *Log) longestWindow() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return max(l.peers.longest(), l.opts.Window)
}

// hearLeast brings how far all readers are while a creator waits for them, until ctx ends and then for a
// second at most.
func (l *Log) receiveProgress(ctx context.Context) {
	calm := rate.NewLimiter(rate.Inf, readBurst)
	for {
		select {
		case <-l.peersKick:
		case <-ctx.Done():
			return
		}
		for l.peerWaiters.Load() > 0 && ctx.Err() == nil {
			messages, err := l.readStream(ctx, l.keys[6], endOf(l.appliedByAll()))
			for _, m := range messages {
				leaseEpoch, _ := m.Values["era"].(string)
				text, _ := m.Values["least"].(string)
				if least, err := strconv.ParseUint(text, 10, 64); err == nil {
					l.noteProgress(leaseEpoch, least)
				}
			}
			calm.SetLimit(rate.Every(l.pause() / 4)) // it may grow with each reader that reports
			_ = calm.Wait(ctx)                       // it ends, or its turn has come
			if err != nil {
				_ = waitUntil(ctx, time.Now().Add(listenFor))
			}
		}
	}
}

// forgetReaders lets nobody wait any more for readers that have ended without a word, if a creator has
// waited in vain. That it fails is no matter: the next creator has it tried again.
func (l *Log) removeSilentReaders(ctx context.Context) {
	e := l.unreported.Swap(nil)
	if e == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, l.opts.Timeout)
	defer cancel()
	l.runScript(ctx, l.forget, l.keys, e.seq, e.leaseEpoch)
}
