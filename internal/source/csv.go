package source

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strconv"
	"time"

	"github.com/ordergate/ordergate/internal/orderid"
	"github.com/ordergate/ordergate/internal/runbook"
	"github.com/ordergate/ordergate/internal/wait"
)

const (
	// bufferBytes also bounds the length of a line's first column.
	bufferBytes = 64 << 10
	// linesPerStep is the interval of checking the context and reporting progress: a few
	// milliseconds.
	linesPerStep = 10_000
	// minFileAge is how long a file must be unchanged before it is read: some writers write a file
	// in parts.
	minFileAge = 200 * time.Millisecond
)

// Options are the settings of a [File]. The zero value is usable.
type Options struct {
	// Check returns the reason why a text is no order ID. One goroutine calls it. Default:
	// [orderid.Check].
	Check func(id string) (reason string)
	// Progress receives how many bytes of how many were read (0 if the total is unknown, as for a
	// pipe). The goroutine that reads calls it often, and once at the end.
	Progress func(Step)
	Stdin    io.Reader    // stands for the path "-"; default: os.Stdin
	Logger   *slog.Logger // default: none
}

// File is a text file of IDs, see [CSV]. Several goroutines may read it, unless it is the standard
// input.
type File struct {
	path      string
	opts      Options
	stdinRead bool // the standard input was read
}

// CSV returns the file of IDs at path: UTF-8, one ID a line, or the first of several columns
// separated by commas. It tolerates blank lines, a header (id or order_id), a byte order mark,
// either kind of line end, and blanks or double quotes around an ID. It does not tolerate quotes
// that span lines, a file without content, or a last line without its end. The path "-" is the standard input, which can be read once. A file that changes
// while it is read is an error: only a part of it may have been read. CSV does not open the file
// yet.
func CSV(path string, opts Options) *File {
	opts.Logger = cmp.Or(opts.Logger, slog.New(slog.DiscardHandler))
	if opts.Stdin == nil {
		opts.Stdin = os.Stdin
	}
	if opts.Check == nil {
		opts.Check = orderid.Check[string]
	}
	return &File{path: path, opts: opts}
}

// name returns the file's name for errors and the log.
func (f *File) name() string {
	if f.path == stdinPath {
		return "the standard input"
	}
	return f.path
}

// IDs calls yield with every ID in the file. It blocks until the file is read, yield returns an
// error, or ctx ends. Every error names the file. IDs skips and logs a line without a usable ID. If
// no line has one, it returns an error: the file is of another kind.
func (f *File) IDs(ctx context.Context, yield func(id string) error) error {
	_, err := f.Read(ctx, yield)
	return err
}

// Read is [File.IDs] with a report of what was skipped, for a caller that needs every order.
func (f *File) Read(ctx context.Context, yield func(id string) error) (Report, error) {
	r, err := f.read(ctx, yield)
	if err == nil && r.IDs == 0 && r.Skipped > 0 {
		err = fmt.Errorf("none of %d lines has an order ID (%s); is it a text file in UTF-8 with one ID a line?", r.Skipped, r.First[0])
	}
	if r.Skipped > 0 {
		f.opts.Logger.Warn("lines without a usable order ID were skipped", "file", f.name(), "skipped", r.Skipped, "first", fmt.Sprint(r.First),
			runbook.BadRows.Do("nothing if they are no orders; otherwise correct the file"))
	}
	if err != nil {
		return r, fmt.Errorf("reading order IDs from %s: %w", f.name(), err)
	}
	return r, nil
}

func (f *File) read(ctx context.Context, yield func(id string) error) (Report, error) {
	file, before, err := f.open(ctx)
	if err != nil {
		return Report{}, err
	}
	defer file.Close()
	var r Report
	total := int64(0)
	if before != nil {
		total = before.Size()
	}
	in, content := &lines{buf: bufio.NewReaderSize(file, bufferBytes)}, false
	for {
		line, err := in.next()
		if errors.Is(err, io.EOF) {
			break
		}
		if ctx.Err() != nil && err != nil {
			return r, interrupted(ctx, in.number)
		}
		if err != nil {
			return r, err
		}
		content = content || len(line) > 0
		if err := f.line(&r, in.number, line, yield); err != nil {
			return r, fmt.Errorf("line %d: %w", in.number, err)
		}
		if in.number%linesPerStep == 0 {
			if ctx.Err() != nil {
				return r, interrupted(ctx, in.number)
			}
			f.progress(r, in.bytes, total)
		}
	}
	f.progress(r, in.bytes, total)
	if ctx.Err() != nil {
		return r, ctx.Err()
	}
	if err := f.checkUnchanged(before); err != nil {
		return r, err
	}
	switch {
	case !content:
		return r, errors.New("it is empty: a file for no orders has a header, id or order_id")
	case in.cut:
		return r, fmt.Errorf("line %d has no line end, so the file may be cut: end the last line, too", in.number)
	}
	return r, nil
}

// checkUnchanged returns an error if the file has changed.
func (f *File) checkUnchanged(before os.FileInfo) error {
	if before == nil {
		return nil
	}
	now, err := os.Stat(f.path)
	if err != nil || !os.SameFile(before, now) || before.Size() != now.Size() || !before.ModTime().Equal(now.ModTime()) {
		return errors.New("it has changed while it was read: write it under another name, and rename it when it is whole")
	}
	return nil
}

func interrupted(ctx context.Context, line int64) error {
	return fmt.Errorf("interrupted at line %d: %w", line, context.Cause(ctx))
}

// open returns the opened file and its state before it is read, nil for a stream.
func (f *File) open(ctx context.Context) (io.ReadCloser, os.FileInfo, error) {
	if f.path == stdinPath {
		if f.stdinRead {
			return nil, nil, errors.New("it was read before, and cannot be read again")
		}
		f.stdinRead = true
		return interruptible(ctx, f.copyStdin), nil, nil
	}
	info, err := os.Stat(f.path)
	switch {
	case err != nil:
		return nil, nil, cause(err)
	case info.IsDir():
		return nil, nil, errors.New("is a directory, not a file")
	case !info.Mode().IsRegular():
		return interruptible(ctx, f.copyStream), nil, nil
	}
	file, err := os.Open(f.path)
	if err != nil {
		return nil, nil, cause(err)
	}
	if info, err = file.Stat(); err != nil {
		file.Close()
		return nil, nil, cause(err)
	}
	if age := time.Since(info.ModTime()); age < minFileAge {
		_ = wait.For(ctx, min(minFileAge-age, minFileAge)) // reading finds that ctx has ended
	}
	return file, info, nil
}

// cause removes the operation and path from an error. Read names them itself.
func cause(err error) error {
	if e, ok := errors.AsType[*os.PathError](err); ok {
		return e.Err
	}
	return err
}

func (f *File) progress(r Report, done, total int64) {
	if f.opts.Progress != nil {
		f.opts.Progress(Step{IDs: r.IDs, Done: done, Total: total})
	}
}

// line processes one line. It returns the error of yield, and reports a bad line.
func (f *File) line(r *Report, number int64, line []byte, yield func(string) error) error {
	field, reason := firstColumn(line)
	if reason == "" && (len(field) == 0 && len(line) == 0 || r.IDs+r.Skipped == 0 && isHeader(field)) {
		return nil
	}
	if reason == "" && len(field) == 0 {
		reason = "the first column is empty"
	}
	if reason == "" {
		id := string(field)
		if reason = f.opts.Check(id); reason == "" {
			r.IDs++
			return yield(id)
		}
	}
	r.addBad(func() string { return "line " + strconv.FormatInt(number, 10) }, reason)
	return nil
}

// firstColumn returns the text before the first comma, without blanks and quotes, or the reason why
// it cannot.
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
