package engine

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/ordergate/ordergate/config"
	"github.com/ordergate/ordergate/filter"
)

// stamped is a source that can tell whether it has changed.
type stamped interface {
	// stamp tells the state of the source from any other, unless it is not ok.
	stamp(now time.Time) (s string, ok bool)
}

// settled is how old a change of a file has to be for its time to tell it from the
// next: some file systems count in steps of two seconds.
const settled = 2 * time.Second

// stamp implements stamped.
func (s *csvSource) stamp(now time.Time) (string, bool) {
	info, err := os.Stat(s.path)
	if err != nil || !info.Mode().IsRegular() || now.Sub(info.ModTime()) < settled {
		return "", false
	}
	return fmt.Sprintf("%q %d %d", s.path, info.Size(), info.ModTime().UnixNano()), true
}

// stamp implements stamped. What is in the table is told by its mark.
func (s *tableSource) stamp(time.Time) (string, bool) { return s.identity, true }

// stampOf tells the state of all sources of a filter from any other, together with
// the rules that say how their IDs are read; "" if it cannot be told.
func stampOf(sources []filter.Source, rules []config.ID, now time.Time) string {
	sum := sha256.New()
	for _, form := range forms(rules) {
		fmt.Fprintln(sum, form)
	}
	for _, source := range sources {
		s, ok := source.(stamped)
		if !ok {
			return ""
		}
		stamp, ok := s.stamp(now)
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

// rulesOf returns the forms of the IDs that a filter is asked for or told of.
func rulesOf(c *config.Config, name string) (ids []config.ID) {
	for _, r := range c.Rules {
		if r.Lookup != nil && r.Lookup.Filter == name || r.Create != nil && r.Create.Filter == name {
			ids = append(ids, r.IDs...)
		}
	}
	return ids
}

// forms returns what tells forms of IDs from others, each once, in their order: an ID
// that fits several has the day that the first of them tells.
func forms(ids []config.ID) (list []string) {
	for _, id := range ids {
		form := fmt.Sprintf("rule %q %d %d %q %+v", id.Format, id.MinLength, id.MaxLength, id.Pattern, id.Time)
		if !slices.Contains(list, form) {
			list = append(list, form)
		}
	}
	return list
}
