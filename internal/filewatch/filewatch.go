// Package filewatch watches one file for changes.
//
// [Watch] follows the symbolic links of the path. So it notices each kind of change: a write, a
// rename, a new ConfigMap. The caller reads the file.
package filewatch

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/ordergate/ordergate/internal/runbook"
)

const (
	// quietTime is the time without events after which a change is reported. A file that is
	// written in steps is complete by then.
	quietTime = 200 * time.Millisecond
	// maxDelay bounds the wait for quietTime.
	maxDelay = 2 * time.Second
	// maxLinks is how many symbolic links Linux follows in a path (path_resolution(7)).
	maxLinks = 40
)

// Watch calls changed once at the beginning, and again after each change of the file: a
// write, a replacement by a rename, or other symbolic links in the path, as in a Kubernetes
// ConfigMap. It blocks until ctx ends, and then returns nil. It returns an error at once if it
// cannot begin to watch. Some file systems (NFS, those of some virtual machines) do not
// report changes that other machines make.
func Watch(ctx context.Context, path string, log *slog.Logger, changed func()) error {
	path, err := filepath.Abs(path)
	if err != nil {
		return err
	}
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return err
	}
	defer func() { _ = watcher.Close() }() // its error has no consequence
	w := &watch{path: path, watcher: watcher}
	if err := w.arm(); err != nil {
		return err
	}
	changed()
	quiet := time.NewTimer(quietTime)
	quiet.Stop()        // there was no event yet
	var since time.Time // of the first event that was not reported yet; zero: none
	for {
		select {
		case <-ctx.Done():
			return nil
		case e := <-watcher.Events:
			if !w.concerns(e.Name) {
				continue
			}
		case err := <-watcher.Errors: // events were lost; some may concern the file
			log.Debug("watching the configuration file", "error", err)
		case <-quiet.C:
			since = time.Time{}
			if err := w.arm(); err != nil {
				log.Warn("the configuration file may change unnoticed", "error", err,
					runbook.Reload.Do("send SIGHUP after each change of the file"))
			}
			changed()
			continue
		}
		if since.IsZero() {
			since = time.Now()
		}
		quiet.Reset(min(quietTime, max(0, maxDelay-time.Since(since))))
	}
}

// watch watches every directory in which a change can lead the path to another file.
type watch struct {
	path    string
	watcher *fsnotify.Watcher
	steps   []string
}

// concerns reports whether an event concerns the file: a step of its path, or a directory
// that contains one.
func (w *watch) concerns(name string) bool {
	return slices.ContainsFunc(w.steps, func(step string) bool { return name == step || name == filepath.Dir(step) })
}

// arm watches the steps of the path as it leads now. The watch notices every change after
// arm has returned. arm adds all directories again: one may have been replaced by another of
// the same name.
func (w *watch) arm() error {
	for steps := stepsOf(w.path); ; {
		for _, dir := range w.watcher.WatchList() {
			if err := w.watcher.Remove(dir); err != nil && !errors.Is(err, fsnotify.ErrNonExistentWatch) {
				return err
			}
		}
		for _, step := range steps {
			if err := w.watcher.Add(filepath.Dir(step)); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
		w.steps = steps
		if steps = stepsOf(w.path); slices.Equal(steps, w.steps) {
			return nil
		}
	}
}

// stepsOf returns the points at which a path can change, in the order of resolution: its
// symbolic links, and its end or its first missing part. The returned paths contain no
// links.
func stepsOf(path string) (steps []string) {
	at, rest := "/", strings.Split(path, "/")
	for links := 0; len(rest) > 0; {
		name := rest[0]
		rest = rest[1:]
		switch name {
		case "", ".":
			continue
		case "..":
			at = filepath.Dir(at)
			continue
		}
		next := filepath.Join(at, name)
		info, err := os.Lstat(next)
		if err != nil {
			return append(steps, next)
		}
		switch {
		case info.Mode()&fs.ModeSymlink != 0 && links < maxLinks:
			links++
			steps = append(steps, next)
			target, err := os.Readlink(next)
			if err != nil {
				return steps
			}
			if filepath.IsAbs(target) {
				at = "/"
			}
			rest = append(strings.Split(target, "/"), rest...)
		case len(rest) == 0:
			return append(steps, next)
		default:
			at = next
		}
	}
	return append(steps, at)
}
