package loader

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/ordergate/ordergate/config"
	"github.com/ordergate/ordergate/filter/redisset"
	"github.com/ordergate/ordergate/internal/redisconn"
	"github.com/ordergate/ordergate/internal/runbook"
)

// keyOf returns the key of a filter's hashes in memory; zero: any key is right. If the change
// log is trimmed up to a snapshot in Redis, the common key replaces the one in the file. That
// invalidates the snapshot's file.
func (o *Options) keyOf(ctx context.Context, name string, c config.Filter) ([16]byte, error) {
	common := o.commonKey(ctx, name, c)
	key, err := memoryKey(c, common)
	if err != nil || !o.keepsLogSnapshot(c) || c.Secret != "" || c.Kind == config.FilterExact {
		return key, err
	}
	if common == ([16]byte{}) {
		if key == ([16]byte{}) {
			rand.Read(key[:]) // never fails, by its documentation
		}
		return key, nil
	}
	if key != common {
		path := c.Snapshot.Path + ".secret"
		o.Logger.Warn("the other ordergates have another secret of the hashes: ordergate adopts it, and writes the snapshot's file anew", "filter", name, "file", path,
			runbook.Snapshots.Do("nothing: ordergate writes a new snapshot"))
		if err := ignore(os.Remove(path), fs.ErrNotExist); err != nil {
			return key, fmt.Errorf("the secret of its hashes: %w", err)
		}
		return keptKey(path, common)
	}
	return key, nil
}

// memoryKey returns the key of a filter's hashes in memory; zero: any key is right. A filter with
// a snapshot needs the same key after a restart. Without a configured secret, memoryKey stores a
// key in a file beside the snapshot: the common one, or a random one if that is zero.
func memoryKey(c config.Filter, common [16]byte) (key [16]byte, err error) {
	switch {
	case c.Secret != "":
		return filterKey(c.Secret), nil
	case c.Snapshot == nil || c.Kind == config.FilterExact:
		return common, nil
	}
	return keptKey(c.Snapshot.Path+".secret", common)
}

// commonKey returns the key of all instances that may use each other's snapshots; zero: they
// need none, or Redis does not reply.
func (o *Options) commonKey(ctx context.Context, name string, c config.Filter) [16]byte {
	var mine [16]byte // becomes the common key if there is none
	switch {
	case c.Secret != "":
		return [16]byte{}
	case o.keepsLogSnapshot(c) && c.Kind != config.FilterExact:
		if c.Snapshot != nil {
			mine, _ = readKey(c.Snapshot.Path + ".secret") // keptKey returns its error later
		}
	case c.ShareLoad == nil || !*c.ShareLoad:
		return [16]byte{}
	}
	ctx, cancel := context.WithTimeout(ctx, redisconn.Timeout)
	defer cancel()
	key, err := redisset.Secret(ctx, o.Redis, name, mine)
	if err != nil {
		o.Logger.Warn("snapshots of other ordergates cannot be used", "filter", name, "error", err,
			runbook.SharedLoad.Do("look at Redis and the way to it; the database is read more often until then"))
	}
	return key
}

// keptKey reads a key from a file. It creates a missing file.
func keptKey(path string, common [16]byte) ([16]byte, error) {
	key, err := readKey(path)
	if errors.Is(err, fs.ErrNotExist) {
		if err = makeKey(path, common); err == nil {
			key, err = readKey(path) // which may be another process's
		}
	}
	if err != nil {
		return key, fmt.Errorf("the secret of its hashes: %w", err)
	}
	return key, nil
}

func readKey(path string) (key [16]byte, err error) {
	info, err := os.Stat(path)
	if err != nil {
		return key, err
	}
	// Other users must not read or write it.
	if mode := info.Mode(); !mode.IsRegular() || mode&0o077 != 0 {
		return key, fmt.Errorf("%s is %s: it has to be a file that its owner alone may read, as after chmod 600", path, mode)
	}
	if info.Size() > int64(2*len(key)+len("\r\n")) {
		return key, fmt.Errorf("%s has %d bytes: it has to have 32 hexadecimal digits", path, info.Size())
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return key, err
	}
	data, err := hex.DecodeString(strings.TrimRight(string(text), "\r\n"))
	// The error of DecodeString contains a part of the text.
	if err != nil || len(data) != len(key) || [16]byte(data) == ([16]byte{}) {
		return key, fmt.Errorf("%s does not have 32 hexadecimal digits of a secret", path)
	}
	return [16]byte(data), nil
}

// makeKey creates the file atomically. It keeps the file of another process that was created at
// the same time.
func makeKey(path string, key [16]byte) (err error) {
	file, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*") // of mode 0600
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, ignore(os.Remove(file.Name()), fs.ErrNotExist)) }()
	if key == ([16]byte{}) {
		rand.Read(key[:]) // never fails, by its documentation
	}
	_, err = fmt.Fprintln(file, hex.EncodeToString(key[:]))
	if err = errors.Join(err, file.Sync(), file.Close()); err != nil {
		return err
	}
	// A link, unlike a rename, replaces no file. Some file systems have no links.
	if err := os.Link(file.Name(), path); err != nil && !errors.Is(err, fs.ErrExist) {
		if err := os.Rename(file.Name(), path); err != nil {
			return err
		}
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

func ignore(err, harmless error) error {
	if errors.Is(err, harmless) {
		return nil
	}
	return err
}

// filterKey returns the key of a filter's hashes.
func filterKey(secret config.Secret) (key [16]byte) {
	sum := sha256.Sum256(append([]byte("ordergate filter key v1\x00"), secret...))
	copy(key[:], sum[:])
	return key
}
