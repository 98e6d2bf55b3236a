package testbed

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// installed makes a new database's data directory, a copy of one below .cache/build,
// and returns the password of its superuser. The first caller has it installed there:
// install gets the directory to fill, which is there and is as's, and the password to
// set. An installation takes a second of processor time, a copy a tenth. The name says
// which installation it is; a server that is newer than the copy has one of its own.
func (b *Bed) installed(ctx context.Context, name, server, data string, as *account, install func(ctx context.Context, dir, password string) error) (password string, err error) {
	info, err := os.Stat(server)
	if err != nil {
		return "", err
	}
	kept := b.cache("build", fmt.Sprintf("%s-%d-%d", name, os.Geteuid(), info.ModTime().Unix()))
	if err := os.MkdirAll(filepath.Dir(kept), 0o755); err != nil {
		return "", err
	}
	unlock, err := lockFile(kept + ".lock")
	if err != nil {
		return "", err
	}
	defer unlock()
	text, err := os.ReadFile(filepath.Join(kept, "password"))
	if errors.Is(err, fs.ErrNotExist) {
		text, err = b.installOnce(ctx, kept, as, install)
	}
	if err != nil {
		return "", err
	}
	return string(text), copyTree(filepath.Join(kept, "data"), data, as)
}

// installOnce has a database installed in a directory of its own, which becomes kept.
func (b *Bed) installOnce(ctx context.Context, kept string, as *account, install func(context.Context, string, string) error) ([]byte, error) {
	// Not below .cache, where another account may not look.
	temp, err := os.MkdirTemp(b.dir, "install-")
	if err != nil {
		return nil, err
	}
	if err := as.own(temp); err != nil {
		return nil, err
	}
	password := []byte(rand.Text())
	if err := install(ctx, temp, string(password)); err != nil {
		return nil, err
	}
	// Both may be on different file systems: so it is copied, and complete with the password.
	if err := os.RemoveAll(kept); err != nil {
		return nil, err
	}
	if err := copyTree(filepath.Join(temp, "data"), filepath.Join(kept, "data"), nil); err != nil {
		return nil, err
	}
	return password, os.WriteFile(filepath.Join(kept, "password"), password, 0o600)
}

// copyTree copies directories and files with their permissions, and gives them to as.
func copyTree(from, to string, as *account) error {
	return filepath.WalkDir(from, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		target := to + strings.TrimPrefix(path, from)
		info, err := entry.Info()
		switch {
		case err != nil:
			return err
		case entry.IsDir():
			err = os.MkdirAll(target, 0o700)
		case entry.Type().IsRegular():
			err = copyFile(path, target)
		default:
			return fmt.Errorf("%s is no file", path)
		}
		if err != nil {
			return err
		}
		return errors.Join(os.Chmod(target, info.Mode().Perm()), as.own(target))
	})
}

func copyFile(from, to string) error {
	source, err := os.Open(from)
	if err != nil {
		return err
	}
	defer source.Close() // only read
	target, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = target.ReadFrom(source)
	return errors.Join(err, target.Close())
}

// lockFile takes a lock that all processes share, and returns what releases it.
func lockFile(path string) (unlock func(), err error) {
	lock, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return nil, errors.Join(fmt.Errorf("locking %s: %w", path, err), lock.Close())
	}
	return func() { _ = lock.Close() }, nil
}
