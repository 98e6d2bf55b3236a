package differential

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
)

// pathMutations spell the route otherwise.
func pathMutations() []mutation {
	long := func(d *draft) bool { return len(d.path) > 1 }
	var all []mutation
	for _, m := range []struct {
		name   string
		change func(d *draft, path string) string
	}{
		{"parameter of a segment", func(d *draft, p string) string {
			return afterSegment(d.rand, p, pick(d.rand, ";", ";x=1", ";jsessionid=1", ";x=/", ";id="+d.other(), "%3Bx=1", "%3b", ";x;y", ";%2e"))
		}},
		{"parameter before a segment", func(d *draft, p string) string {
			return atSlash(d.rand, p, pick(d.rand, "/;/", "/;x=1/", "/;", "/%3b/"))
		}},
		{"slashes", func(d *draft, p string) string { return atSlash(d.rand, p, pick(d.rand, "//", "///", "/%2F", "/%2f/")) }},
		{"escaped slash", func(d *draft, p string) string {
			return atSlash(d.rand, p, pick(d.rand, "%2F", "%2f", "%252F", "%c0%af"))
		}},
		{"backslash", func(d *draft, p string) string {
			return atSlash(d.rand, p, pick(d.rand, `\`, "%5C", "%5c", `/\`, `\/`))
		}},
		{"dot segment", func(d *draft, p string) string {
			return atSlash(d.rand, p, pick(d.rand, "/./", "/%2e/", "/.;/", "/%2E;x/", "/.%00/"))
		}},
		{"way back", func(d *draft, p string) string {
			return atSlash(d.rand, p, "/x"+pick(d.rand, "/../", "/%2e%2e/", "/.%2e/", "/..;/", "/%2e%2e;/", "/..;x=1/", "/%2e%2e%3b/", "/..%2f", `\..\`, "/%252e%252e/", "/..%00/"))
		}},
		{"way back from the root", func(d *draft, p string) string { return pick(d.rand, "/..", "/%2e%2e", "/..;", "/../..") + p }},
		{"trailing slash", func(d *draft, p string) string { return p + pick(d.rand, "/", "//", "/.", "/;", "/%2e", "%2f") }},
		{"trailing text", func(d *draft, p string) string {
			return p + pick(d.rand, ".", "..", "%20", "%0A", "%0a%0a", "%00", "%00.txt", "%09", "%0d", "+", "~", "%7f", "%23", "%3f", "%3Fx=1", "*", ":", "!")
		}},
		{"extension", func(d *draft, p string) string {
			return p + pick(d.rand, ".json", ".html", ".do", ".php", ".xml", ".x", ".JSON")
		}},
		{"tail", func(d *draft, p string) string { return p + pick(d.rand, "/index.php", "/x", "/index.php/", "/0") }},
		{"upper case", func(_ *draft, p string) string { return swapCase(p, nil) }},
		{"mixed case", func(d *draft, p string) string { return swapCase(p, d.rand) }},
		{"letters that fold", func(d *draft, p string) string {
			kelvin, long := "%E2%84%AA", "%C5%BF"
			if d.rand.IntN(4) == 0 {
				kelvin, long = "\u212a", "\u017f" // raw
			}
			return strings.NewReplacer("k", kelvin, "s", long).Replace(p)
		}},
		{"escaped letter", func(d *draft, p string) string { return escapeLetters(d.rand, p, "%%%02x", false) }},
		{"escaped letters", func(d *draft, p string) string { return escapeLetters(d.rand, p, "%%%02X", true) }},
		{"letter escaped twice", func(d *draft, p string) string { return escapeLetters(d.rand, p, "%%25%02X", false) }},
		{"%u escape", func(d *draft, p string) string { return escapeLetters(d.rand, p, "%%u00%02x", false) }},
		{"overlong letter", func(d *draft, p string) string {
			i := 1 + d.rand.IntN(len(p)-1)
			return p[:i] + escapeAll(overlong(p[i:i+1], 2)) + p[i+1:]
		}},
		{"bad escape", func(d *draft, p string) string {
			i := 1 + d.rand.IntN(len(p)-1)
			return p[:i] + pick(d.rand, "%zz", "%", "%4", "%%") + p[i:]
		}},
		{"raw bytes", func(d *draft, p string) string {
			return afterSegment(d.rand, p, pick(d.rand, "\x80", "\xff", "\x01", "\x7f", "\"", "<", "^", "|", "\t", "\u00a0"))
		}},
		{"script before", func(d *draft, p string) string {
			return pick(d.rand, "/index.php", "/index.php/", "//index.php", "/index%2ephp", "/INDEX.PHP", "/./index.php", "/index.php;x=1") + p
		}},
		{"origin before", func(d *draft, p string) string {
			return pick(d.rand, "http://orders", "http://other", "https://orders", "//orders") + p
		}},
		{"no slash before", func(_ *draft, p string) string { return p[1:] }},
		{"fragment", func(d *draft, p string) string { return p + pick(d.rand, "#", "#x", "#/../43") }},
		{"query mark", func(d *draft, p string) string { return p + pick(d.rand, "?", "??", "?/", "?;") }},
	} {
		all = append(all, mutation{"path: " + m.name, shape, long, func(d *draft) { d.path = m.change(d, d.path) }})
	}
	return append(all,
		mutation{"path: decoy and a way back", shape, from(inPath), func(d *draft) {
			back := pick(d.rand, "/%2e%2e;/", "/..;/", "/..;x/", "/../", "/%2e%2e/", "%2f..%2f", `\..\`, "/;/../../", "/.%2e;/")
			d.path = "/orders/" + d.other() + back + strings.TrimPrefix(d.path, "/orders/")
		}},
		mutation{"path: decoy's settlement and a way back", shape, from(inPath), func(d *draft) {
			d.path = "/orders/" + d.other() + "/settle" + pick(d.rand, "/../..", "/..;/..;", "/%2e%2e/%2e%2e", "/x/../../..") + strings.TrimPrefix(d.path, "/orders")
		}},
		mutation{"path: decoy in a parameter", shape, from(inPath), func(d *draft) {
			d.path = "/orders;" + pick(d.rand, "id=", "/", "x=") + d.other() + strings.TrimPrefix(d.path, "/orders")
		}},
		mutation{"path: script without its suffix", shape, from(inFile, newByFile), func(d *draft) {
			d.path = strings.TrimSuffix(d.path, ".php") + pick(d.rand, "", "", "/", "/x", "/42/x", ";x=1")
		}},
		mutation{"path: front controller", shape, from(inPath), func(d *draft) {
			action := pick(d.rand, "settle", "SETTLE")
			if !d.settle {
				action = "show"
			}
			id := d.escape(d.id)
			d.query = append(d.query, pick(d.rand,
				"action="+action+"&id="+id, "id="+id+"&action="+action, "route="+d.path, "route="+d.path[1:],
				"route="+strings.ReplaceAll(d.path, "/", "%2F"), "id="+d.other()+"&action="+action+"&id="+id,
				"route="+d.path+"&id="+d.other(), "id%5B%5D="+id+"&action="+action, "action="+action+"&ID="+d.other()+"&id="+id,
			))
			d.path = pick(d.rand, "/", "/index.php", "/index.php", "/INDEX.PHP", "/index%2Ephp", "//index.php", "/index.php/")
		}},
	)
}

// atSlash puts something in the place of one of a path's slashes.
func atSlash(r *rand.Rand, path, in string) string {
	var at []int
	for i := range len(path) {
		if path[i] == '/' {
			at = append(at, i)
		}
	}
	if len(at) == 0 {
		return in + path
	}
	i := pick(r, at...)
	return path[:i] + in + path[i+1:]
}

// afterSegment puts something at the end of one of a path's segments.
func afterSegment(r *rand.Rand, path, text string) string {
	segments := strings.Split(path, "/")
	segments[r.IntN(len(segments))] += text
	return strings.Join(segments, "/")
}

// swapCase changes letters outside of escapes to upper case: all of them, or
// with a source of chance about half.
func swapCase(path string, r *rand.Rand) string {
	b := []byte(path)
	for i, c := range b {
		if 'a' <= c && c <= 'z' && (r == nil || r.IntN(2) == 0) && !slices.Contains(b[max(0, i-2):i], '%') {
			b[i] = c - 'a' + 'A'
		}
	}
	return string(b)
}

// escapeLetters escapes one letter of a path, or every one.
func escapeLetters(r *rand.Rand, path, format string, all bool) string {
	var letters []int
	for i, c := range []byte(path) {
		if 'a' <= c && c <= 'z' && !strings.Contains(path[max(0, i-2):i], "%") {
			letters = append(letters, i)
		}
	}
	if len(letters) == 0 {
		return path
	}
	if !all {
		letters = []int{pick(r, letters...)}
	}
	for _, i := range slices.Backward(letters) {
		path = path[:i] + fmt.Sprintf(format, path[i]) + path[i+1:]
	}
	return path
}
