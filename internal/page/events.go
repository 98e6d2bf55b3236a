package page

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"
)

const (
	// maxStreams bounds the browsers that look at the same time. A further one ends the oldest: a browser
	// that is there connects again.
	maxStreams = 32
	// allowance is how many bytes a stream sends a second, on average. With those of HTTP and of empty
	// events it stays below 2,000.
	allowance = 1950
	// streamTimeout bounds the time that a browser takes to read an event.
	streamTimeout = 5 * time.Second
)

// serveEvents sends parts of the page when they have changed, as many as the allowance lets through,
// those first that have waited longest.
func (p *Page) serveEvents(w http.ResponseWriter, r *http.Request) {
	over := p.enter()
	defer p.leave(over)
	control := http.NewResponseController(w)
	_ = control.SetReadDeadline(time.Time{}) // it would end the request
	w.Header().Set("Content-Type", "text/event-stream")
	since, _ := strconv.ParseInt(r.URL.Query().Get("since"), 10, 64)
	sent := make(map[string]time.Time)
	for _, id := range fragmentIDs {
		sent[id] = time.UnixMilli(since)
	}
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for left := allowance; ; left = min(left+allowance, allowance) {
		event, size := nextEvent(p.current(), sent, left)
		left -= size
		_ = control.SetWriteDeadline(time.Now().Add(streamTimeout))
		if _, err := w.Write(event); err != nil || control.Flush() != nil {
			return
		}
		select {
		case <-r.Context().Done():
			return
		case <-p.ended:
			return
		case <-over:
			return
		case <-tick.C:
		}
	}
}

// nextEvent returns the parts that a browser lacks. A part may exceed what is left, so that a large
// one has its turn; it then takes from the next ones.
func nextEvent(all []fragment, sent map[string]time.Time, left int) (event []byte, size int) {
	changed := slices.DeleteFunc(slices.Clone(all), func(f fragment) bool { return !f.changed.After(sent[f.ID]) })
	slices.SortStableFunc(changed, func(a, b fragment) int { return cmp.Compare(sent[a.ID].UnixNano(), sent[b.ID].UnixNano()) })
	parts := make(map[string]string)
	for _, f := range changed {
		if size < left {
			parts[f.ID], sent[f.ID] = string(f.HTML), f.changed
			size += len(f.HTML)
		}
	}
	if len(parts) == 0 {
		return []byte(": no change\n\n"), 0 // shows the browser that ordergate is there
	}
	var b bytes.Buffer
	b.WriteString("data: ")
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	_ = encoder.Encode(parts) // texts
	fmt.Fprintln(&b)
	return b.Bytes(), b.Len()
}

// enter adds a stream. The channel is closed when the stream has to end.
func (p *Page) enter() chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.streams) == maxStreams {
		close(p.streams[0])
		p.streams = slices.Delete(p.streams, 0, 1)
	}
	over := make(chan struct{})
	p.streams = append(p.streams, over)
	return over
}

func (p *Page) leave(over chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.streams = slices.DeleteFunc(p.streams, func(c chan struct{}) bool { return c == over })
}
