// Package accesslog reads requests from access logs (Envoy's text and JSON, nginx, Apache) and from
// HAR files, compressed by gzip or not.
//
// Start with [Open] and [Reader.Next]. Each line is read by its own form, so one log may have
// several. The package decides nothing about a request.
package accesslog

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/ordergate/ordergate/internal/order"
)

// Format is the form of a log.
type Format string

// The formats.
const (
	Any      Format = ""
	Envoy    Format = "envoy"    // the default text, or Istio's
	JSON     Format = "json"     // an object a line
	Combined Format = "combined" // nginx or Apache, which look alike
	Nginx    Format = "nginx"    // the same: a line has the time at which its request ended
	Apache   Format = "apache"   // the same: the time at which it began
	HAR      Format = "har"
)

// Formats are those that [Open] takes.
var Formats = []Format{Envoy, JSON, Nginx, Apache, HAR}

// Entry is a request as a log shows it. What the log lacks is empty.
type Entry struct {
	Format   Format
	Line     int64         // from 1; of a HAR file the number of the entry
	Start    time.Time     // in the zone of the line; zero: unknown
	Duration time.Duration // negative: unknown
	Method   string
	Target   string // as sent
	Host     string
	Status   int    // 0: unknown
	Details  string // Envoy's response.code_details; via_upstream where a log does not say
	Client   string // address and user agent; "": unknown

	Header order.HeaderList // of a HAR file
	Body   []byte
	Shows  Parts
	ended  time.Time // of a line with the time of the end
}

// Parts are what an entry shows of a request, beside its method, host and target.
type Parts struct{ Header, Cookies, Body bool }

// Counts are the lines of a log, and those that are no requests.
type Counts struct {
	Lines     int64
	Long      int64 // of more than [MaxLine] bytes
	FirstLong int64 // number of the line
	Odd       int64 // in no known form, or with something that is no request
	FirstOdd  int64
	OddText   string // the beginning of the first odd line
	Cut       string // why the log ends early; "": it does not
}

// MaxLine is the longest line that is read, in bytes.
const MaxLine = 256 << 10

// probedLines is how many lines are read until one of them is a request.
const probedLines = 1000

// Reader reads one log. It is not safe for concurrent use.
type Reader struct {
	name   string
	format Format
	in     *bufio.Reader
	har    *harReader // nil: lines
	counts Counts
	first  *Entry // read by Open
}

// Open reads the beginning of a log. Its error says that the log has no request in a known form, or
// none in the given one. The name is for errors.
func Open(name string, in io.Reader, format Format) (*Reader, error) {
	r := &Reader{name: name, format: format, in: bufio.NewReaderSize(in, MaxLine)}
	if err := r.decompress(); err != nil {
		return nil, err
	}
	if begins, _ := r.in.Peek(3); bytes.Equal(begins, []byte("\xef\xbb\xbf")) {
		_, _ = r.in.Discard(len(begins))
	}
	begins, err := r.in.Peek(4 << 10)
	if unread := (*fs.PathError)(nil); errors.As(err, &unread) && len(begins) == 0 {
		return nil, fmt.Errorf("%s: %w", name, unread.Err)
	}
	if bytes.HasPrefix(begins, []byte("\xff\xfe")) || bytes.HasPrefix(begins, []byte("\xfe\xff")) {
		return nil, fmt.Errorf("%s is in UTF-16: convert it to UTF-8", name)
	}
	if len(begins) == 0 && (err == nil || errors.Is(err, io.EOF)) {
		return nil, fmt.Errorf("%s is empty", name)
	}
	if format == HAR || format == Any && looksLikeHAR(begins) {
		r.har = newHARReader(r.in)
	}
	e, err := r.Next()
	switch {
	case err == nil:
		r.first = e
		return r, nil
	case !errors.Is(err, io.EOF):
		return nil, err
	case r.counts.Cut != "":
		return nil, fmt.Errorf("%s has no request: %s", name, r.counts.Cut)
	case r.counts.Long > 0 && r.counts.Odd == 0:
		return nil, fmt.Errorf("%s has no request: line %d has more than %d bytes", name, r.counts.FirstLong, MaxLine)
	case r.har != nil:
		return nil, fmt.Errorf("%s has no request: a HAR file has log.entries", name)
	}
	return nil, fmt.Errorf("%s has no request in its first %d lines: want %s; line %d begins with %q", name, r.counts.Lines, r.wants(), r.counts.FirstOdd, r.counts.OddText)
}

// wants describes the forms that the reader accepts.
func (r *Reader) wants() string {
	switch r.format {
	case Any:
		return "Envoy's default access log or a JSON object a line, a combined log of nginx or Apache, or a HAR file"
	case Envoy:
		return "Envoy's default access log"
	case JSON:
		return "a JSON object a line"
	}
	return "a combined log of nginx or Apache"
}

// compressions are files that other programs have to unpack.
var compressions = map[string]string{"BZh": "bzip2", "\xfd7zXZ": "xz", "\x28\xb5\x2f\xfd": "zstd", "PK\x03\x04": "zip"}

func (r *Reader) decompress() error {
	begins, _ := r.in.Peek(6)
	if bytes.HasPrefix(begins, []byte{0x1f, 0x8b}) {
		unpacked, err := gzip.NewReader(r.in)
		if err != nil {
			return fmt.Errorf("%s: reading gzip: %w", r.name, err)
		}
		r.in = bufio.NewReaderSize(unpacked, MaxLine)
		return nil
	}
	for magic, by := range compressions {
		if strings.HasPrefix(string(begins), magic) {
			return fmt.Errorf("%s is compressed by %s: only gzip is read; unpack it first", r.name, by)
		}
	}
	return nil
}

// Name returns the name of the log.
func (r *Reader) Name() string { return r.name }

// Counts returns what was read so far.
func (r *Reader) Counts() Counts { return r.counts }

// Next returns the next request. It skips other lines, and counts them. The error is io.EOF at the
// end of the log, also if it ends early.
func (r *Reader) Next() (*Entry, error) {
	if e := r.first; e != nil {
		r.first = nil
		return e, nil
	}
	if r.har != nil {
		return r.nextOfHAR()
	}
	for {
		line, err := r.line()
		if err != nil {
			return nil, err
		}
		if len(line) == 0 {
			continue
		}
		e := parse(string(line), r.format)
		if e == nil {
			r.odd(string(line))
			if r.first == nil && r.counts.Odd+r.counts.Long == r.counts.Lines && r.counts.Lines >= probedLines {
				return nil, io.EOF // Open reports it
			}
			continue
		}
		e.Line = r.counts.Lines
		return e, nil
	}
}

// maxShown bounds the beginning of a line that is shown, in bytes.
const maxShown = 60

func (r *Reader) odd(text string) {
	if r.counts.Odd++; r.counts.Odd == 1 {
		r.counts.FirstOdd, r.counts.OddText = r.counts.Lines, text[:min(len(text), maxShown)]
	}
}

// line returns the next line without its end. It skips lines that are too long.
func (r *Reader) line() ([]byte, error) {
	for {
		line, err := r.in.ReadSlice('\n')
		if len(line) == 0 && err != nil {
			return nil, r.end(err)
		}
		r.counts.Lines++
		if !errors.Is(err, bufio.ErrBufferFull) {
			if err != nil && !errors.Is(err, io.EOF) {
				return nil, r.end(err)
			}
			return bytes.TrimRight(line, "\r\n"), nil
		}
		if r.counts.Long++; r.counts.Long == 1 {
			r.counts.FirstLong = r.counts.Lines
		}
		for errors.Is(err, bufio.ErrBufferFull) {
			_, err = r.in.ReadSlice('\n')
		}
		if err != nil {
			return nil, r.end(err)
		}
	}
}

// end notes why a log ends.
func (r *Reader) end(err error) error {
	if !errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		r.counts.Cut = fmt.Sprintf("it ends early, in line %d: %v", r.counts.Lines, err)
	}
	return io.EOF
}

// parse reads one line; nil: it is no request.
func parse(line string, format Format) *Entry {
	e := &Entry{Duration: -1}
	line = withoutDocker(line)
	start := strings.IndexByte(line, '{')
	var ok bool
	switch {
	case format == JSON || format == Any && start >= 0 && !strings.Contains(line[:start], `] "`):
		ok = start >= 0 && parseJSON(line[start:], e)
	default:
		ok = parseText(line, format, e)
	}
	if !ok || !e.complete() {
		return nil
	}
	return e
}

// withoutDocker returns the line that a line of Docker's log files has as {"log":"...\n", ...}.
func withoutDocker(line string) string {
	text, ok := strings.CutPrefix(line, `{"log":`)
	if !ok {
		return line
	}
	text = strings.TrimLeft(text, " ")
	end := quoteEnd(text[min(1, len(text)):])
	if end < 0 {
		return line
	}
	inner, err := jsontext.AppendUnquote(nil, text[:end+2])
	if err != nil {
		return line
	}
	return strings.TrimRight(string(inner), "\r\n")
}

// complete reports whether the entry is a request, and gives its target the form that a gate sees.
func (e *Entry) complete() bool {
	for _, scheme := range []string{"http://", "https://"} {
		if rest, ok := strings.CutPrefix(e.Target, scheme); ok {
			slash := strings.IndexAny(rest, "/?")
			if slash < 0 {
				slash, rest = len(rest), rest+"/"
			}
			e.Host, e.Target = rest[:slash], rest[slash:]
			if e.Target[0] == '?' {
				e.Target = "/" + e.Target
			}
		}
	}
	if e.Host == "-" {
		e.Host = ""
	}
	if !e.ended.IsZero() {
		e.Start = e.ended.Add(-max(e.Duration, 0))
	}
	return strings.HasPrefix(e.Target, "/") && isMethod(e.Method)
}

func isMethod(text string) bool {
	for i := range len(text) {
		if c := text[i]; c < 'A' || c > 'Z' && c != '_' && (c < 'a' || c > 'z') {
			if c != '-' {
				return false
			}
		}
	}
	return text != "" && text != "-"
}
