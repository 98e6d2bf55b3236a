package explain

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/ordergate/ordergate/config"
	"github.com/ordergate/ordergate/internal/admin"
)

// meanings are the conditions under which a backend's answer has a meaning.
type meanings struct {
	Failed []string `json:"failed"`
	Absent []string `json:"absent"`
	Done   []string `json:"done"`
}

// meaningsOf describes what answers mean; nil: the file does not say.
func meaningsOf(a *config.Answer) *meanings {
	if a == nil {
		return nil
	}
	return &meanings{describeAll(a.Failed), describeAll(a.Absent), describeAll(a.Done)}
}

func describeAll(conditions []config.AnswerCondition) []string {
	texts := make([]string, len(conditions))
	for i, c := range conditions {
		texts[i] = admin.Visible(describeCondition(c))
	}
	return texts
}

// describeCondition describes a condition on one line, in the words of the file.
func describeCondition(c config.AnswerCondition) string {
	var parts []string
	if len(c.Status) > 0 {
		statuses := make([]string, len(c.Status))
		for i, s := range c.Status {
			statuses[i] = string(s)
		}
		parts = append(parts, "status "+strings.Join(statuses, " or "))
	}
	for _, name := range slices.Sorted(maps.Keys(c.Header)) {
		parts = append(parts, fmt.Sprintf("header %s matches %s", name, c.Header[name]))
	}
	if c.ContentType != "" {
		parts = append(parts, "content_type "+c.ContentType)
	}
	for _, m := range c.JSON {
		text := "json " + m.Path
		switch {
		case m.Exists == "true":
			text += " exists"
		case m.Exists != "":
			text += " does not exist"
		case len(m.Is) > 0:
			text += " is " + strings.Join(m.Is, " or ")
		default:
			text += " is there, and not " + strings.Join(m.Isnt, " or ")
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, " and ")
}

// Print writes a line for each meaning that an answer can have, in the order in which they count.
func (m *meanings) Print(line func(name, format string, args ...any)) {
	if m == nil {
		return
	}
	for _, of := range []struct {
		name       string
		conditions []string
	}{{"failed if", m.Failed}, {"absent if", m.Absent}, {"done if", m.Done}} {
		for _, c := range of.conditions {
			line(of.name, "%s", c)
		}
	}
}
