package source

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
)

// missing explains an error about a table or its columns. A server may report a missing right
// also if the table or the column does not exist. The catalogue shows what the user may read.
type missing struct {
	table   string
	columns []string
	grant   string   // gives the right that the server reports as missing; "": it reports none
	tables  []string // of the schema, that the user may read
	named   []string // the columns of the table that the user may read
}

func (m *missing) explain(err error) error {
	var advice []string
	if text := similar("table", m.table, m.tables); text != "" {
		advice = append(advice, text)
	} else {
		for _, column := range m.columns {
			others := slices.DeleteFunc(slices.Clone(m.named), func(one string) bool { return one != column && slices.Contains(m.columns, one) })
			if text := similar("column", column, others); text != "" && !slices.Contains(advice, text) {
				advice = append(advice, text)
			}
		}
	}
	if m.grant != "" {
		advice = append(advice, "if the table and its columns exist, the user needs: "+m.grant)
	}
	if advice == nil {
		return err
	}
	return fmt.Errorf("%w; %s", err, strings.Join(advice, "; "))
}

// maxListedNames bounds the names in an error.
const maxListedNames = 5

// similar returns advice on a name that is not among those that the user may read; "" if it is,
// or if there are none.
func similar(kind, name string, readable []string) string {
	if len(readable) == 0 || slices.ContainsFunc(readable, func(one string) bool { return strings.EqualFold(one, name) }) {
		return ""
	}
	word := strings.ToLower(name)
	near := slices.DeleteFunc(slices.Clone(readable), func(one string) bool {
		one = strings.ToLower(one)
		return !strings.Contains(one, word) && !strings.Contains(word, one)
	})
	if len(near) > 0 {
		best := slices.MinFunc(near, func(a, b string) int { return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b)) })
		return fmt.Sprintf("did you mean the %s %s instead of %s?", kind, best, name)
	}
	list := slices.Sorted(slices.Values(readable))
	more := ""
	if len(list) > maxListedNames {
		list, more = list[:maxListedNames], ", ..."
	}
	return fmt.Sprintf("there is no %s %s that the user may read, only %s%s", kind, name, strings.Join(list, ", "), more)
}

// readNames reads names from the catalogue. An error yields fewer names, which only help.
func readNames(ctx context.Context, c conn, s *statement) (list []string) {
	_ = c.query(ctx, s, func(columns [][]byte) { list = append(list, string(columns[0])) })
	return list
}
