package differential

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
)

// orderNames are the names by which some rule reads an order's ID.
var orderNames = []string{"id", "orderId", "order_id"}

// phpSpelling spells a name otherwise, so that PHP takes it for the same, or for an array
// of that name (php_register_variable_ex): blanks before it are dropped; dots, blanks and
// a bracket that is not closed become underscores; what a closed one has is an index.
func phpSpelling(r *rand.Rand, name string, escape bool) string {
	for {
		spelt, open := "", false
		for i, c := range name {
			switch {
			case c != '_':
				spelt += string(c)
			case i > 0 && r.IntN(2) == 0:
				spelt += "["
				open = true
			default:
				spelt += pick(r, "_", ".", " ")
			}
		}
		if spelt[0] == ' ' { // it would be dropped
			spelt = "." + spelt[1:]
		}
		if r.IntN(3) == 0 {
			spelt = strings.Repeat(" ", pick(r, 1, 2, 600)) + spelt
		}
		if !open && r.IntN(3) == 0 {
			spelt += pick(r, "[]", "[x]", "[0][", "[ ]", "["+strings.Repeat("x", 600)+"]")
		}
		if escape {
			spelt = pick(r, strings.NewReplacer(" ", "+"), strings.NewReplacer(" ", "%20", "[", "%5B", "]", "%5d"), strings.NewReplacer(" ", "+", ".", "%2e", "d", "%64", "[", "%5b")).Replace(spelt)
		}
		if spelt != name {
			return spelt
		}
	}
}

// places are where a parameter may stand beside a path.
var places = map[string]func(d *draft, name, value string){
	"query":  func(d *draft, name, value string) { d.query = append(d.query, name+"="+value) },
	"cookie": func(d *draft, name, value string) { d.cookies = append(d.cookies, name+"="+value) },
	"cookies of two lines": func(d *draft, name, value string) {
		d.headers = append(d.headers, pick(d.rand, "Cookie: x=1\r\nCookie: ", "Cookie: x=1; y=2\r\nCookie: z=3; ")+name+"="+value)
	},
	"form": func(d *draft, name, value string) {
		d.method = "POST"
		d.setForm(name + "=" + value)
	},
	"multipart": func(d *draft, name, value string) {
		d.method = "POST"
		d.setMultipart(name, value)
	},
}

// phpMutations are what a front controller of PHP takes for another request.
func phpMutations() []mutation {
	var all []mutation
	chosen := func(d *draft) bool { return (d.source == inScript || d.source == newByScript) && len(d.query) > 0 }
	add := func(name string, s stage, fits func(*draft) bool, apply func(*draft)) {
		all = append(all, mutation{name, s, fits, apply})
	}
	for name, decoy := range map[string]func(*draft, string){
		"alone":        func(d *draft, pair string) { d.query = []string{pair} },
		"decoy before": func(d *draft, pair string) { d.query = []string{"order_id=" + d.other(), pair} },
		"decoy after":  func(d *draft, pair string) { d.query = []string{pair, "order_id=" + d.other()} },
	} {
		add("PHP: rewritten name, "+name, shape, from(inSnake), func(d *draft) {
			decoy(d, phpSpelling(d.rand, "order_id", true)+"="+d.number())
		})
	}
	for place, set := range places {
		spell := func(d *draft, name string) string {
			return phpSpelling(d.rand, name, place == "query" || place == "form")
		}
		add("PHP: name of another rule in "+place, shape, from(inPath, inQuery, inSnake, inCookie), func(d *draft) {
			d.nameDecoy()
			set(d, pick(d.rand, orderNames...), d.number())
		})
		add("PHP: rewritten name of another rule in "+place, shape, from(inPath, inQuery, inSnake, inCookie), func(d *draft) {
			d.nameDecoy()
			set(d, spell(d, pick(d.rand, orderNames...)), d.number())
		})
		add("PHP: method in "+place, framing, nil, func(d *draft) {
			own := d.method
			d.method = pick(d.rand, "POST", "POST", "PUT")
			method := d.method
			set(d, pick(d.rand, "_method", spell(d, "_method")), pick(d.rand, own, strings.ToLower(own), own+"+"))
			d.method = method
		})
		add("PHP: front controller with the order in "+place, shape, from(inPath, inScript), func(d *draft) {
			d.path, d.query = pick(d.rand, "/", "/index.php", "/index.php/", "/index.php/x", "/./index.php"), nil
			pair := []string{"action", d.verb(), pick(d.rand, orderNames...), d.number()}
			if d.rand.IntN(2) == 0 {
				pair[0], pair[2] = spell(d, pair[0]), spell(d, pair[2])
			}
			if place == "multipart" { // it has one field
				d.query = append(d.query, pair[0]+"="+pair[1])
				set(d, pair[2], pair[3])
				return
			}
			set(d, pair[0], pair[1])
			set(d, pair[2], pair[3])
		})
		add("PHP: choice of the front controller in "+place, shape, chosen, func(d *draft) {
			other := &draft{settle: !d.settle}
			if d.rand.IntN(2) == 0 { // it is said twice
				d.query[0] = pick(d.rand, "action=help", "action="+other.verb())
			} else {
				d.query = d.query[1:]
			}
			set(d, pick(d.rand, "action", "ACTION", spell(d, "action")), pick(d.rand, d.verb(), strings.ToUpper(d.verb()), "+"+d.verb(), d.verb()+"%20"))
		})
	}
	add("PHP: method by a header", framing, nil, func(d *draft) {
		name := pick(d.rand, "X-HTTP-Method-Override", "X-Method-Override", "X-HTTP-Method")
		var spelt strings.Builder
		for _, c := range name {
			if c == '-' {
				spelt.WriteString(pick(d.rand, "-", "-", "_", "."))
			} else {
				spelt.WriteRune(c)
			}
		}
		d.headers = append(d.headers, spelt.String()+": "+pick(d.rand, d.method, strings.ToLower(d.method), " "+d.method+" "))
		d.method = pick(d.rand, "POST", "PUT", "DELETE")
	})
	add("PHP: spelling of the choice", shape, chosen, func(d *draft) {
		value := pick(d.rand, d.verb(), d.verb(), strings.ToUpper(d.verb()), d.verb()+"+", "%20"+d.verb(), fmt.Sprintf("%%%02x%s", d.verb()[0], d.verb()[1:]))
		d.query[0] = pick(d.rand, "action", phpSpelling(d.rand, "action", true), "%61ction") + "=" + value
	})
	add("PHP: choice twice", shape, chosen, func(d *draft) {
		other := &draft{settle: !d.settle}
		d.query = slices.Insert(d.query, d.rand.IntN(1+len(d.query)), pick(d.rand, "action="+other.verb(), "action=help", "action[]=help", "action="))
	})
	add("PHP: script spelt otherwise", shape, from(inScript, newByScript), func(d *draft) {
		d.path = pick(d.rand, "/", "/index.php/", "/index.php/orders", "/INDEX.PHP", "/index%2ephp", "/./index.php", "//index.php", "/x/../index.php", "/index.php;x", "//orders")
	})
	add("PHP: more behind a script", shape, from(inFile, inScript, newByFile, newByScript), func(d *draft) {
		d.path += pick(d.rand, "/x", "/x.php", "/index.php", "/orders/"+d.other(), "/%20", "/x/..", "//x", "/x/", "/.x")
	})
	add("PHP: a script by its folder", shape, func(d *draft) bool { return d.source == inFile && !d.settle }, func(d *draft) {
		d.path = pick(d.rand, "/shop/", "/shop", "/shop//", "/shop/.", "/x/../shop/", "/./shop/")
	})
	add("PHP: route in a parameter", shape, from(inPath, inQuery, inSnake, inScript, inFile), func(d *draft) {
		name := pick(d.rand, "q", "url")
		if d.source == inPath {
			d.path = d.pathOf(d.other())
		} else if d.source != inScript || d.rand.IntN(2) == 0 {
			d.nameDecoy()
		}
		path := d.pathOf(d.number())
		value := pick(d.rand, path, path[1:], escapeAll(path), escapeAll(path[1:]), "/"+path, strings.ToUpper(path))
		d.query = slices.Insert(d.query, d.rand.IntN(1+len(d.query)), name+"="+value)
	})
	add("PHP: a host behind two slashes", shape, nil, func(d *draft) {
		d.path = pick(d.rand, "//x", "//orders", "//x:80", "//x@y", "//x%20", "//index.php", "///x", "/%2Fx", `/\x`) + d.path
	})
	add("PHP: front controller as a host", shape, from(inPath, inScript), func(d *draft) {
		d.path = pick(d.rand, "//", "//x", "//index.php", "//x/index.php", "//x:1/", "///")
		d.query = []string{"action=" + d.verb(), "id=" + d.number()}
	})
	add("PHP: front controller by what is no URL", shape, from(inPath, inScript), func(d *draft) {
		d.path = pick(d.rand, "/x:80/", "/:1/x", "/x/y:65535/z", "/orders:8/", "///x", "//x:99999/y", "//:80/", "//@/x", "/x:1/../y")
		d.query = []string{"action=" + d.verb(), "id=" + d.number()}
	})
	// Maps have no order, a seed needs one.
	slices.SortFunc(all, func(a, b mutation) int { return strings.Compare(a.name, b.name) })
	return all
}

// harmless makes requests that a front controller's clients send every day.
func harmless() (all []request) {
	const form, decoy = "application/x-www-form-urlencoded", "43"
	upload := "--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"invoice.pdf\"\r\n\r\n" + strings.Repeat("x", 200_000) +
		"\r\n--b\r\nContent-Disposition: form-data; name=\"_method\"\r\n\r\nPUT\r\n--b--\r\n"
	for _, d := range []*draft{
		{method: "POST", path: "/orders/" + decoy, form: []string{"note=x"}, contentTypes: []string{form}},
		{method: "POST", path: "/orders/" + decoy, form: []string{"_method=PUT", "note=x"}, contentTypes: []string{form}},
		{method: "POST", path: "/orders/" + decoy, body: upload, contentTypes: []string{"multipart/form-data; boundary=b"}},
		{method: "POST", path: "/orders/" + decoy, headers: []string{"X-HTTP-Method-Override: PATCH"}},
		{method: "PUT", path: "/orders/" + decoy, body: "{}", contentTypes: []string{"application/json"}},
		{method: "GET", path: "/orders/" + decoy, query: []string{"id=" + decoy, "order_id=" + decoy}, cookies: []string{"orderId=" + decoy}},
		{method: "POST", path: "/index.php", form: []string{"action=login", "user=x"}, contentTypes: []string{form}},
		{method: "POST", path: "/", body: upload, contentTypes: []string{"multipart/form-data; boundary=b"}},
		{method: "GET", path: "/index.php", query: []string{"action=login"}},
		{method: "GET", path: "/", query: []string{"page=2"}, cookies: []string{"id=8a7f", "session=1"}},
		{method: "GET", path: "//static/app.js"},
	} {
		d.version = "HTTP/1.1"
		name := fmt.Sprintf("harmless-%d", len(all))
		all = append(all, request{name: name, raw: d.bytes(name), method: d.method})
	}
	return all
}

// nameDecoy has the place of the ID name the decoy.
func (d *draft) nameDecoy() {
	switch d.source {
	case inPath:
		d.path = d.pathOf(d.other())
	case inSnake:
		d.query = []string{"order_id=" + d.other()}
	case inScript:
		d.query = []string{"action=" + d.verb(), "id=" + d.other()}
	case inFile:
		d.query = []string{"id=" + d.other()}
	default:
		*d.pairs() = []string{"orderId=" + d.other()}
	}
}
