package follow

import "strings"

// Columns returns the columns of a full ID: those of its parts, and then the ID's own.
func (o *Options) Columns() []string {
	return append(append(make([]string, 0, len(o.PartColumns)+1), o.PartColumns...), o.IDColumn)
}

// Compose returns the full ID of the texts of these columns, or the reason why they are none.
func (o *Options) Compose(texts []string) (id, bad string) {
	if len(texts) == 1 {
		return texts[0], o.Check(texts[0])
	}
	for _, text := range texts {
		switch {
		case text == "":
			return "", "a part of the ID is empty"
		case strings.Contains(text, "/"):
			return "", "a slash in a part of the ID"
		}
	}
	id = strings.Join(texts, "/")
	return id, o.Check(id)
}
