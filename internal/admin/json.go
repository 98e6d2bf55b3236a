package admin

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"strings"
	"time"
)

// WriteJSON writes a value as indented JSON, without escapes for HTML.
func WriteJSON(w io.Writer, value any) error {
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	return encoder.Encode(value)
}

// Seconds is a duration. In JSON it is a number of seconds, to a microsecond.
type Seconds time.Duration

// SecondsOf rounds a duration to a millisecond.
func SecondsOf(d time.Duration) Seconds { return Seconds(d.Round(time.Millisecond)) }

// String returns the duration in the notation of Go, such as "1m30s".
func (s Seconds) String() string { return time.Duration(s).String() }

// MarshalJSON returns the number of seconds.
func (s Seconds) MarshalJSON() ([]byte, error) {
	return json.Marshal(float64(time.Duration(s).Microseconds()) / 1e6)
}

// UnmarshalJSON reads a number of seconds.
func (s *Seconds) UnmarshalJSON(text []byte) error {
	var seconds float64
	if err := json.Unmarshal(text, &seconds); err != nil {
		return err
	}
	*s = Seconds(math.Round(seconds*1e6)) * Seconds(time.Microsecond)
	return nil
}

// Visible replaces each byte outside visible ASCII by \xNN. It keeps blanks.
func Visible(text string) string {
	var b strings.Builder
	for i := range len(text) {
		if c := text[i]; ' ' <= c && c < 0x7f {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, `\x%02x`, c)
		}
	}
	return b.String()
}

// NilIf returns nil if value equals none, and else a pointer to value.
func NilIf[T comparable](none, value T) *T {
	if value == none {
		return nil
	}
	return &value
}
