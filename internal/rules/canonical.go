package rules

import (
	"fmt"
	"slices"
	"strings"

	"github.com/ordergate/ordergate/config"
	"github.com/ordergate/ordergate/internal/lazyregexp"
	"github.com/ordergate/ordergate/internal/order"
)

// Canonical returns the canonical form of a rule's order ID with its parts; false: the rule
// accepts no such ID.
func Canonical(r *config.Rule, id string) (canonical string, ok bool, err error) {
	formats, err := FormatsOfRule(r)
	if err != nil {
		return "", false, fmt.Errorf("rule %s: %w", r.Name, err)
	}
	for _, f := range formats {
		if canonical, ok := f.Canonical(id); ok {
			return canonical, true, nil
		}
	}
	return "", false, nil
}

// IsCanonical returns a function that reports whether a text is the canonical form of one of
// the IDs, without parts.
func IsCanonical(ids ...config.ID) (func(text string) bool, error) {
	formats := make([]order.Format, len(ids))
	for i := range ids {
		var err error
		if formats[i], err = format(ids[i]); err != nil {
			return nil, err
		}
	}
	return func(text string) bool {
		return slices.ContainsFunc(formats, func(f order.Format) bool {
			canonical, ok := f.Canonical(text)
			return ok && canonical == text
		})
	}, nil
}

// Wanted describes the order IDs that a rule accepts, with their parts, as in
// "TENANT/ORDER-ID (TENANT: a UUID; ORDER-ID: 1 to 19 digits without a leading zero)".
func Wanted(r *config.Rule) string {
	if r.IsBy() {
		return "the key of a lock, as locks list shows it: settle.by names no order"
	}
	var names, forms []string
	for _, part := range r.PartNames() {
		name := strings.ToUpper(part)
		names, forms = append(names, name), append(forms, name+": "+describe(r.Parts[part]))
	}
	const name = "ORDER-ID"
	names, forms = append(names, name), append(forms, name+": "+Accepted(r))
	return fmt.Sprintf("%s (%s)", strings.Join(names, order.Separator), strings.Join(forms, "; "))
}

// Accepted describes the order IDs that a rule accepts, without their parts.
func Accepted(r *config.Rule) string {
	var own []string
	for _, id := range r.IDs {
		if text := describe(id); !slices.Contains(own, text) {
			own = append(own, text)
		}
	}
	return strings.Join(own, " or ")
}

var (
	digitsOnly = lazyregexp.New(`^[0-9]+$`)
	likeUUID   = lazyregexp.New(`^[{(]?(?:[0-9A-Fa-f]-?){32}[})]?$`)
)

// OfKind reports whether an ID is of the kind of a rule's IDs, although the rule may refuse it:
// a number of another length, or a UUID in another spelling.
func OfKind(r *config.Rule, id string) bool {
	own := id[strings.LastIndex(id, order.Separator)+1:]
	return slices.ContainsFunc(r.IDs, func(of config.ID) bool {
		switch of.Format {
		case config.FormatPattern:
			return false
		case config.FormatUUID:
			return likeUUID.MatchString(own)
		}
		return digitsOnly.MatchString(own)
	})
}

// inCase says which letters a UUID of a case has, for those that do not fold.
var inCase = map[string]string{config.CaseAsIs: " with letters of one case"}

// describe says what an ID looks like.
func describe(id config.ID) string {
	length := fmt.Sprintf("%d to %d", id.MinLength, id.MaxLength)
	if id.MinLength == id.MaxLength {
		length = fmt.Sprint(id.MinLength)
	}
	most := ""
	if id.Max != "" {
		most = ", at most " + id.Max.Digits()
	}
	switch id.Format {
	case config.FormatUUID:
		return "a UUID" + inCase[id.Case]
	case config.FormatPattern:
		text := length + " bytes of the pattern " + id.Pattern
		if id.FoldsCase() {
			text += ", in any case"
		}
		return text
	case config.FormatTimestamped:
		if id.Time.Epoch != "" {
			return fmt.Sprintf("%s digits with a time in %s since 1970%s", length, id.Time.Epoch, most)
		}
		return fmt.Sprintf("%s digits with a date, as %s%s", length, id.Time.Layout, most)
	}
	return length + " digits without a leading zero" + most
}
