package kafka

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"strconv"
	"strings"
)

// Format is that of the messages of a topic.
type Format string

// The formats. Messages of both formats of rows are read under either: a topic may have old and new ones.
const (
	// Canal is the flat message of Canal: several rows in "data", whose values are texts.
	Canal Format = "canal-json"
	// Debezium is a change event: the row in "after", in a "payload" if it has a schema.
	Debezium Format = "debezium"
	// JSON is an object that has the ID itself.
	JSON Format = "json"
)

// row is a message of Canal or Debezium. Members that it lacks are empty.
type row struct {
	Payload json.RawMessage `json:"payload"` // of Debezium with a schema

	Data     json.RawMessage `json:"data"` // of Canal
	IsDDL    bool            `json:"isDdl"`
	Type     string          `json:"type"`
	Database string          `json:"database"`
	Table    string          `json:"table"`

	After  json.RawMessage `json:"after"` // of Debezium
	Op     string          `json:"op"`
	Source struct {
		DB     string `json:"db"`
		Schema string `json:"schema"`
		Table  string `json:"table"`
	} `json:"source"`
}

// idsIn returns the IDs of the orders that a message names, and why it, or a row of it, has none that is
// usable. Both are empty for a message about no row that is there: a deletion, a change of the layout.
func (o *Options) idsIn(message []byte) (ids []string, reason string) {
	if len(message) == 0 || string(message) == "null" {
		return nil, "" // a tombstone, for compaction
	}
	if o.Format == JSON {
		return o.idsOf(message)
	}
	var m row
	if err := json.Unmarshal(message, &m); err != nil {
		return nil, "it is no message of " + string(o.Format) + ": " + what(err)
	}
	if isObject(m.Payload) {
		inner := row{}
		if err := json.Unmarshal(m.Payload, &inner); err != nil {
			return nil, "it is no message of " + string(o.Format) + ": " + what(err)
		}
		m = inner
	}
	switch {
	case m.IsDDL, m.Op == "d", m.Op == "t", m.Op == "m", m.Type == "DELETE":
		return nil, ""
	case m.Op != "":
		if !o.isOfTable(m.Source.DB, m.Source.Table) && !o.isOfTable(m.Source.Schema, m.Source.Table) {
			return nil, ""
		}
		return o.idsOf(m.After)
	case m.Type != "":
		if !o.isOfTable(m.Database, m.Table) || m.Type != "INSERT" && m.Type != "UPDATE" {
			return nil, ""
		}
		var rows []json.RawMessage
		if err := json.Unmarshal(m.Data, &rows); err != nil {
			return nil, "its data are no list of rows"
		}
		for _, r := range rows {
			found, why := o.idsOf(r)
			if ids = append(ids, found...); why != "" {
				reason = why
			}
		}
		return ids, reason
	}
	return nil, "it is neither a message of Canal nor one of Debezium"
}

func (o *Options) isOfTable(database, table string) bool {
	of, name, qualified := strings.Cut(o.Table, ".")
	if !qualified {
		name, of = of, database
	}
	return o.Table == "" || strings.EqualFold(of, database) && strings.EqualFold(name, table)
}

// idsOf returns the ID in an object, with its parts.
func (o *Options) idsOf(object []byte) (ids []string, reason string) {
	var texts []string
	for _, path := range append(o.Parts[:len(o.Parts):len(o.Parts)], o.ID) {
		text, reason := member(object, path)
		if reason == "" && len(o.Parts) > 0 && (text == "" || strings.Contains(text, "/")) {
			reason = "is empty, or has a slash"
		}
		if reason != "" {
			return nil, strings.Join(path, ".") + " " + reason
		}
		texts = append(texts, text)
	}
	id := strings.Join(texts, "/")
	if reason := o.Check(id); reason != "" {
		return nil, reason
	}
	return []string{id}, ""
}

// member returns the text or the number at a path in an object, or why there is none.
func member(object []byte, path []string) (text, reason string) {
	for _, name := range path {
		var members map[string]json.RawMessage
		if json.Unmarshal(object, &members) != nil || members == nil {
			return "", "is missing: there is no object"
		}
		value, found := members[name]
		if !found {
			return "", "is missing"
		}
		object = value
	}
	decoder := json.NewDecoder(bytes.NewReader(object))
	decoder.UseNumber()
	var value any
	if err := decoder.Decode(&value); err != nil {
		return "", what(err)
	}
	switch value := value.(type) {
	case string:
		return value, ""
	case json.Number:
		return wholeNumber(value.String())
	}
	return "", "is neither a text nor a number"
}

// maxExponent bounds the exponent of a number that is an ID: one with more digits is none.
const maxExponent = 64

// wholeNumber returns a number without a fraction and an exponent: 42.0 and 4.2e1 are 42.
func wholeNumber(text string) (whole, reason string) {
	if !strings.ContainsAny(text, ".eE") {
		return text, ""
	}
	_, exponent, _ := strings.Cut(strings.ToLower(text), "e")
	if digits := strings.TrimLeft(exponent, "+-0"); len(text) > maxExponent || len(digits) > 2 || len(digits) == 2 && digits > "64" {
		return "", "is a number of too many digits"
	}
	n, ok := new(big.Rat).SetString(text)
	if !ok || !n.IsInt() {
		return "", "is a number with a fraction"
	}
	return n.Num().String(), ""
}

func isObject(raw json.RawMessage) bool { return len(raw) > 0 && raw[0] == '{' }

// what returns an error of package json without the message, which may have a client's data in it.
func what(err error) string {
	if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
		return fmt.Sprintf("invalid JSON at byte %d", syntax.Offset)
	}
	if other, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return "its member " + strconv.Quote(other.Field) + " has another type than it should"
	}
	return "invalid JSON"
}
