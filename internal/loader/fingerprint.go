package loader

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"time"

	"github.com/ordergate/ordergate/config"
	"github.com/ordergate/ordergate/filter"
	"github.com/ordergate/ordergate/internal/rules"
)

// fingerprinter is a source that can tell whether it has changed.
type fingerprinter interface {
	// stamp tells the state of the source from any other, unless it is not ok.
	fingerprint(now time.Time) (s string, ok bool)
}

// settled is how old a change of a file has to be for its time to tell it from the
// next: some file systems count in steps of two seconds.
const settled = 2 * time.Second

// stamp implements fingerprinter.
func (s *csvSource) fingerprint(now time.Time) (string, bool) {
	info, err := os.Stat(s.path)
	if err != nil || !info.Mode().IsRegular() || now.Sub(info.ModTime()) < settled {
		return "", false
	}
	return fmt.Sprintf("%q %d %d", s.path, info.Size(), info.ModTime().UnixNano()), true
}

// stamp implements fingerprinter. What is in the table is told by its mark.
func (s *tableSource) fingerprint(time.Time) (string, bool) { return s.identity, true }

// fingerprintOf tells the state of all sources of a filter from any other, together with
// the rules that say how their IDs are read; "" if it cannot be told.
func fingerprintOf(sources []filter.Source, ids []config.ID, now time.Time) string {
	sum := sha256.New()
	for _, form := range rules.Forms(ids) {
		fmt.Fprintln(sum, form)
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

// shortSum tells a text from others, in 16 characters.
func shortSum(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:8])
}
