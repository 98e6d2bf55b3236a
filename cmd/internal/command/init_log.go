package command

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/ordergate/ordergate/internal/accesslog"
	"github.com/ordergate/ordergate/internal/admin"
	"github.com/ordergate/ordergate/internal/lazyregexp"
)

// maxSampled bounds the requests that init reads of a log, and maxPages the different ones.
const maxSampled, maxPages = 300_000, 5000

// page is a kind of request: its method and its target, with {id} in place of what looks like an ID.
type page struct {
	text       string // "GET /orders/{id}"
	n          int64
	named      bool  // it has an {id}
	missing    int64 // answered 404
	served     int64 // answered below 400
	redirected int64
	led        int64 // redirected, and the client went on to an order that the log did not have before
}

// logSample is what init has seen in a log.
type logSample struct {
	pages   map[string]*page
	read    int64
	php     int64 // requests of scripts
	routed  int64 // requests with a parameter that chooses what runs
	session int64 // requests with ;jsessionid=
	digits  int64 // IDs of digits
	uuids   int64
	other   int64
	longest int
	cut     string // why the log ends early

	orders map[string]bool     // their IDs
	last   map[string]redirect // of each client, if it was redirected by its last request
}

// redirect is one that a client may follow by its next request.
type redirect struct {
	from *page
	at   time.Time
}

// maxClients bounds the clients whose redirects are kept, and followedIn the time that one takes to
// follow a redirect.
const maxClients, followedIn = 10_000, 5 * time.Second

func sampleLog(path string, stdin io.Reader) (*logSample, error) {
	in := stdin
	if path != "-" {
		f, err := os.Open(path)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		in = f
	}
	log, err := accesslog.Open(nameOfLog(path), in, accesslog.Any)
	if err != nil {
		return nil, err
	}
	s := &logSample{pages: make(map[string]*page), orders: make(map[string]bool), last: make(map[string]redirect)}
	for s.read < maxSampled {
		e, err := log.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		s.add(e)
	}
	s.cut = log.Counts().Cut
	return s, nil
}

var (
	asset     = lazyregexp.New(`(?i)\.(?:css|js|mjs|map|png|jpe?g|gif|svg|webp|avif|ico|woff2?|ttf|eot|mp4|txt|xml|webmanifest)$`)
	uuidLike  = lazyregexp.New(`^[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}$`)
	codeLike  = lazyregexp.New(`^(?:[A-Za-z]{0,6}[-_]?[0-9][0-9A-Za-z_-]{4,63}|[A-Za-z]{1,6}[-_][0-9]+)$`)
	orderName = lazyregexp.New(`(?i)order|invoice|payment|trade|booking|\boid\b|^(?:id|no|uuid|number)$`)
	chooses   = lazyregexp.New(`(?i)^(?:route|rt|action|act|do|r|c|m|a|ctl|controller|module|mod|method|func|op|cmd|task|view|page|main_page|target|dispatch|option)$`)
	plainPath = lazyregexp.New(`^(?:/[A-Za-z0-9_~-][A-Za-z0-9._~-]*)*/?$`) // a rule can have it; scanners send others
	plainText = lazyregexp.New(`^[A-Za-z][A-Za-z0-9_./-]{0,99}$`)
)

// isID counts a text that looks like an ID, and reports whether it does.
func (s *logSample) isID(text string) bool {
	switch {
	case isDigits(text):
		s.digits++
	case uuidLike.MatchString(text):
		s.uuids++
	case codeLike.MatchString(text):
		s.other++
	default:
		return false
	}
	s.longest = max(s.longest, len(text))
	return true
}

func isDigits(text string) bool {
	return text != "" && strings.Trim(text, "0123456789") == ""
}

func (s *logSample) add(e *accesslog.Entry) {
	s.read++
	path, query, _ := strings.Cut(e.Target, "?")
	if path, session, ok := strings.Cut(path, ";"); ok {
		if strings.HasPrefix(strings.ToLower(session), "jsessionid=") {
			s.session++
		}
		e.Target = path
	}
	path, _, _ = strings.Cut(path, ";")
	if asset.MatchString(path) || !plainPath.MatchString(path) || len(path) > 200 || e.Method == "OPTIONS" {
		return
	}
	named, id := false, ""
	segments := strings.Split(path, "/")
	for i, segment := range segments {
		if i > 0 && !named && s.isID(segment) {
			segments[i], named, id = "{id}", true, segment
		}
	}
	var kept []string
	if strings.HasSuffix(path, ".php") {
		s.php++
	}
	for pair := range strings.SplitSeq(query, "&") {
		name, value, _ := strings.Cut(pair, "=")
		switch {
		case !named && orderName.MatchString(name) && s.isID(value):
			kept, named, id = append(kept, name+"={id}"), true, value
		case chooses.MatchString(name) && plainText.MatchString(strings.ReplaceAll(value, "%2F", "/")):
			kept = append(kept, name+"="+strings.ReplaceAll(value, "%2F", "/"))
			s.routed++
		}
	}
	method := e.Method
	if method == "HEAD" {
		method = "GET"
	}
	text := method + " " + strings.Join(segments, "/")
	if len(kept) > 0 {
		text += "?" + strings.Join(kept, "&")
	}
	p := s.pages[text]
	if p == nil {
		if len(s.pages) >= maxPages {
			return
		}
		p = &page{text: text, named: named}
		s.pages[text] = p
	}
	p.n++
	if e.Status < 400 {
		p.served++
	}
	if e.Status == 404 || e.Status == 410 {
		p.missing++
	}
	s.follow(p, id, e)
}

// follow notes which pages redirect to orders that are new to the log.
func (s *logSample) follow(p *page, id string, e *accesslog.Entry) {
	last, redirected := s.last[e.Client]
	delete(s.last, e.Client)
	switch {
	case p.named:
		if after := e.Start.Sub(last.at); redirected && !s.orders[id] && orderName.MatchString(p.text) && after >= 0 && after <= followedIn {
			last.from.led++
		}
		s.orders[id] = true
	case e.Status/100 == 3 && e.Status != 304:
		p.redirected++
		if len(s.last) < maxClients {
			s.last[e.Client] = redirect{from: p, at: e.Start}
		}
	}
}

// sorted returns the pages, the most frequent first.
func (s *logSample) sorted() []*page {
	var list []*page
	for _, p := range s.pages {
		list = append(list, p)
	}
	slices.SortFunc(list, func(a, b *page) int { return cmp.Or(cmp.Compare(b.n, a.n), cmp.Compare(a.text, b.text)) })
	return list
}

// propose returns the requests of one kind, with commas between them.
func (s *logSample) propose(kind kindOfPage) string {
	if s == nil {
		return map[kindOfPage]string{lookups: "GET /orders/{id}", creates: "POST /orders", settlements: "POST /orders/{id}/settle"}[kind]
	}
	return cmp.Or(strings.Join(s.texts(kind), ", "), "-")
}

// texts returns the requests of one kind, without those that a rule could not tell from others before.
func (s *logSample) texts(kind kindOfPage) (list []string) {
	var taken []string
	for k := lookups; k <= kind; k++ {
		list = nil
		for _, p := range s.of(k) {
			sketch, err := parseSketch(p.text)
			if match := sketch.match(); err == nil && !slices.Contains(taken, match) {
				taken, list = append(taken, match), append(list, p.text)
			}
		}
	}
	return list
}

// style proposes the kind of the backend.
func (s *logSample) style() string {
	switch {
	case s == nil:
		return "strict"
	case s.php > s.read/20 && s.routed > s.php/2, s.routed > s.read/4:
		return "php-front-controller"
	case s.php > s.read/20:
		return "php-paths"
	case s.session > 0:
		return "tomcat"
	}
	return "strict"
}

// form returns the format of most IDs, as in a rule.
func (s *logSample) form() string {
	switch {
	case s.uuids > s.digits && s.uuids > s.other:
		return "format: uuid"
	case s.other > s.digits:
		return fmt.Sprintf(`format: pattern, pattern: "[A-Za-z0-9_-]+", max_length: %d`, max(s.longest, 19))
	case s.longest > 19:
		return fmt.Sprintf("format: digits, max_length: %d", min(s.longest, 64))
	}
	return "format: digits"
}

// maxShownPages bounds the pages that init prints.
const maxShownPages = 12

// print shows the most frequent pages that name an order.
func (s *logSample) print(w io.Writer) {
	if s.cut != "" {
		fmt.Fprintln(w, "the log is incomplete:", s.cut)
	}
	fmt.Fprintf(w, "requests of the log: %s. Those that may name an order:\n", thousands(s.read))
	shown := 0
	for _, p := range s.sorted() {
		if p.named && shown < maxShownPages {
			shown++
			fmt.Fprintf(w, "  %9s  %s  (404: %s)\n", thousands(p.n), visible(p.text), admin.Percent(float64(p.missing)/float64(p.n)))
		}
	}
	if shown == 0 {
		fmt.Fprintln(w, "  none: their IDs may be in bodies, which a log does not show")
	}
}
