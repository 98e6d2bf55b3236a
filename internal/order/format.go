package order

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ordergate/ordergate/internal/orderid"
)

// Kind names a family of ID formats.
type Kind int8

// The kinds of ID.
const (
	Digits      Kind = iota // ASCII digits without a leading zero (0 itself is one)
	UUID                    // 8-4-4-4-12 hexadecimal digits
	Pattern                 // the whole text matches a regular expression
	Timestamped             // Digits, some of which are a date
	Snowflake               // Digits, a number whose upper bits count milliseconds
	Composed                // parts and an ID, see [ComposedOf]
	Hashed                  // any token, such as a session; canonical as a keyed hash
)

// Case is what the canonical form of an ID does to the case of ASCII letters.
type Case int8

// The cases. A UUID of letters in both cases is no UUID AsIs.
const (
	AsIs Case = iota
	Lower
	Upper
)

// of returns a text in a case.
func (c Case) of(text string) string {
	switch c {
	case Lower:
		return strings.ToLower(text)
	case Upper:
		return strings.ToUpper(text)
	}
	return text
}

// Format decides which texts are order IDs. It refuses everything else, and never trims or
// repairs: where one backend trims, another sees a different order.
type Format struct {
	Kind     Kind
	Min, Max int            // length in bytes, inclusive; not used with UUID
	Pattern  *regexp.Regexp // with kind Pattern, see [CompilePattern]
	Case     Case           // of UUID and Pattern

	// Largest is the largest number that is an ID, in digits; not used with UUID and Pattern.
	// Without it, that is 2^63-1, or there is no limit if Max allows more digits.
	Largest string

	// Layout of Timestamped is one of package time, as many digits as the date in the ID, in
	// UTC; or it is EpochMillis or EpochSeconds.
	Layout string
	At     int // Timestamped: offset of the date in the ID, bytes

	Epoch time.Time // Snowflake: the time at which the count starts
	Shift int       // Snowflake: number of bits below the count

	Composite *Composite // Composed

	Key      string // Hashed: the secret of the hash
	AsHeader bool   // Hashed: the token is in a header, and may have characters that are encoded elsewhere
}

// Layouts of a Timestamped ID that counts from 1970. The count has a fixed number of digits.
const (
	EpochMillis  = "ms" // 13 digits, as of System.currentTimeMillis()
	EpochSeconds = "s"  // 10 digits
)

// dateLength returns the number of digits that are the date in a Timestamped ID.
func (f *Format) dateLength() int {
	switch f.Layout {
	case EpochMillis:
		return 13
	case EpochSeconds:
		return 10
	}
	return len(f.Layout)
}

// CompilePattern compiles an RE2 expression so that it has to match a whole ID. Unless the case is
// AsIs, it matches letters in both cases.
func CompilePattern(expr string, c Case) (*regexp.Regexp, error) {
	// Compile it alone first: "a)|(b" must not escape the anchors below.
	if _, err := regexp.Compile(expr); err != nil {
		return nil, fmt.Errorf("compiling pattern: %w", err)
	}
	flag := ""
	if c != AsIs {
		flag = "i"
	}
	return regexp.Compile(`\A(?` + flag + `:` + expr + `)\z`)
}

func (f *Format) check() error {
	switch {
	case f.Kind == UUID || f.Kind == Hashed:
		return nil
	case f.Kind == Composed:
		return f.Composite.check()
	case f.Min < 1 || f.Max < f.Min || f.Max > orderid.MaxBytes:
		return fmt.Errorf("ID lengths %d to %d are not within 1 to %d", f.Min, f.Max, orderid.MaxBytes)
	case f.Kind == Pattern && f.Pattern == nil:
		return errors.New("no pattern")
	case f.Kind == Timestamped && (f.Layout == "" || f.At < 0 || f.At+f.dateLength() > f.Max):
		return errors.New("the date does not fit into the ID")
	case f.Kind == Snowflake && (f.Shift < 0 || f.Shift > 62 || f.Epoch.IsZero()):
		return errors.New("a snowflake without an epoch")
	}
	return nil
}

// Canonical returns the only accepted spelling of an ID, or false if the text is not an ID.
// It takes linear time, and is idempotent but for Hashed. It allocates only for letters of another
// case, and for Hashed.
func (f *Format) Canonical(text string) (string, bool) {
	switch f.Kind {
	case Digits:
		return text, f.isNumber(text)
	case UUID:
		return f.uuid(text)
	case Pattern:
		if !f.lengthOK(text) || !isSafe(text) || !f.Pattern.MatchString(text) {
			return "", false
		}
		return f.Case.of(text), true
	case Timestamped, Snowflake:
		if !f.isNumber(text) {
			return "", false
		}
		_, ok := f.Time(text)
		return text, ok
	case Composed:
		return f.Composite.canonical(text)
	case Hashed:
		return f.hash(text)
	}
	return "", false
}

// CanonicalForms returns the canonical forms of a text by several formats, without
// duplicates: the first, and the others if formats differ. If no format accepts the text,
// it returns the text. It allocates only for others, or as Canonical does.
func CanonicalForms(formats []Format, text string) (first string, others []string) {
	asked := false
	for i := range formats {
		id, ok := formats[i].Canonical(text)
		switch {
		case !ok:
		case !asked:
			first, asked = id, true
		case id != first && !slices.Contains(others, id):
			others = append(others, id)
		}
	}
	if !asked {
		first = text
	}
	return first, others
}

// Time returns the creation time in a canonical ID. Only Timestamped and Snowflake IDs
// contain one. It returns false if the date does not exist.
func (f *Format) Time(id string) (time.Time, bool) {
	switch f.Kind {
	case Timestamped:
		return f.date(id)
	case Snowflake:
		n, err := strconv.ParseInt(id, 10, 64)
		if err != nil {
			return time.Time{}, false
		}
		return f.Epoch.Add(time.Duration(n>>f.Shift) * time.Millisecond), true
	case Composed:
		return f.OfID().Time(withoutParts(id))
	}
	return time.Time{}, false
}

// date returns the time in a Timestamped ID.
func (f *Format) date(id string) (time.Time, bool) {
	end := f.At + f.dateLength()
	if len(id) < end {
		return time.Time{}, false
	}
	text := id[f.At:end]
	if f.Layout != EpochMillis && f.Layout != EpochSeconds {
		t, err := time.ParseInLocation(f.Layout, text, time.UTC)
		return t, err == nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if f.Layout == EpochMillis {
		return time.UnixMilli(n).UTC(), err == nil
	}
	return time.Unix(n, 0).UTC(), err == nil
}

func (f *Format) lengthOK(text string) bool { return f.Min <= len(text) && len(text) <= f.Max }

// largest is the largest number that backends compute with, 2^63-1: PHP reads any larger
// number as this one.
const largest = "9223372036854775807"

// isNumber accepts digits up to the largest number. A backend that reads IDs into a narrower
// type takes a larger number for that of another order.
func (f *Format) isNumber(text string) bool {
	if !f.lengthOK(text) || !isDigits(text) {
		return false
	}
	most := f.MaxNumber()
	return most == "" || len(text) < len(most) || len(text) == len(most) && text <= most
}

// MaxNumber returns the largest number that is an ID, in digits; "": there is no limit, or IDs
// are not numbers. A format that allows more digits than 2^63-1 has, and no largest number,
// declares that the backend treats IDs as text.
func (f *Format) MaxNumber() string {
	switch {
	case f.Kind == UUID || f.Kind == Pattern || f.Kind == Composed || f.Kind == Hashed:
		return ""
	case f.Largest != "" || f.Max > len(largest):
		return f.Largest
	}
	return largest
}

func isDigits(text string) bool {
	if text[0] == '0' && len(text) > 1 {
		return false // a backend that parses numbers takes 042 and 42 for one order
	}
	for i := range len(text) {
		if text[i] < '0' || text[i] > '9' {
			return false
		}
	}
	return true
}

// isSafe refuses characters that backends fold, decode, split at or strip (white space,
// escapes, separators, non-ASCII), even if the user's pattern accepts them. Braces could
// turn one lock's key into another, or move it to another slot of a cluster.
func isSafe(text string) bool {
	for i := range len(text) {
		if c := text[i]; c <= ' ' || c >= 0x7f || strings.IndexByte(`%;,/\?#&+"{}`, c) >= 0 {
			return false
		}
	}
	return text != "." && text != ".."
}

// uuidBytes is the length of a UUID.
const uuidBytes = 36

func (f *Format) uuid(text string) (string, bool) {
	if len(text) != uuidBytes {
		return "", false
	}
	lower, upper := false, false
	for i := range len(text) {
		c := text[i]
		switch {
		case i == 8 || i == 13 || i == 18 || i == 23:
			if c != '-' {
				return "", false
			}
		case '0' <= c && c <= '9':
		case 'a' <= c && c <= 'f':
			lower = true
		case 'A' <= c && c <= 'F':
			upper = true
		default:
			return "", false
		}
	}
	return f.Case.of(text), f.Case != AsIs || !lower || !upper
}
