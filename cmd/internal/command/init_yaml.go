package command

import (
	"cmp"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/ordergate/ordergate/config"
)

// sketch is a request of init: what a rule matches, and where its order is.
type sketch struct {
	methods []string
	path    string
	query   [][2]string // that choose what runs
	place   string      // of the ID, as in a rule: path, query, json, form or cookie; "": nowhere
	name    string

	text   string // as the flag or the log has it
	action string // the flag
	rule   string // name of the rule
}

func (s *sketch) flag() string { return fmt.Sprintf("--%s %q", s.action, s.text) }

const wantSketch = "want 'METHOD PATH', such as 'GET /orders/{id}', or 'POST /pay json:orderId'"

// parseSketch reads a request as the help of init describes it.
func parseSketch(text string) (s sketch, err error) {
	words := strings.Fields(text)
	if len(words) < 2 || len(words) > 3 || !strings.HasPrefix(words[1], "/") {
		return s, fmt.Errorf("%q: %s", text, wantSketch)
	}
	s.methods = strings.FieldsFunc(strings.ToUpper(words[0]), func(r rune) bool { return r == '|' || r == ',' })
	if slices.Equal(s.methods, []string{"GET"}) {
		s.methods = []string{"GET", "HEAD"} // a backend that answers GET answers HEAD, too
	}
	if len(words) == 3 {
		place, name, ok := strings.Cut(words[2], ":")
		if !ok || name == "" || !slices.Contains([]string{"json", "form", "cookie", "header"}, place) {
			return s, fmt.Errorf("%q: %q is not json:MEMBER, form:FIELD, cookie:NAME or header:NAME", text, words[2])
		}
		s.place, s.name = place, strings.TrimPrefix(name, "$.") // as a JSONPath begins
	}
	path, query, _ := strings.Cut(words[1], "?")
	for segment := range strings.SplitSeq(path, "/") {
		if name, ok := strings.CutPrefix(segment, "{"); ok && s.place == "" {
			s.place, s.name = "path", strings.TrimSuffix(name, "}")
		}
	}
	s.path = path
	for pair := range strings.SplitSeq(query, "&") {
		name, value, _ := strings.Cut(pair, "=")
		switch {
		case name == "":
		case strings.HasPrefix(value, "{") && s.place == "":
			s.place, s.name = "query", name
		default:
			if decoded, err := url.QueryUnescape(value); err == nil && !strings.ContainsAny(decoded, "&;# ") {
				value = decoded
			}
			s.query = append(s.query, [2]string{name, value})
		}
	}
	return s, nil
}

// scalar writes a text so that YAML reads it as text.
func scalar(text string) string {
	if regexp.MustCompile(`^[A-Za-z/][A-Za-z0-9_./-]*$`).MatchString(text) && !slices.Contains([]string{"true", "false", "yes", "no", "on", "off", "null", "y", "n"}, strings.ToLower(text)) {
		return text
	}
	return fmt.Sprintf("%q", text)
}

// mayHaveForm reports whether requests whose ID is in the target may have a form, in which a backend
// may look for the ID as well.
func (s *sketch) mayHaveForm() bool {
	return (s.place == "path" || s.place == "query") && slices.ContainsFunc(s.methods, func(m string) bool { return m == "POST" || m == "PUT" || m == "PATCH" })
}

func (s *sketch) match() string {
	text := "{methods: [" + strings.Join(s.methods, ", ") + "], path: " + scalar(s.path)
	if len(s.query) > 0 {
		pairs := make([]string, len(s.query))
		for i, q := range s.query {
			pairs[i] = scalar(q[0]) + ": " + scalar(q[1])
		}
		text += ", query: {" + strings.Join(pairs, ", ") + "}"
	}
	return text + "}"
}

// sketches returns what the rules match: what is more special first, so that a rule does not take the
// requests of a later one.
func (a *initAnswers) sketches() (list []*sketch, err error) {
	for _, group := range []struct {
		action   string
		requests []string
	}{{"lookup", a.lookup}, {"create", a.create}, {"settle", a.settle}} {
		for i, text := range group.requests {
			s, err := parseSketch(text)
			if err != nil {
				return nil, err
			}
			s.text, s.action, s.rule = text, group.action, "order-"+group.action
			if i > 0 {
				s.rule += fmt.Sprintf("-%d", i+1)
			}
			if i := slices.IndexFunc(list, func(other *sketch) bool { return other.match() == s.match() }); i >= 0 {
				return nil, fmt.Errorf("%s: these are the requests of %s, and a rule has one action (one that settles looks up, too)", s.flag(), list[i].flag())
			}
			list = append(list, &s)
		}
	}
	slices.SortStableFunc(list, func(a, b *sketch) int {
		return cmp.Or(len(b.query)-len(a.query), strings.Count(a.path, "{")-strings.Count(b.path, "{"))
	})
	return list, nil
}

// yaml returns the file.
func (a *initAnswers) yaml(seen *logSample) (string, error) {
	form := "format: digits"
	switch {
	case a.format != "":
		form = "format: " + a.format
	case seen != nil:
		form = seen.form()
	}
	table, follow := scalar(strings.NewReplacer("`", "", `"`, "").Replace(a.table)), "binlog"
	if a.database == config.SourcePostgres {
		follow = "logical"
	}
	var rules strings.Builder
	asked, err := a.sketches()
	if err != nil {
		return "", err
	}
	a.written = nil
	locks := make(map[string]bool)
	for _, s := range asked {
		a.written = append(a.written, s.flag())
		fmt.Fprintf(&rules, "\n  - name: %s\n    mode: observe\n    match: %s\n", s.rule, s.match())
		id := fmt.Sprintf("    id: {%s: %s, %s}\n", s.place, scalar(s.name), form)
		if s.mayHaveForm() && s.action != "lookup" {
			id = fmt.Sprintf("    id: [{%s: %s, %s}, {form: %[2]s, %[3]s}]   # a form's field may override it\n", s.place, scalar(s.name), form)
		}
		byCookie := s.place == "cookie" && s.action == "settle"
		if s.place != "" && !byCookie {
			rules.WriteString(id)
		}
		switch {
		case s.place == "" && s.action != "create":
			return "", fmt.Errorf("%q: where is the order's ID? Write {id}, json:MEMBER, form:FIELD, or cookie:NAME of the session", s.text)
		case s.action == "lookup":
			rules.WriteString("    lookup: {filter: orders}\n")
		case s.action == "create":
			rules.WriteString("    create: {filter: orders, learn: table}   # the followed table has the new order; or {response_json: ...}\n")
		case byCookie:
			locks["session"] = true
			fmt.Fprintf(&rules, "    settle: {lock: session, by: [{cookie: %s}]}   # nothing else names the order\n", scalar(s.name))
		default:
			locks["settlement"] = true
			rules.WriteString("    lookup: {filter: orders}\n    settle: {lock: settlement}\n")
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, "# Written by ordergate init. Every rule observes: ordergate decides and counts, and changes nothing.\n"+
		"# With \"mode: observe\" removed, a rule enforces.\n\n"+
		"backend: %s   # how the service reads requests\n\n"+
		"listen:   # sockets, which only Envoy reaches\n  authz: unix:"+socketFolder+"/authz.sock\n  proc:  unix:"+socketFolder+"/proc.sock\n\n"+
		"redis:\n  addresses: [%s]   # without eviction: maxmemory-policy noeviction\n\n"+
		"filters:\n  orders:\n    capacity: 1_000_000   # IDs\n    sources: [orders-db]\n\n"+
		"sources:\n  # The variable %s has the data source name. The column is the ID as clients write it.\n"+
		"  orders-db: {kind: %s, dsn_env: %s, table: %s, id_column: %s, follow: %s}\n",
		styles[strings.ToLower(a.backend)], scalar(a.redis), a.dsnEnv, a.database, a.dsnEnv, table, scalar(a.column), follow)
	more := ""
	if seen != nil {
		more = seen.unclear(asked, form)
	}
	if len(locks) > 0 {
		b.WriteString("\nlocks:\n")
	} else if more != "" {
		b.WriteString("\n#locks:\n")
	}
	for _, name := range []string{"session", "settlement"} {
		switch lock := fmt.Sprintf("  %s: {key: %q, lease: 90s, on_unknown_outcome: {hold: 60s}}", name, map[string]string{"settlement": "order:lock:{id}", "session": "session:lock:{id}"}[name]); {
		case locks[name]:
			b.WriteString(lock + "   # hold: longer than the backend can take\n")
		case strings.Contains(more, "lock: "+name):
			b.WriteString("#" + lock + "   # for requests at the end\n")
		}
	}
	b.WriteString("\nrules:" + rules.String() + more)
	return b.String(), nil
}

// unclear returns, as comments, rules for the requests that may create or settle an order, though the
// log shows none in them.
func (s *logSample) unclear(asked []*sketch, form string) string {
	var b strings.Builder
	for _, text := range s.texts(unclear) {
		of, err := parseSketch(text)
		if err != nil || slices.ContainsFunc(asked, func(other *sketch) bool { return other.match() == of.match() }) {
			continue
		}
		if b.Len() == 0 {
			b.WriteString(unclearText)
		}
		settle := "settle: {lock: session, by: [{cookie: SESSION}]}"
		if strings.HasPrefix(text, "POST") {
			settle = "id: {form: ORDER_ID, " + form + "}, settle: {lock: settlement}"
		}
		fmt.Fprintf(&b, unclearRule+"%d, mode: observe, match: %s, %s}\n", strings.Count(b.String(), unclearRule)+1, of.match(), settle)
	}
	return b.String()
}

// unclearRule begins each of these rules.
const unclearRule = "#  - {name: unclear-"

// unclearText says what to look for in the service.
const unclearText = `
# The log shows no order in these requests. Look in the service what each does, and uncomment what fits,
# with its lock:
# - One that changes the order of the session is settled by the session's cookie. Its name is often
#   PHPSESSID or JSESSIONID: a browser shows it.
# - One whose body names the order has it as {form: FIELD} or {json: MEMBER}.
# - One that inserts an order has "create: {filter: orders, learn: table}" in place of settle.
# - One that only shows a page needs no rule.
`
