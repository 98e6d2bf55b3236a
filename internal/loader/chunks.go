package loader

import (
	"errors"
	"io"
	"os"
	"path/filepath"

	"github.com/ordergate/ordergate/config"
)

// snapshotDir returns the directory for the temporary files of a filter's snapshots in Redis.
func snapshotDir(c config.Filter) string {
	if c.Snapshot != nil {
		return filepath.Dir(c.Snapshot.Path)
	}
	return os.TempDir()
}

// upload passes the content of a file to put, in chunks of a size, and returns their number. Put
// must not keep the data.
func upload(path string, size int, put func(n int, data []byte) error) (chunks int, err error) {
	file, err := os.Open(path) // which was replaced by a rename
	if err != nil {
		return 0, err
	}
	defer file.Close() // only read from: nothing to lose
	buf := make([]byte, size)
	for ; ; chunks++ {
		n, err := io.ReadFull(file, buf)
		if n > 0 {
			if err := put(chunks, buf[:n]); err != nil {
				return 0, err
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			return chunks, nil
		case errors.Is(err, io.ErrUnexpectedEOF):
			return chunks + 1, nil
		case err != nil:
			return 0, err
		}
	}
}

// download collects chunks, which get writes, in a temporary file for use.
func download(dir, pattern string, chunks int, get func(n int, to io.Writer) error, use func(path string) error) (err error) {
	file, err := os.CreateTemp(dir, pattern)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.Remove(file.Name())) }()
	for n := range chunks {
		if err := get(n, file); err != nil {
			return errors.Join(err, file.Close())
		}
	}
	if err := file.Close(); err != nil {
		return err
	}
	return use(file.Name())
}
