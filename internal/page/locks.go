package page

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/ordergate/ordergate/internal/admin"
	"github.com/ordergate/ordergate/internal/audit"
	"github.com/ordergate/ordergate/internal/lockreport"
	"github.com/ordergate/ordergate/internal/runbook"
)

const (
	// shownLocks bounds the locks that the page lists.
	shownLocks = 100
	// locksEvery is the shortest pause between two listings. One reads every key of Redis, so the pause is
	// at least idleShare times as long as the listing took.
	locksEvery = 2 * time.Second
	idleShare  = 20
	// listTimeout bounds a listing, and firstList how long the page waits for one.
	listTimeout = time.Minute
	firstList   = 700 * time.Millisecond
)

// lockLists lists the locks while the page is looked at.
type lockLists struct {
	wake chan struct{}

	mu   sync.Mutex
	due  time.Time
	done chan struct{} // closed at the end of the next listing
	last lockList
}

// lockList is what Redis had at a moment.
type lockList struct {
	At    time.Time // zero: nothing was listed yet
	Old   bool      // the list is not from now
	Total int
	Locks []lockreport.Lock
	Error string
}

// runLists lists the locks, and the peers of the filters, until ctx ends.
func (p *Page) runLists(ctx context.Context) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.locks.wake:
		case <-tick.C:
			if !p.isLookedAt(time.Now()) {
				continue
			}
		}
		p.locks.mu.Lock()
		isDue := !time.Now().Before(p.locks.due)
		p.locks.mu.Unlock()
		if isDue {
			p.listPeers(ctx) // before those who wait for the locks go on
			p.listLocks(ctx)
		}
	}
}

func (p *Page) listLocks(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	began, next := time.Now(), lockList{At: time.Now()}
	client := p.opts.Locks()
	defer client.Close()
	var failures []string
	list, err := client.List(ctx, shownLocks, func(err error) { failures = append(failures, err.Error()) }, client.Names()...)
	if err != nil {
		failures = append(failures, err.Error())
	} else {
		next.Locks, next.Total = list.Locks, list.Total
	}
	next.Error = strings.Join(failures, "; ")
	pause := locksEvery
	if next.Error == "" { // a Redis that did not answer has not read its keys
		pause = max(pause, idleShare*time.Since(began))
	}
	p.locks.mu.Lock()
	defer p.locks.mu.Unlock()
	p.locks.last, p.locks.due = next, time.Now().Add(pause)
	close(p.locks.done)
	p.locks.done = make(chan struct{})
}

// freshLocks has the locks listed, if a listing is due, and waits a little for it.
func (p *Page) freshLocks(ctx context.Context) {
	p.locks.mu.Lock()
	isDue, done := !time.Now().Before(p.locks.due), p.locks.done
	p.locks.mu.Unlock()
	if !isDue {
		return
	}
	select {
	case p.locks.wake <- struct{}{}:
	default:
	}
	ctx, cancel := context.WithTimeout(ctx, firstList)
	defer cancel()
	select {
	case <-done:
	case <-ctx.Done():
	}
}

func (p *Page) lockList() lockList {
	p.locks.mu.Lock()
	defer p.locks.mu.Unlock()
	list := p.locks.last
	list.Old = !list.At.IsZero() && time.Since(list.At) > 2*locksEvery
	return list
}

// lockForm is a lock that is about to be released.
type lockForm struct {
	Lock, Key, Seen string
	Text, Warning   string
	Owners          []string // of a semaphore with several holders: whose permit
	Reason          string
	HasToken        bool
	MaxReason       int
}

// serveLock shows a lock, with a form that releases it.
func (p *Page) serveLock(w http.ResponseWriter, r *http.Request) {
	if form, _, client, ok := p.lockOf(w, r); ok {
		client.Close()
		p.write(w, http.StatusOK, whole{Title: "Release a lock", Body: "lock", Data: refused{Data: form}})
	}
}

// lockOf reads the lock that a form names, or answers that it cannot. Close the client.
func (p *Page) lockOf(w http.ResponseWriter, r *http.Request) (form lockForm, reports []lockreport.Lock, client *lockreport.Client, ok bool) {
	if !p.readForm(w, r, maxForm) {
		return form, nil, nil, false
	}
	client = p.opts.Locks()
	defer func() {
		if !ok {
			client.Close()
		}
	}()
	form = lockForm{
		Lock: r.PostForm.Get("lock"), Key: r.PostForm.Get("key"), Reason: r.PostForm.Get("reason"),
		Warning: lockreport.ReleaseWarning, HasToken: p.access.token != "", MaxReason: audit.MaxReason,
	}
	key, err := url.PathUnescape(form.Key)
	if _, known := client.Config.Locks[form.Lock]; !known || err != nil || key == "" {
		p.fail(w, http.StatusBadRequest, "The configuration has no such lock.")
		return form, nil, client, false
	}
	if reports, err = client.Inspect(r.Context(), form.Lock, key); err != nil {
		p.fail(w, http.StatusServiceUnavailable, err.Error())
		return form, nil, client, false
	}
	var text strings.Builder
	_ = lockreport.Describe(&text, reports) // it never fails
	form.Text, form.Seen = text.String(), lockreport.Digest(reports)
	if holders := reports[0].Holders; reports[0].Free != nil && len(holders) > 1 {
		for _, h := range holders {
			form.Owners = append(form.Owners, h.Owner)
		}
	}
	return form, reports, client, true
}

// serveRelease releases a lock from the holders that the form has shown.
func (p *Page) serveRelease(w http.ResponseWriter, r *http.Request) {
	form, reports, client, ok := p.lockOf(w, r)
	if !ok {
		return
	}
	defer client.Close()
	if !form.HasToken {
		p.fail(w, http.StatusForbidden, "Locks cannot be released here: set listen.token_file or listen.token_env.")
		return
	}
	if ok, wait := p.access.check(r, r.PostForm.Get("token")); !ok {
		p.refuseToken(w, "lock", "Release a lock", form, wait)
		return
	}
	problem := ""
	switch {
	case form.Reason == "" || len(form.Reason) > audit.MaxReason:
		problem = fmt.Sprintf("Give a reason, of %d bytes at most.", audit.MaxReason)
	case r.PostForm.Get("seen") != form.Seen:
		problem = "The holders have changed since you looked. Look again."
	}
	by := lockreport.Release{Who: "page@" + admin.HostOf(r.RemoteAddr), Reason: form.Reason, Owner: r.PostForm.Get("owner"), Logger: p.opts.Logger}
	by.Untraced = func(err error) {
		p.opts.Logger.Warn("a lock was released by hand, and ordergate locks audit will not show it", "error", err,
			runbook.ByHand.Do("note elsewhere who released it, when and why"))
	}
	heard := 0
	if problem == "" {
		var err error
		if err = by.Choose(reports); err == nil {
			heard, err = by.Run(r.Context(), reports)
		}
		if err != nil {
			problem = err.Error()
		}
	}
	if problem != "" {
		p.write(w, http.StatusConflict, whole{Title: "Release a lock", Body: "lock", Data: refused{problem, form}})
		return
	}
	p.locks.mu.Lock()
	p.locks.due = time.Time{} // the list is old now
	p.locks.mu.Unlock()
	p.write(w, http.StatusOK, whole{Title: "The lock is released", Body: "released", Data: fmt.Sprintf("%s is released; waiters notified: %d.", reports[0].Key, heard)})
}
