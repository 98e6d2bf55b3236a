package accesslog

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"
)

// looksLikeHAR reports whether a file begins like a HAR file, and not like a log of objects.
func looksLikeHAR(begins []byte) bool {
	text := bytes.TrimLeft(begins, " \t\r\n")
	if !bytes.HasPrefix(text, []byte("{")) {
		return false
	}
	text, ok := bytes.CutPrefix(bytes.TrimLeft(text[1:], " \t\r\n"), []byte(`"log"`))
	text, colon := bytes.CutPrefix(bytes.TrimLeft(text, " \t\r\n"), []byte(":"))
	return ok && colon && !bytes.HasPrefix(bytes.TrimLeft(text, " \t\r\n"), []byte(`"`)) // else a line of Docker's
}

// harReader reads the entries of a HAR file, one after the other.
type harReader struct {
	decoder *json.Decoder
	entered bool
}

func newHARReader(in io.Reader) *harReader { return &harReader{decoder: json.NewDecoder(in)} }

// harEntry is an entry of HAR 1.2.
type harEntry struct {
	Started time.Time `json:"startedDateTime"`
	Time    float64   `json:"time"` // ms
	Request struct {
		Method   string `json:"method"`
		URL      string `json:"url"`
		Headers  []harPair
		Cookies  []harPair
		BodySize int64 `json:"bodySize"`
		PostData *struct {
			MimeType string `json:"mimeType"`
			Text     string `json:"text"`
		} `json:"postData"`
	} `json:"request"`
	Response struct {
		Status int `json:"status"`
	} `json:"response"`
}

type harPair struct{ Name, Value string }

// enter reads up to the first entry.
func (h *harReader) enter() error {
	for _, want := range []string{"log", "entries"} {
		if t, err := h.decoder.Token(); err != nil || t != json.Delim('{') {
			return fmt.Errorf("it has no object with %q: %w", want, noNil(err))
		}
		for found := false; !found; {
			t, err := h.decoder.Token()
			if err != nil || t == json.Delim('}') {
				return fmt.Errorf("it has no member %q: %w", want, noNil(err))
			}
			if found = t == want; found {
				break
			}
			var skipped json.RawMessage
			if err := h.decoder.Decode(&skipped); err != nil {
				return err
			}
		}
	}
	if t, err := h.decoder.Token(); err != nil || t != json.Delim('[') {
		return fmt.Errorf("its entries are no list: %w", noNil(err))
	}
	h.entered = true
	return nil
}

func noNil(err error) error {
	if err == nil {
		return io.ErrUnexpectedEOF
	}
	return err
}

func (r *Reader) nextOfHAR() (*Entry, error) {
	if !r.har.entered {
		if err := r.har.enter(); err != nil {
			return nil, fmt.Errorf("%s: reading HAR: %w", r.name, err)
		}
	}
	for r.har.decoder.More() {
		var h harEntry
		r.counts.Lines++
		if err := r.har.decoder.Decode(&h); err != nil {
			r.counts.Cut = fmt.Sprintf("it ends early, in entry %d: %v", r.counts.Lines, err)
			return nil, io.EOF
		}
		e := h.entry()
		e.Line = r.counts.Lines
		if !e.complete() {
			r.odd(h.Request.Method + " " + h.Request.URL)
			continue
		}
		return e, nil
	}
	if _, err := r.har.decoder.Token(); err != nil {
		r.counts.Cut = fmt.Sprintf("it ends early, behind entry %d: %v", r.counts.Lines, err)
	}
	return nil, io.EOF
}

func (h *harEntry) entry() *Entry {
	e := &Entry{
		Format: HAR, Start: h.Started, Duration: -1, Method: h.Request.Method, Target: h.Request.URL,
		Status: h.Response.Status, Details: ViaUpstream, Client: "the browser",
	}
	e.Target, _, _ = strings.Cut(e.Target, "#")
	if h.Time >= 0 {
		e.Duration = time.Duration(h.Time * float64(time.Millisecond))
	}
	for _, p := range h.Request.Headers {
		name := strings.ToLower(p.Name)
		if name == "" || name[0] == ':' || name == "host" {
			continue
		}
		e.Header = append(e.Header, [2]string{name, p.Value})
		e.Shows.Header = true
		e.Shows.Cookies = e.Shows.Cookies || name == "cookie"
	}
	switch data := h.Request.PostData; {
	case data != nil && data.Text != "":
		e.Body, e.Shows.Body = []byte(data.Text), true
	case h.Request.BodySize == 0 || e.Method == "GET" || e.Method == "HEAD":
		e.Shows.Body = true
	}
	return e
}
