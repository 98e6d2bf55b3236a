package changelog

import (
	"fmt"
	"strings"
)

const (
	// fieldID is the field of an ID in the log. A field of IDs with parts continues with their
	// names: "id/tenant".
	fieldID = "id"
	// partSeparator is between the parts of an ID, as between their names.
	partSeparator = "/"
	// fieldInbox is the field of an ID from the inbox, which no ordergate has checked. One of an
	// earlier release takes it for an ID without parts.
	fieldInbox = fieldID + partSeparator
)

// fieldOf returns the field of an item in the log.
func (l *Log) fieldOf(i item) string {
	if i.field != fieldID || len(l.opts.Parts) == 0 {
		return i.field
	}
	return fieldID + partSeparator + strings.Join(l.opts.Parts, partSeparator)
}

// isIDField reports whether a field of an entry holds an ID.
func isIDField(field any) bool {
	name, ok := field.(string)
	return ok && (name == fieldID || strings.HasPrefix(name, fieldID+partSeparator))
}

// partsOf returns the names of the parts in a field of an ID.
func partsOf(field any) string {
	name, _ := field.(string)
	_, parts, _ := strings.Cut(name, partSeparator)
	return parts
}

// isForeign reports whether the ID of an entry has other parts than those of this log's IDs. An
// entry that does not name them is from the inbox, or of an instance without parts: the number of
// parts has to be right.
func (l *Log) isForeign(e *entry) bool {
	if e.parts == "" && len(l.opts.Parts) > 0 {
		return strings.Count(e.id, partSeparator) != len(l.opts.Parts)
	}
	return e.parts != strings.Join(l.opts.Parts, partSeparator)
}

// foreignDoubt is the doubt about the order of an entry whose ID has other parts.
func (l *Log) foreignDoubt(e *entry) Doubt {
	of := func(names string) string {
		if names == "" {
			return "without parts"
		}
		return "of " + strings.ReplaceAll(names, partSeparator, ", ")
	}
	return Doubt{Kind: Lost, Orders: true, Reason: fmt.Sprintf("the change log has IDs %s, and those of this filter are %s: another instance has another configuration, or had it",
		of(e.parts), of(strings.Join(l.opts.Parts, partSeparator)))}
}
