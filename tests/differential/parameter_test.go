package differential

import (
	"fmt"
	"slices"
	"strings"
)

// parameterMutations change the list of parameters or cookies that has the ID:
// which of several counts, and under which name.
func parameterMutations() []mutation {
	listed := from(inQuery, inForm, inCookie)
	all := []mutation{
		{"parameter: decoy before", shape, listed, func(d *draft) { d.insert(0, "orderId="+d.other()) }},
		{"parameter: decoy after", shape, listed, func(d *draft) { d.insert(-1, "orderId="+d.other()) }},
		{"parameter: decoys around", shape, listed, func(d *draft) {
			d.insert(0, "orderId="+d.other())
			d.insert(-1, "orderId="+d.other())
		}},
		{"parameter: twice", shape, listed, func(d *draft) { d.insert(0, "orderId="+d.number()) }},
		{"parameter: empty one beside", shape, listed, func(d *draft) {
			d.insert(d.rand.IntN(2)-1, pick(d.rand, "orderId", "orderId=", "orderId=%20", "orderId=0"))
		}},
		{"parameter: semicolon", shape, from(inQuery, inForm), func(d *draft) {
			list := d.pairs()
			*list = []string{strings.Join(append(slices.Clone(*list), "orderId="+d.other()), ";")}
			if d.rand.IntN(2) == 0 {
				*list = []string{"x=1;" + strings.Join(*list, "&")}
			}
		}},
		{"parameter: odd separator", shape, from(inQuery, inForm), func(d *draft) {
			d.insert(0, "orderId="+d.other())
			list := d.pairs()
			*list = []string{strings.Join(*list, pick(d.rand, "?", "&amp;", "&&", "%26", ",", "\t", "|", "&;", "+&+"))}
		}},
		{"parameter: value with more", shape, listed, func(d *draft) { d.append(pick(d.rand, "%00", "%0a", "=", "%26x", "+", "%20", "=1")) }},
		{"parameter: no name", shape, listed, func(d *draft) { d.insert(0, pick(d.rand, "="+d.other(), "=", "&", "x", "%")) }},
		{"parameter: more than are read", shape, from(inQuery, inForm), func(d *draft) {
			many := strings.TrimSuffix(strings.Repeat("a&", 1001), "&")
			d.insert(0, many)
			if d.rand.IntN(2) == 0 {
				d.insert(0, "orderId="+d.other())
			}
		}},
		{"parameter: other place too", shape, listed, func(d *draft) { d.elsewhere(d.other()) }},
		{"parameter: other place only", shape, listed, func(d *draft) {
			*d.pairs() = nil
			d.elsewhere(d.number())
		}},
		{"parameter: decoy here, order elsewhere", shape, listed, func(d *draft) {
			*d.pairs() = []string{"orderId=" + d.other()}
			d.elsewhere(d.number())
		}},
		{"parameter: list value", shape, from(inQuery, inForm), func(d *draft) {
			*d.pairs() = []string{pick(d.rand, "orderId[]", "orderId%5B%5D", "orderId[0]", "orderId[x]") + "=" + d.number()}
		}},
	}
	for name, spell := range map[string]func(*draft) string{
		"of PHP's folding": func(d *draft) string {
			return pick(d.rand, "orderId[]", "orderId%5B%5D", "orderId[0]", "+orderId", "%20orderId", "orderId%00", "orderId%00x", "%00orderId", "orderId[", "%5BorderId")
		},
		"in other letters": func(d *draft) string {
			return pick(d.rand, "ORDERID", "orderid", "OrderId", "orderID", "order_id", "order-id", "order.id", "order%20id", "order+id", "order[id]")
		},
		"escaped": func(d *draft) string {
			return pick(d.rand, "order%49d", "%6FrderId", "%6f%72%64%65%72%49%64", "order%2549d", "order%u0049d", "orderI%64", "orderId%20", "orderId+", "orderId%0a", "%EF%BB%BForderId")
		},
		"folded by Unicode": func(d *draft) string { return pick(d.rand, "order%C4%B0d", "order%C4%B1d", "orderId%CC%80") },
	} {
		all = append(all,
			mutation{"parameter: name " + name, shape, listed, func(d *draft) { d.rename(spell(d)) }},
			mutation{"parameter: name " + name + ", decoy before", shape, listed, func(d *draft) {
				d.rename(spell(d))
				d.insert(0, "orderId="+d.other())
			}},
			mutation{"parameter: name " + name + ", decoy after", shape, listed, func(d *draft) {
				d.rename(spell(d))
				d.insert(-1, "orderId="+d.other())
			}})
	}
	// Maps have no order, a seed needs one.
	slices.SortFunc(all, func(a, b mutation) int { return strings.Compare(a.name, b.name) })
	return all
}

// overrideMutations give a route that has its ID elsewhere a parameter that
// frameworks prefer, where they bind everything into one object.
func overrideMutations() []mutation {
	var all []mutation
	for _, name := range []string{"id", "Id", "ID", "id[]", "_id", "i%64", "+id", "orderId"} {
		for place, set := range map[string]func(*draft, string){
			"query":  func(d *draft, p string) { d.query = append(d.query, p) },
			"form":   func(d *draft, p string) { d.setForm(p) },
			"cookie": func(d *draft, p string) { d.cookies = append(d.cookies, p) },
			"multipart": func(d *draft, p string) {
				field, value, _ := strings.Cut(p, "=")
				d.setMultipart(field, value)
			},
		} {
			all = append(all, mutation{"override: " + name + " in " + place, shape, from(inPath), func(d *draft) {
				d.path = d.pathOf(d.other())
				set(d, name+"="+d.number())
			}})
		}
	}
	slices.SortFunc(all, func(a, b mutation) int { return strings.Compare(a.name, b.name) })
	return all
}

// insert adds a pair to the list that has the ID: at the beginning, or for -1 at
// the end.
func (d *draft) insert(at int, pair string) {
	list := d.pairs()
	if at < 0 {
		at = len(*list)
	}
	*list = slices.Insert(*list, min(at, len(*list)), pair)
}

// append adds text to the last pair.
func (d *draft) append(text string) {
	if list := *d.pairs(); len(list) > 0 {
		list[len(list)-1] += text
	}
}

// rename changes the name of the pairs that have the ID.
func (d *draft) rename(name string) {
	for i, pair := range *d.pairs() {
		if value, ok := strings.CutPrefix(pair, "orderId="); ok {
			(*d.pairs())[i] = name + "=" + value
		}
	}
}

// elsewhere puts an ID where the source does not have it.
func (d *draft) elsewhere(id string) {
	places := []func(){
		func() { d.cookies = append(d.cookies, "orderId="+id) },
		func() { d.query = append(d.query, "orderId="+id) },
	}
	if d.source != inForm {
		places = append(places, func() { d.setForm("orderId=" + id) }, func() { d.setMultipart("orderId", id) })
	}
	pick(d.rand, places...)()
}

// setForm adds a pair to a form body.
func (d *draft) setForm(pair string) {
	d.form = append(d.form, pair)
	d.contentTypes = []string{"application/x-www-form-urlencoded"}
}

// setMultipart makes the body a multipart form with one field.
func (d *draft) setMultipart(name, value string) {
	disposition := pick(d.rand,
		`form-data; name="%s"`, `form-data; name=%s`, `form-data; filename="f"; name="%s"`, `form-data; name="x"; name="%s"`, `FORM-DATA; NAME="%s"`)
	d.body = fmt.Sprintf("--b\r\nContent-Disposition: "+disposition+"\r\n%s\r\n%s\r\n--b--\r\n", name,
		pick(d.rand, "", "", "Content-Type: text/plain\r\n", "Content-Transfer-Encoding: base64\r\n"), value)
	d.contentTypes = []string{pick(d.rand, "multipart/form-data; boundary=b", `multipart/form-data; boundary="b"`, "Multipart/Form-Data;boundary=b; charset=utf-8",
		"multipart/mixed; boundary=b", "MULTIPART/related; boundary=b", "multipart/x; boundary=b")}
}
