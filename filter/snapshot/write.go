package snapshot

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// Write puts a filter into a file, in place of the one that is there. IDs may be
// added meanwhile: those that were before the call are in the file, later ones
// may be. Whatever happens, even to the machine, path has the old file or the new
// one, whole. The new one is made as path with ".tmp" behind it, with room for both
// on the disk; what a process that was killed left there is written over.
//
// It blocks until the disk has the file; when ctx ends, until the disk has what was
// given to it last, 32 MiB at most. An error is one of the disk, of a limit that the
// header's documentation gives, of another process that is writing the same file, or
// ctx's.
func Write(ctx context.Context, path string, h Header, sections []Section) (err error) {
	w := writer{ctx: ctx, sections: sections}
	if err := w.describe(h); err != nil {
		return fmt.Errorf("writing snapshot %s: %w", path, err)
	}
	w.file, err = create(path + ".tmp")
	if err != nil {
		return fmt.Errorf("writing snapshot %s: %w", path, err)
	}
	// Closed last: the lock on it ends with that.
	defer w.file.Close()
	if err := w.write(h); err != nil {
		return errors.Join(fmt.Errorf("writing snapshot %s: %w", path, err), os.Remove(path+".tmp"))
	}
	if err := os.Rename(path+".tmp", path); err != nil {
		return errors.Join(fmt.Errorf("writing snapshot %s: %w", path, err), os.Remove(path+".tmp"))
	}
	if err := syncDir(filepath.Dir(path)); err != nil {
		return fmt.Errorf("writing snapshot %s: %w", path, err)
	}
	return nil
}

// create returns an empty file that no other process writes to.
func create(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := lock(f); err != nil {
		f.Close()
		return nil, err
	}
	// Between opening and locking another writer may have finished, and made this
	// very file the snapshot: then it is not for us to empty.
	opened, err1 := f.Stat()
	now, err2 := os.Stat(path)
	if err1 != nil || err2 != nil || !os.SameFile(opened, now) {
		f.Close()
		return nil, errors.New("another process has just written it")
	}
	if err := f.Truncate(0); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// writer is one call of Write.
type writer struct {
	ctx      context.Context
	file     *os.File
	sections []Section
	infos    []description
	buf      []byte // of a block and its checksum
	section  int    // that is being written
	block    uint64
	length   uint64 // of the file so far
	dirty    int    // blocks since the last sync
}

// syncBlocks is how many blocks are left to the kernel before the disk has to have
// them. All at once, a large file would keep a disk, and whoever waits for us to
// end, busy for longer than ctx can bound.
const syncBlocks = 32

// describe checks the limits and fills in infos, but for counts and lengths.
func (w *writer) describe(h Header) error {
	if len(w.sections) > maxSections {
		return fmt.Errorf("%d sections, at most %d are possible", len(w.sections), maxSections)
	}
	for what, text := range map[string]string{"name": h.Name, "kind": h.Kind, "layout": string(h.Layout), "sources": h.Sources} {
		if err := checkText(what, text, maxText); err != nil {
			return err
		}
	}
	if err := checkText("position", string(h.Position), maxPosition); err != nil {
		return err
	}
	for i, s := range w.sections {
		if err := checkText(fmt.Sprintf("section %d: label", i), s.Label, maxText); err != nil {
			return err
		}
		info := description{SectionInfo: SectionInfo{Label: s.Label}}
		switch {
		case (s.Bloom == nil) == (s.Exact == nil):
			return fmt.Errorf("section %d: must be either a Bloom filter or an exact set", i)
		case s.Exact != nil:
			info.Exact = true
		default:
			info.Params = s.Bloom.Params()
			info.KeyFingerprint = info.Params.KeyFingerprint()
			info.Params.Key = [16]byte{}
			info.bits, info.hashes = s.Bloom.Bits(), uint32(s.Bloom.Hashes())
		}
		w.infos = append(w.infos, info)
	}
	return nil
}

func checkText(what, text string, most int) error {
	if len(text) > most {
		return fmt.Errorf("the %s has %d bytes, at most %d are possible", what, len(text), most)
	}
	return nil
}

// write writes all of the file. The header comes last, since it says how long the
// sections became; its own length is known.
func (w *writer) write(h Header) error {
	w.length = uint64(len(encodeHeader(h, w.infos)))
	if _, err := w.file.Seek(int64(w.length), io.SeekStart); err != nil {
		return err
	}
	w.buf = make([]byte, 0, blockSize+sumSize)
	for i, s := range w.sections {
		w.section, w.block = i, 0
		if err := w.body(s, &w.infos[i]); err != nil {
			return err
		}
	}
	header := encodeHeader(h, w.infos)
	trailer := encodeTrailer(header, w.length+uint64(trailerSize))
	if _, err := w.file.Write(trailer); err != nil {
		return err
	}
	if _, err := w.file.WriteAt(header, 0); err != nil {
		return err
	}
	return w.file.Sync()
}

func (w *writer) body(s Section, info *description) error {
	if s.Exact != nil {
		info.Count = s.Exact.Count()
		n, err := s.Exact.WriteTo(w)
		if err != nil {
			return err
		}
		info.Bytes = uint64(n)
		return w.flush()
	}
	info.Count = s.Bloom.Count()
	info.Bytes = s.Bloom.SizeBytes()
	for at := uint64(0); at < info.Bytes; at += blockSize {
		n, err := s.Bloom.ReadChunk(w.buf[:blockSize], at)
		if err != nil {
			return err
		}
		w.buf = w.buf[:n]
		if err := w.flush(); err != nil {
			return err
		}
	}
	return nil
}

// Write implements io.Writer: it collects blocks.
func (w *writer) Write(data []byte) (n int, err error) {
	for n < len(data) {
		took := min(len(data)-n, blockSize-len(w.buf))
		w.buf = append(w.buf, data[n:n+took]...)
		n += took
		if len(w.buf) == blockSize {
			if err := w.flush(); err != nil {
				return n, err
			}
		}
	}
	return n, nil
}

// flush writes the block that is in buf, if it has anything.
func (w *writer) flush() error {
	if len(w.buf) == 0 {
		return nil
	}
	if w.ctx.Err() != nil {
		return context.Cause(w.ctx)
	}
	w.buf = binary.LittleEndian.AppendUint32(w.buf, blockSum(w.section, w.block, w.buf))
	n, err := w.file.Write(w.buf)
	w.length += uint64(n)
	w.block++
	w.buf = w.buf[:0]
	if w.dirty++; err == nil && w.dirty >= syncBlocks {
		w.dirty = 0
		err = w.file.Sync()
	}
	return err
}

// syncDir makes a rename last.
func syncDir(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	defer dir.Close()
	return dir.Sync()
}
