package page

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/ordergate/ordergate/internal/explain"
)

// maxTry bounds the body of a form with a request, in bytes: twice the largest body that a rule reads.
const maxTry = 2 << 20

// tried is a request that was tried.
type tried struct {
	Request, Problem string
	Lines, More      [][2]string // name and text
	Marked           *explain.Marked
}

// serveTry explains a request, as ordergate explain does.
func (p *Page) serveTry(w http.ResponseWriter, r *http.Request) {
	if !p.readForm(w, r, maxTry) {
		return
	}
	t := tried{Request: r.PostForm.Get("request")}
	status := http.StatusOK
	if err := p.try(r, &t); err != nil {
		status, t.Problem = http.StatusBadRequest, err.Error()
	}
	p.write(w, status, whole{Title: "Try a request", Body: "tried", Data: t})
}

func (p *Page) try(r *http.Request, t *tried) error {
	line, headers, body, err := parseRequest(t.Request)
	if err != nil {
		return err
	}
	q, err := explain.New(line, headers)
	if err != nil {
		return err
	}
	q.Body = []byte(body)
	e, err := q.Explain(r.Context(), p.opts.Config())
	if err != nil {
		return err
	}
	into := func(lines *[][2]string) func(name, format string, args ...any) {
		return func(name, format string, args ...any) {
			*lines = append(*lines, [2]string{name, fmt.Sprintf(format, args...)})
		}
	}
	e.Summary(into(&t.Lines))
	e.Answers.Print(into(&t.More))
	t.Marked = e.Marked()
	return nil
}

// parseRequest reads a request as a person pastes it: a command line of curl, or a request line, then
// headers, an empty line and the body.
func parseRequest(text string) (line string, headers []string, body string, err error) {
	text = strings.TrimLeft(strings.ReplaceAll(text, "\r\n", "\n"), " \n")
	if strings.HasPrefix(text, "curl ") {
		return parseCurl(text)
	}
	head, body, _ := strings.Cut(text, "\n\n")
	lines := strings.Split(strings.TrimRight(head, "\n"), "\n")
	return strings.TrimRight(lines[0], " "), lines[1:], body, nil
}

// The options of curl that have a value and change nothing here.
var ignoredOptions = strings.Fields("-o --output -u --user -m --max-time --connect-timeout -w --write-out -x --proxy --cacert --cert --key -E --resolve --retry -c --cookie-jar --interface --limit-rate")

// parseCurl reads a command line of curl: what it would send.
func parseCurl(text string) (line string, headers []string, body string, err error) {
	words, err := shellWords(text)
	if err != nil {
		return "", nil, "", err
	}
	method, url, asIs, get := "", "", false, false
	var data []string
	has := func(name string) bool {
		return slices.ContainsFunc(headers, func(h string) bool { return strings.HasPrefix(strings.ToLower(h), name+":") })
	}
	kind := "application/x-www-form-urlencoded"
	for i := 1; i < len(words); i++ {
		option, value, attached := words[i], "", false
		if strings.HasPrefix(option, "--") {
			option, value, attached = strings.Cut(option, "=")
		} else if len(option) > 2 && option[0] == '-' && strings.IndexByte("XHdbAe", option[1]) >= 0 {
			option, value, attached = option[:2], option[2:], true
		}
		takes := func() string {
			if !attached && i+1 < len(words) {
				i++
				value = words[i]
			}
			return value
		}
		switch {
		case option == "-X" || option == "--request":
			method = takes()
		case option == "-H" || option == "--header":
			headers = append(headers, takes())
		case option == "-A" || option == "--user-agent":
			headers = append(headers, "user-agent: "+takes())
		case option == "-e" || option == "--referer":
			headers = append(headers, "referer: "+takes())
		case option == "-b" || option == "--cookie":
			headers = append(headers, "cookie: "+takes())
		case option == "-d" || strings.HasPrefix(option, "--data") || option == "--json":
			if takes(); strings.HasPrefix(value, "@") && option != "--data-raw" {
				return "", nil, "", fmt.Errorf("%s %s: files cannot be read here: paste the body", option, value)
			}
			if option == "--json" {
				kind = "application/json"
			}
			data = append(data, value)
		case option == "-I" || option == "--head":
			method = http.MethodHead
		case option == "-G" || option == "--get":
			get = true
		case option == "--path-as-is":
			asIs = true
		case option == "--url":
			url = takes()
		case slices.Contains(ignoredOptions, option):
			takes()
		case strings.HasPrefix(option, "-"):
		case url == "":
			url = option
		default:
			return "", nil, "", fmt.Errorf("there are two URLs: %s and %s", url, option)
		}
	}
	if _, rest, ok := strings.Cut(url, "://"); ok {
		url = rest
	}
	url, _, _ = strings.Cut(url, "#")
	slash := strings.IndexAny(url, "/?")
	if slash < 0 {
		slash = len(url)
	}
	host, target := url[:slash], url[slash:]
	if !strings.HasPrefix(target, "/") {
		target = "/" + target
	}
	path, _, _ := strings.Cut(target, "?")
	switch {
	case host == "":
		return "", nil, "", errors.New("there is no URL")
	case !asIs && (strings.Contains(path+"/", "/../") || strings.Contains(path+"/", "/./")):
		return "", nil, "", errors.New("curl changes /./ and /../ in a path: add --path-as-is, or give the request line")
	}
	if body = strings.Join(data, "&"); get && body != "" {
		separator := "?"
		if strings.Contains(target, "?") {
			separator = "&"
		}
		target, body, data = target+separator+body, "", nil
	}
	if len(data) > 0 && !has("content-type") {
		headers = append(headers, "content-type: "+kind)
	}
	if !has("host") {
		headers = append(headers, "host: "+host)
	}
	if method == "" {
		method = http.MethodGet
		if len(data) > 0 {
			method = http.MethodPost
		}
	}
	return method + " " + target, headers, body, nil
}

// shellWords splits a command line as a shell does, without what it expands.
func shellWords(text string) (words []string, err error) {
	var word strings.Builder
	in, quote := false, byte(0)
	for i := 0; i < len(text); i++ {
		c := text[i]
		next := byte(0)
		if i+1 < len(text) {
			next = text[i+1]
		}
		switch {
		case c == '\\' && quote != '\'' && next == '\n':
			i++
		case c == '\\' && (quote == 0 || quote == '"' && strings.IndexByte("\"\\$`", next) >= 0) && next != 0:
			word.WriteByte(next)
			in = true
			i++
		case quote != 0 && c == quote:
			quote = 0
		case quote != 0:
			word.WriteByte(c)
		case c == '$' && next == '\'':
			return nil, errors.New("$'...' is not read here: write it in plain quotes")
		case c == '\'' || c == '"':
			quote, in = c, true
		case c == ' ' || c == '\t' || c == '\n':
			if in {
				words = append(words, word.String())
			}
			word.Reset()
			in = false
		default:
			word.WriteByte(c)
			in = true
		}
	}
	if quote != 0 {
		return nil, fmt.Errorf("a quotation mark %c is open", quote)
	}
	if in {
		words = append(words, word.String())
	}
	return words, nil
}
