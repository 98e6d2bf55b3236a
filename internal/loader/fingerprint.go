package loader

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"time"

	"github.com/ordergate/ordergate/filter"
	"github.com/ordergate/ordergate/internal/rules"
)

// fingerprinter is a source that detects its changes.
type fingerprinter interface {
	// fingerprint identifies the state of the source, if ok.
	fingerprint(now time.Time) (s string, ok bool)
}

// minFileAge is the least age of a file whose time distinguishes it from its next version: some
// file systems have a resolution of two seconds.
const minFileAge = 2 * time.Second

// fingerprint implements fingerprinter.
func (s *csvSource) fingerprint(now time.Time) (string, bool) {
	info, err := os.Stat(s.path)
	if err != nil || !info.Mode().IsRegular() || now.Sub(info.ModTime()) < minFileAge {
		return "", false
	}
	return fmt.Sprintf("%q %d %d", s.path, info.Size(), info.ModTime().UnixNano()), true
}

// fingerprint implements fingerprinter. The mark records the content of the table.
func (s *tableSource) fingerprint(time.Time) (string, bool) { return s.identity, true }

// fingerprintOf returns a fingerprint of the state of all sources of a filter, of the parts of its
// IDs, and of the rules by which they are read; "": unknown.
func fingerprintOf(sources []filter.Source, parts []string, ids []rules.ID, now time.Time) string {
	sum := sha256.New()
	for _, form := range rules.Forms(ids) {
		fmt.Fprintln(sum, form)
	}
	if len(parts) > 0 {
		fmt.Fprintf(sum, "parts %q\n", parts)
	}
	for _, source := range sources {
		s, ok := source.(fingerprinter)
		if !ok {
			return ""
		}
		stamp, ok := s.fingerprint(now)
		if !ok {
			return ""
		}
		fmt.Fprintf(sum, "source %s\n", stamp)
	}
	return hex.EncodeToString(sum.Sum(nil))
}

// shortSum returns a hash of a text, in 16 characters.
func shortSum(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:8])
}
