package engine

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
)

const (
	// quietTime is how long a file has to be left alone before it is read, so that one
	// which is written in steps is read when it is whole.
	quietTime = 200 * time.Millisecond
	// mostNoise is how long it waits for that at most.
	mostNoise = 2 * time.Second
	// maxLinks is how many symbolic links Linux follows in a path (path_resolution(7)).
	maxLinks = 40
)

// watchFile calls changed once at the beginning, and again whenever the file at a path has
// become another: written, replaced by a rename, or reached by other symbolic links, as
// the files of a Kubernetes ConfigMap are. It returns when ctx ends, or with an error as
// soon as nothing can be watched. Some file systems (NFS, those of some virtual machines)
// tell nothing of what others change.
func watchFile(ctx context.Context, path string, log *slog.Logger, changed func()) error {
	path, err := filepath.Abs(path)
	if err != nil {
		return err
	}
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return err
	}
	defer func() { _ = watcher.Close() }() // of no further use, whatever it says
	w := &fileWatch{path: path, watcher: watcher}
	if err := w.arm(); err != nil {
		return err
	}
	changed()
	quiet := time.NewTimer(quietTime)
	quiet.Stop()        // nothing has happened yet
	var since time.Time // of the first event that has not been told of; zero: none
	for {
		select {
		case <-ctx.Done():
			return nil
		case e := <-watcher.Events:
			if !w.concerns(e.Name) {
				continue
			}
		case err := <-watcher.Errors: // events were lost, which may have been ours
			log.Debug("watching the configuration file", "error", err)
		case <-quiet.C:
			since = time.Time{}
			if err := w.arm(); err != nil {
				log.Warn("the configuration file may change unnoticed: send SIGHUP when it has", "error", err)
			}
			changed()
			continue
		}
		if since.IsZero() {
			since = time.Now()
		}
		quiet.Reset(min(quietTime, max(0, mostNoise-time.Since(since))))
	}
}

// fileWatch watches the directories in which a change can make a path another file.
type fileWatch struct {
	path    string
	watcher *fsnotify.Watcher
	steps   []string
}

// concerns reports whether an event is about the file: about a step of its path, or about
// a directory that has one.
func (w *fileWatch) concerns(name string) bool {
	return slices.ContainsFunc(w.steps, func(step string) bool { return name == step || name == filepath.Dir(step) })
}

// arm watches the steps of the path as it leads now. What changes after it has returned
// is noticed. All are watched anew: a directory may be another of the same name.
func (w *fileWatch) arm() error {
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

// stepsOf returns the places where a path can come to lead elsewhere, in the order in
// which they are come by: the symbolic links in it, and its end, or what is missing first.
// All are free of links themselves.
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
