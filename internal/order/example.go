package order

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Example returns a request with a method that falls under the rule and names an order. The order is
// the largest that its format allows, so hardly any backend has it. The error says for which ID no
// text was found.
func (r *Rule) Example(method string) (Request, error) {
	e := example{query: []string{}, members: make(map[string]any)}
	segments, err := parseTemplate(r.Path)
	if err != nil {
		return Request{}, err
	}
	for _, name := range slices.Sorted(maps.Keys(r.Query)) {
		e.query = append(e.query, name+"="+r.Query[name][0])
	}
	ids := r.exampleIDs()
	paths := make(map[string]string)
	for _, id := range ids {
		text, ok := id.Format.Example()
		if !ok {
			return Request{}, fmt.Errorf("no example of an ID was found for the format of %s", id.Name+strings.Join(id.Members, "."))
		}
		if id.In == InPath {
			paths[id.Name] = text
			continue
		}
		e.put(id, text)
	}
	path := ""
	for _, s := range segments {
		switch text, isID := paths[s.text]; {
		case s.isVar && isID:
			path += "/" + text
		case s.isVar:
			path += "/1"
		default:
			path += "/" + s.text
		}
	}
	return e.request(method, r.Host, path)
}

// exampleIDs returns the places that a request has to fill: one of the order's, its parts, and the
// limit's.
func (r *Rule) exampleIDs() (ids []*ID) {
	inPath := slices.IndexFunc(r.IDs, func(id ID) bool { return id.In == InPath })
	switch {
	case inPath >= 0:
		ids = append(ids, &r.IDs[inPath])
	case len(r.IDs) > 0:
		ids = append(ids, &r.IDs[0])
	}
	for i := range r.Parts {
		ids = append(ids, &r.Parts[i].ID)
	}
	if r.Limit != nil {
		ids = append(ids, r.Limit)
	}
	return ids
}

// example collects the parts of a request.
type example struct {
	query, form, cookies []string
	headers              HeaderList
	members              map[string]any // of the JSON body
	hasJSON              bool
}

func (e *example) put(id *ID, text string) {
	pair := id.Name + "=" + text
	switch id.In {
	case InQuery:
		e.query = append(e.query, pair)
	case InHeader:
		e.headers = append(e.headers, [2]string{id.Name, text})
	case InCookie:
		e.cookies = append(e.cookies, pair)
	case InForm:
		e.form = append(e.form, pair)
	case InJSON:
		e.hasJSON = true
		e.putMember(id, text)
	}
}

func (e *example) putMember(id *ID, text string) {
	var value any = text
	if id.JSONType == OnlyNumber {
		value = json.Number(text)
	}
	if id.List && id.Separator == "" {
		value = []any{value}
	}
	at := e.members
	for _, name := range id.Members[:len(id.Members)-1] {
		below, ok := at[name].(map[string]any)
		if !ok {
			below = make(map[string]any)
			at[name] = below
		}
		at = below
	}
	at[id.Members[len(id.Members)-1]] = value
}

// request puts the parts together.
func (e *example) request(method, host, path string) (Request, error) {
	req := Request{Method: method, Host: host, Target: path, BodyState: BodyComplete}
	if len(e.query) > 0 {
		req.Target += "?" + strings.Join(e.query, "&")
	}
	if len(e.cookies) > 0 {
		e.headers = append(e.headers, [2]string{"cookie", strings.Join(e.cookies, "; ")})
	}
	switch {
	case e.hasJSON && len(e.form) > 0:
		return req, errors.New("the rule reads a form and JSON, and a request has one body")
	case e.hasJSON:
		body, err := json.Marshal(e.members)
		if err != nil {
			return req, err
		}
		req.Body = body
		e.headers = append(e.headers, [2]string{"content-type", typeJSON})
	case len(e.form) > 0:
		req.Body = []byte(strings.Join(e.form, "&"))
		e.headers = append(e.headers, [2]string{"content-type", typeForm})
	}
	if len(req.Body) > 0 {
		e.headers = append(e.headers, [2]string{"content-length", strconv.Itoa(len(req.Body))})
	}
	req.Header = e.headers
	return req, nil
}

// Example returns the largest ID of a format, or one like it. It returns false if it finds none.
func (f *Format) Example() (text string, ok bool) {
	switch f.Kind {
	case Digits:
		text = strings.Repeat("9", f.Max)
		if most := f.MaxNumber(); most != "" && (len(text) > len(most) || len(text) == len(most) && text > most) {
			text = most
		}
	case Timestamped:
		text = strings.Repeat("1", f.At) + f.exampleDate(time.Now().UTC())
		text += strings.Repeat("9", max(0, f.Min-len(text)))
	case Snowflake:
		text = strconv.FormatInt(time.Since(f.Epoch).Milliseconds()<<f.Shift, 10)
	case UUID:
		text = "ffffffff-ffff-4fff-bfff-ffffffffffff"
	case Hashed:
		text = "ordergate-doctor-ordergate"
	case Pattern:
		return f.examplePattern()
	default:
		return "", false
	}
	_, ok = f.Canonical(text)
	return text, ok
}

func (f *Format) exampleDate(now time.Time) string {
	switch f.Layout {
	case EpochMillis:
		return strconv.FormatInt(now.UnixMilli(), 10)
	case EpochSeconds:
		return strconv.FormatInt(now.Unix(), 10)
	}
	return now.Format(f.Layout)
}
