// Package source reads the IDs of existing orders from where they are kept.
//
// Start with [CSV], a file of one ID a line. A source streams: its memory does not
// grow with the number of IDs. [Progress] shows how far a long read is. What the
// IDs are for, and what it means that some could not be read, is the caller's
// affair.
package source

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"unicode/utf8"
)

const (
	// MaxIDBytes is the length of the longest ID.
	MaxIDBytes = 256

	// bufferBytes is also how much of a line is looked at for its first column.
	bufferBytes = 64 << 10
	// stepLines is how often the context is looked at and progress reported: every
	// few milliseconds.
	stepLines = 10_000
	// namedLines is how many of the lines that were skipped are named.
	namedLines = 5
)

// Options are the settings of a [File]. The zero value is usable.
type Options struct {
	// Valid refuses IDs beyond those that no order can have; nil refuses none. It
	// is called by one goroutine.
	Valid func(id string) bool
	// Progress is told how many bytes were read of how many (0 if that is unknown,
	// as for a pipe), often, by the goroutine that reads, and once at the end.
	Progress func(done, total int64)
	Logger   *slog.Logger // default: none
}

// Report says what a read came to.
type Report struct {
	IDs     int64     // given to the caller
	Skipped int64     // lines that hold something, but no ID
	First   []BadLine // the first few of those
}

// BadLine is a line that was skipped.
type BadLine struct {
	Line   int64 // from 1
	Reason string
}

// String returns "line 7: not UTF-8".
func (b BadLine) String() string { return fmt.Sprintf("line %d: %s", b.Line, b.Reason) }

// File is a text file of IDs, see [CSV]. It may be read by several goroutines.
type File struct {
	path string
	opts Options
}

// CSV returns the file of IDs at path: UTF-8, one a line, or the first of several
// columns that commas separate. Blank lines, a header (id or order_id), a byte order
// mark, either kind of line end, blanks around an ID and double quotes around it are
// tolerated; quotes that span lines are not. It opens nothing yet.
func CSV(path string, opts Options) *File {
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	return &File{path: path, opts: opts}
}

// IDs calls yield with every ID in the file. It blocks until the file is read, yield
// returns an error, or ctx ends. Every error names the file. A line without a usable
// ID is skipped, and told in the log; a file in which no line has one is an error,
// since it is not what it was taken for.
func (f *File) IDs(ctx context.Context, yield func(id string) error) error {
	_, err := f.Read(ctx, yield)
	return err
}

// Read is [File.IDs] with an account of what was skipped, for a caller who must not
// overlook an order.
func (f *File) Read(ctx context.Context, yield func(id string) error) (Report, error) {
	r, err := f.read(ctx, yield)
	if err == nil && r.IDs == 0 && r.Skipped > 0 {
		err = fmt.Errorf("none of %d lines has an order ID (%s); is it a text file in UTF-8 with one ID a line?", r.Skipped, r.First[0])
	}
	if r.Skipped > 0 {
		f.opts.Logger.Warn("lines without a usable order ID were skipped", "file", f.path, "skipped", r.Skipped, "first", fmt.Sprint(r.First))
	}
	if err != nil {
		return r, fmt.Errorf("reading order IDs from %s: %w", f.path, err)
	}
	return r, nil
}

func (f *File) read(ctx context.Context, yield func(id string) error) (Report, error) {
	file, total, err := open(f.path)
	if err != nil {
		return Report{}, err
	}
	defer file.Close()
	var r Report
	in := &lines{buf: bufio.NewReaderSize(file, bufferBytes)}
	for {
		line, err := in.next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return r, err
		}
		if err := f.line(&r, in.number, line, yield); err != nil {
			return r, fmt.Errorf("line %d: %w", in.number, err)
		}
		if in.number%stepLines == 0 {
			if ctx.Err() != nil {
				return r, fmt.Errorf("interrupted at line %d: %w", in.number, context.Cause(ctx))
			}
			f.progress(in.bytes, total)
		}
	}
	f.progress(in.bytes, total)
	return r, ctx.Err()
}

// open returns a file that can be read, and its size, 0 if it has none.
func open(path string) (*os.File, int64, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, 0, cause(err)
	}
	info, err := file.Stat()
	if err == nil && info.IsDir() {
		err = errors.New("is a directory, not a file")
	}
	if err != nil {
		file.Close()
		return nil, 0, cause(err)
	}
	if !info.Mode().IsRegular() {
		return file, 0, nil
	}
	return file, info.Size(), nil
}

// cause drops the operation and path of an error, which Read names itself.
func cause(err error) error {
	if e, ok := errors.AsType[*os.PathError](err); ok {
		return e.Err
	}
	return err
}

func (f *File) progress(done, total int64) {
	if f.opts.Progress != nil {
		f.opts.Progress(done, total)
	}
}

// line deals with one line. The error is yield's; what is wrong with the line goes
// into the report.
func (f *File) line(r *Report, number int64, line []byte, yield func(string) error) error {
	field, reason := firstColumn(line)
	if reason == "" && (len(field) == 0 && len(line) == 0 || r.IDs+r.Skipped == 0 && isHeader(field)) {
		return nil
	}
	if reason == "" {
		reason = malformed(field)
	}
	if reason == "" {
		id := string(field)
		if f.opts.Valid == nil || f.opts.Valid(id) {
			r.IDs++
			return yield(id)
		}
		reason = fmt.Sprintf("%q does not have the form of an order ID", truncate(field))
	}
	r.Skipped++
	if len(r.First) < namedLines {
		r.First = append(r.First, BadLine{Line: number, Reason: reason})
	}
	return nil
}

// firstColumn returns what stands before the first comma, without blanks and
// quotes, or the reason why that cannot be told.
func firstColumn(line []byte) (field []byte, reason string) {
	line = bytes.Trim(line, " \t")
	if len(line) > 0 && line[0] == '"' {
		field, rest, closed := bytes.Cut(line[1:], []byte{'"'})
		rest = bytes.TrimLeft(rest, " \t")
		if !closed || len(rest) > 0 && rest[0] != ',' {
			return nil, "quotes are not closed"
		}
		return field, ""
	}
	field, _, _ = bytes.Cut(line, []byte{','})
	return bytes.TrimRight(field, " \t"), ""
}

func isHeader(field []byte) bool {
	return bytes.EqualFold(field, []byte("id")) || bytes.EqualFold(field, []byte("order_id"))
}

// malformed returns why a column cannot be an order's ID, "" if it can.
func malformed(field []byte) string {
	switch {
	case len(field) == 0:
		return "the first column is empty"
	case len(field) > MaxIDBytes:
		return fmt.Sprintf("an ID of more than %d bytes", MaxIDBytes)
	case bytes.ContainsFunc(field, func(r rune) bool { return r < ' ' || r == 0x7f }):
		return "control characters"
	case !utf8.Valid(field):
		return "not UTF-8"
	}
	return ""
}

// truncate keeps a line of the log readable.
func truncate(field []byte) []byte {
	const enough = 40
	return field[:min(len(field), enough)]
}
