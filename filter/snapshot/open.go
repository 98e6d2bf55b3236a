package snapshot

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"syscall"
)

// Snapshot is a file that is open for reading. Its methods are safe for
// concurrent use, but for Close.
type Snapshot struct {
	path     string
	file     *os.File
	header   Header
	sections []description
	starts   []uint64 // of the sections' bodies
}

// Open opens a file and checks its header and its length. The error is a
// [*MismatchError] if the file is another filter's, or was made for other
// parameters or by a later version; a [*DamageError] if it is not what was
// written; one of the disk, wrapped, if it cannot be read or, fs.ErrNotExist, is
// not there.
func Open(path string, want Identity) (*Snapshot, error) {
	s, err := Inspect(path)
	if err != nil {
		return nil, err
	}
	if err := s.check(want); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// Inspect is Open for whoever takes any filter's file.
func Inspect(path string) (*Snapshot, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0) // opening a pipe would wait for a writer
	if err != nil {
		return nil, fmt.Errorf("opening snapshot: %w", err)
	}
	s := &Snapshot{path: path, file: f}
	if err := s.open(); err != nil {
		f.Close()
		return nil, err
	}
	return s, nil
}

// Close closes the file.
func (s *Snapshot) Close() { s.file.Close() } // nothing was written: it has nothing to tell

// Header returns what the file says of the whole.
func (s *Snapshot) Header() Header { return s.header }

// Sections returns what the file says of each section.
func (s *Snapshot) Sections() []SectionInfo {
	var infos []SectionInfo
	for _, d := range s.sections {
		infos = append(infos, d.SectionInfo)
	}
	return infos
}

// open reads and checks all but the body. Whatever the file says of a length is
// held against the length that it has before anything is reserved for it.
func (s *Snapshot) open() error {
	info, err := s.file.Stat()
	if err != nil {
		return fmt.Errorf("opening snapshot: %w", err)
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("opening snapshot %s: not a regular file", s.path)
	}
	size := uint64(info.Size())
	if size < uint64(prefixSize+sumSize+trailerSize) {
		return s.damaged("header", "the file has only %d bytes", size)
	}
	var prefix [prefixSize]byte
	if err := s.readAt("header", prefix[:], 0); err != nil {
		return err
	}
	if magic := prefix[:len(headerMagic)]; string(magic) != headerMagic {
		return s.damaged("header", "it begins with %q, not as a snapshot does", magic)
	}
	// What a later version has beyond here is not known, so this comes first.
	if v := binary.LittleEndian.Uint32(prefix[len(headerMagic):]); v != version {
		return &MismatchError{s.path, "format version", fmt.Sprint(v), fmt.Sprint(version)}
	}
	length := uint64(binary.LittleEndian.Uint32(prefix[len(headerMagic)+4:]))
	if length < uint64(prefixSize+sumSize) || length > min(maxHeader, size-uint64(trailerSize)) {
		return s.damaged("header", "it claims to have %d bytes, in a file of %d", length, size)
	}
	header := make([]byte, length)
	if err := s.readAt("header", header, 0); err != nil {
		return err
	}
	if binary.LittleEndian.Uint32(header[length-sumSize:]) != sum(header[:length-sumSize]) {
		return s.damaged("header", "the checksum is wrong")
	}
	if s.header, s.sections, err = decodeHeader(header); err != nil {
		return s.damaged("header", "%v", err)
	}
	end, err := s.layOut(length, size)
	if err != nil {
		return err
	}
	trailer := make([]byte, trailerSize)
	if err := s.readAt("trailer", trailer, int64(end)); err != nil {
		return err
	}
	if !slices.Equal(trailer, encodeTrailer(header, size)) {
		return s.damaged("trailer", "it belongs to another file")
	}
	return nil
}

// layOut finds where the sections start, and the trailer, which must be where the
// file's size says.
func (s *Snapshot) layOut(at, size uint64) (trailer uint64, err error) {
	for i, d := range s.sections {
		where := fmt.Sprintf("section %d", i)
		if d.Bytes > size {
			return 0, s.damaged(where, "it claims to have %d bytes, in a file of %d", d.Bytes, size)
		}
		s.starts = append(s.starts, at)
		if at += withSums(d.Bytes); at > size {
			return 0, s.damaged(where, "it claims to end at byte %d, in a file of %d", at, size)
		}
		if d.Exact {
			continue
		}
		if d.bits/8 != d.Bytes || d.bits%8 != 0 {
			return 0, s.damaged(where, "it has %d bits in %d bytes", d.bits, d.Bytes)
		}
		made, err := d.Params.Size()
		if err != nil {
			return 0, s.damaged(where, "%v", err)
		}
		// The sizes of a layout may change with a version; the bits are useless then.
		if made.Bits != d.bits || made.Hashes != int(d.hashes) {
			return 0, &MismatchError{s.path, where + ": size",
				fmt.Sprintf("%d bits and %d hashes", d.bits, d.hashes), fmt.Sprintf("%d and %d", made.Bits, made.Hashes)}
		}
	}
	if at+uint64(trailerSize) != size {
		return 0, s.damaged("length", "the file has %d bytes, its header has %d", size, at+uint64(trailerSize))
	}
	return at, nil
}

// check compares with what is wanted.
func (s *Snapshot) check(want Identity) error {
	has := s.header.Identity
	for _, field := range []struct{ name, has, want string }{
		{"name", quote(has.Name), quote(want.Name)},
		{"kind", quote(has.Kind), quote(want.Kind)},
		{"capacity", fmt.Sprint(has.Capacity), fmt.Sprint(want.Capacity)},
		{"false positive rate", fmt.Sprint(has.FalsePositiveRate), fmt.Sprint(want.FalsePositiveRate)},
		{"layout", quote(string(has.Layout)), quote(string(want.Layout))},
		{"key fingerprint", fmt.Sprintf("%x", has.KeyFingerprint), fmt.Sprintf("%x", want.KeyFingerprint)},
	} {
		if field.has != field.want {
			return &MismatchError{s.path, field.name, field.has, field.want}
		}
	}
	return nil
}

func quote(s string) string { return fmt.Sprintf("%q", s) }

// readAt fills buf. A file that ends within was cut off since it was opened, or
// before.
func (s *Snapshot) readAt(where string, buf []byte, offset int64) error {
	_, err := s.file.ReadAt(buf, offset)
	switch {
	case errors.Is(err, io.EOF):
		return s.damaged(where, "the file ends within it")
	case err != nil:
		return fmt.Errorf("reading snapshot %s: %w", s.path, err)
	}
	return nil
}

func (s *Snapshot) damaged(where, what string, args ...any) error {
	return &DamageError{s.path, where, fmt.Sprintf(what, args...)}
}
