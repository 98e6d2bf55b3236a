package order

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// screenUnmatched checks a request that no rule matches literally. Chooses means that
// parameters choose the code that runs at its path. Chosen means that they choose that of a rule,
// for another method, of which a front controller knows nothing. Page means that the path is that of a
// rule for other methods behind one.
func (t *Table) screenUnmatched(req Request, path string, chooses, chosen, page bool) Match {
	if m := t.matchLenient(&req, path); m.Result != Unruled {
		return m
	}
	s := screening{table: t, req: &req, rule: -1, chosen: chooses || chosen, mounts: t.mountOf(path)}
	controls := t.isController(path, t.controllers)
	if !s.chosen && !controls && !page && len(s.mounts) == 0 {
		return Match{Rule: -1}
	}
	s.orders = chosen || !chooses && controls && !t.isController(path, t.chosen)
	return s.screen()
}

// decodeRounds is how often escapes are decoded: by a proxy, by the server, by the
// application. Tests have shown no more.
const decodeRounds = 3

// matchLenient checks a path that some backend may read as the path of a guarding rule.
func (t *Table) matchLenient(req *Request, path string) (m Match) {
	if t.isPlain(path) {
		if !t.plainNear {
			return Match{Rule: -1} // there is only one reading
		}
		find := func(reading string, in *tree) bool {
			m = t.lookUpNear(req, reading, in)
			return m.Result != Unruled
		}
		_ = find(path, &t.near) || t.viewed(path, find)
		m.Offset = -1
		return m
	}
	m = t.matchReadings(req, path, &t.near)
	if m.Reason == PathNear {
		m.Offset = firstAmbiguous(path)
	}
	return m
}

// matchReadings searches a tree for each reading of a path.
func (t *Table) matchReadings(req *Request, path string, in *tree) (m Match) {
	if t.readings(path, in, func(reading string, in *tree) bool {
		m = t.lookUpNear(req, reading, in)
		return m.Result != Unruled
	}) {
		return m
	}
	return Match{Rule: -1}
}

// reader receives a reading of a path, with the tree that has the rules for it. It returns true to
// stop.
type reader func(path string, in *tree) bool

// readings calls try with each way in which backends may read a path, until try returns
// true. Backends stop decoding at different stages, so each stage is a reading of its own.
func (t *Table) readings(path string, in *tree, try reader) bool {
	path = withoutOrigin(path)
	for range decodeRounds + 1 {
		if t.readingsAsIs(path, in, try) {
			return true
		}
		// A decoded ? or # ends the path for a backend that parses it again.
		if i := strings.IndexAny(path, "?#"); i >= 0 && t.readingsAsIs(path[:i], in, try) {
			return true
		}
		decoded := unescape(path)
		if decoded == path {
			break
		}
		path = decoded
	}
	return false
}

// readingsAsIs is readings without decoding.
func (t *Table) readingsAsIs(path string, in *tree, try reader) bool {
	path = strings.ReplaceAll(path, `\`, "/") // as Tomcat does with allowBackslash
	if t.lenient.authority {
		// parse_url of PHP, like other parsers of URLs, reads the text after two slashes as
		// a host.
		if isPathless(path) && try("/", in) {
			return true
		}
		if rest := behindHost(path); rest != path && t.variants(rest, in, try) {
			return true
		}
	}
	return t.variants(path, in, try)
}

// variants calls try with each folded form of a path.
func (t *Table) variants(path string, in *tree, try reader) bool {
	path = strings.ReplaceAll(path, "+", " ") // many decode it as in a query
	candidates := [2]string{path, path}
	if t.lenient.params { // before and after dot segments are resolved: /..;/ is one for Tomcat
		candidates[1] = cutParams(path)
	}
	for _, c := range candidates {
		c = resolve(c)
		c = t.near.spell(c) // so that scripts are found in any spelling that counts
		if t.lenient.indexPHP && (t.scripts(c, in, try) || t.withoutScripts(c, try)) || t.tails(c, in, try) || in == &t.near && t.viewed(c, try) {
			return true
		}
	}
	return false
}

// tails calls try with a path, and without the rest of its last segment after the name: .json, a
// dot, garbage. Where the name ends depends on the rules.
func (t *Table) tails(path string, in *tree, try reader) bool {
	if try(path, in) {
		return true
	}
	if !t.lenient.trailing {
		return false
	}
	for i, ends := strings.LastIndexByte(path, '/')+1, 0; i < len(path) && ends <= t.ends; i++ {
		if !endsName(path[i]) {
			continue
		}
		if ends++; try(path[:i], in) {
			return true
		}
	}
	return false
}

// endsName reports whether the name of a last segment may end before a byte.
func endsName(c byte) bool {
	return !plainBytes[c] && !isUpper(c) || strings.IndexByte("!$&'()*,=:@", c) >= 0
}

// countEnds counts the bytes of a text before which a name may end.
func countEnds(text string) (n int) {
	for i := range len(text) {
		if endsName(text[i]) {
			n++
		}
	}
	return n
}

// lookUpNear searches a tree of the guarding rules for a reading of a path.
func (t *Table) lookUpNear(req *Request, path string, in *tree) Match {
	if path == "" || path[0] != '/' {
		return Match{Rule: -1}
	}
	f := t.finder(req)
	f.find(in, path, admitsAll)
	if first := min(f.best, f.other); first < len(t.rules) {
		return Match{Result: Ambiguous, Rule: first, Reason: PathNear}
	}
	if f.passing < len(t.rules) {
		return t.screenOverride(*req, path, f.passing, in)
	}
	return Match{Rule: -1}
}

// plainBytes are the bytes that every backend reads alike in a path. They leave out two
// that matter only in places: a dot, which can make a segment special, and an upper-case
// letter, which a template may have in lower case.
var plainBytes = func() (table [256]bool) {
	for c := range 256 {
		b := byte(c)
		table[c] = 'a' <= b && b <= 'z' || '0' <= b && b <= '9' || strings.IndexByte("-_~!$&'()*,=:@", b) >= 0
	}
	return table
}()

// firstAmbiguous returns the offset of the first byte that backends may read differently,
// or -1.
func firstAmbiguous(path string) int {
	for i := range len(path) {
		switch c := path[i]; {
		case plainBytes[c]:
		case c == '/' && i > 0 && (path[i-1] == '/' || i == len(path)-1):
			return i
		case c == '/':
		default:
			return i
		}
	}
	return -1
}

// isPlain reports whether every backend reads a path alike.
func (t *Table) isPlain(path string) bool {
	return firstAmbiguous(path) < 0 && !(t.lenient.authority && isPathless(path))
}

// behindHost removes the host from a path that begins with two slashes.
func behindHost(path string) string {
	if rest, ok := strings.CutPrefix(path, "//"); ok {
		if i := strings.IndexByte(rest, '/'); i >= 0 {
			return rest[i:]
		}
	}
	return path
}

// isPathless reports whether parse_url of PHP may find no path in a target that begins with
// this one. Many scripts then use the root. For parse_url, a host follows two slashes.
// Digits after the first colon are a port, and it refuses some ports (php_url_parse_ex2 in
// its ext/standard/url.c).
func isPathless(path string) bool {
	if rest, ok := strings.CutPrefix(path, "//"); ok {
		host, _, more := strings.Cut(rest, "/")
		if !more || host == "" || strings.ContainsAny(host, ":@[") {
			return true
		}
	}
	_, rest, _ := strings.Cut(path, ":")
	port, _, _ := strings.Cut(rest, "/")
	return port != "" && strings.Trim(port, "0123456789") == ""
}

// withoutOrigin removes the scheme and the authority from an absolute-form target.
func withoutOrigin(path string) string {
	if _, rest, ok := strings.Cut(path, "://"); ok && !strings.HasPrefix(path, "/") {
		if i := strings.IndexByte(rest, '/'); i >= 0 {
			return rest[i:]
		}
	}
	return path
}

// unescape decodes percent escapes once, and overlong UTF-8 for ASCII. It keeps invalid
// escapes.
func unescape(text string) string {
	if strings.IndexByte(text, '%') < 0 {
		return text
	}
	out := make([]byte, 0, len(text))
	for i := 0; i < len(text); i++ {
		c := text[i]
		if c == '%' && i+2 < len(text) && hex(text[i+1]) >= 0 && hex(text[i+2]) >= 0 {
			c = byte(hex(text[i+1])<<4 | hex(text[i+2]))
			i += 2
		}
		// The two-byte form of an ASCII character begins with C0 or C1.
		if n := len(out); n > 0 && (out[n-1] == 0xc0 || out[n-1] == 0xc1) && c&0xc0 == 0x80 {
			out[n-1] = out[n-1]&1<<6 | c&0x3f
			continue
		}
		out = append(out, c)
	}
	return string(out)
}

func hex(c byte) int {
	switch {
	case '0' <= c && c <= '9':
		return int(c - '0')
	case 'a' <= c && c <= 'f':
		return int(c-'a') + 10
	case 'A' <= c && c <= 'F':
		return int(c-'A') + 10
	}
	return -1
}

// cutParams removes ;name=value from each segment.
func cutParams(path string) string {
	if strings.IndexByte(path, ';') < 0 {
		return path
	}
	segments := strings.Split(path, "/")
	for i, s := range segments {
		segments[i], _, _ = strings.Cut(s, ";")
	}
	return strings.Join(segments, "/")
}

// resolve removes empty segments and dot segments, and trims control bytes and blanks
// around the others.
func resolve(path string) string {
	var out []string
	for s := range strings.SplitSeq(path, "/") {
		s = strings.TrimFunc(s, func(r rune) bool { return r <= ' ' || unicode.IsSpace(r) })
		switch s {
		case "", ".":
		case "..":
			out = out[:max(len(out)-1, 0)]
		default:
			out = append(out, s)
		}
	}
	return "/" + strings.Join(out, "/")
}

// foldCase lowers letters, also by Unicode: ſ is S in upper case, K (Kelvin) is k in lower
// case.
func foldCase(text string) string {
	ascii := true
	for i := range len(text) {
		ascii = ascii && text[i] < utf8.RuneSelf
	}
	if ascii {
		return lower(text)
	}
	return strings.Map(func(r rune) rune { return unicode.ToLower(unicode.ToUpper(r)) }, text)
}

// isRoutingName reports whether front controllers choose by this parameter what to run.
func isRoutingName(folded string) bool {
	switch folded {
	case "action", "route", "controller", "r", "pathinfo":
		return true
	}
	return false
}
