package differential

import (
	"fmt"
	"strings"
)

// jsonMutations spell the JSON object otherwise. In the texts, %N is the
// order, %D the decoy and %E the order with an escape in it.
func jsonMutations() []mutation {
	var all []mutation
	for _, m := range []struct {
		name  string
		texts []string
	}{
		{"decoy before", []string{`{"orderId":%D,"orderId":%N}`, `{"orderId":"%D","orderId":%N}`, `{"orderId":null,"orderId":%N}`}},
		{"decoy after", []string{`{"orderId":%N,"orderId":%D}`, `{"orderId":%N,"orderId":"%D"}`, `{"orderId":%N,"orderId":null}`, `{"orderId":%N,"orderId":{}}`}},
		{"twice", []string{`{"orderId":%N,"orderId":%N}`, `{"orderId":%N,"orderId":"%N"}`}},
		{"name in other letters", []string{`{"ORDERID":%N}`, `{"orderid":%N}`, `{"OrderId":%N}`, `{"order_id":%N}`, `{"order-id":%N}`, `{"orderID":%N}`, `{" orderId":%N}`, `{"orderId ":%N}`}},
		{"name in other letters beside the decoy", []string{`{"orderId":%D,"ORDERID":%N}`, `{"orderId":%D,"orderid":%N}`, `{"OrderId":%N,"orderId":%D}`, `{"orderId":%D,"order_id":%N}`, `{"orderId":%D,"orderID":%N}`}},
		{"name folded by Unicode", []string{"{\"orderİd\":%N}", "{\"orderıd\":%N}", "{\"orderId\u0300\":%N}", "{\"orderId\":%D,\"orderıd\":%N}"}},
		{"name escaped", []string{`{"order\u0049d":%N}`, `{"\u006frderId":%N}`, `{"orderI\u0064":%N}`, `{"orderId\u0000":%N}`, `{"order\Id":%N}`}},
		{"name escaped beside the decoy", []string{`{"orderId":%D,"order\u0049d":%N}`, `{"order\u0049d":%N,"orderId":%D}`, `{"order\u0049d":%D,"orderId":%N}`}},
		{"name overlong", []string{"{\"order\xc1\x89d\":%N}", "{\"orderId\":%D,\"order\xc1\x89d\":%N}", "{\"order\xe0\x81\x89d\":%N}"}},
		{"value escaped", []string{`{"orderId":"%E"}`, `{"orderId":"%N\u0030"}`, `{"orderId":"\u0030%N"}`, `{"orderId":"%N\u0020"}`, `{"orderId":"\/%N"}`}},
		{"value of another kind", []string{`{"orderId":[%N]}`, `{"orderId":{"id":%N}}`, `{"orderId":[%D,%N]}`, `{"orderId":[%N,%D]}`, `{"orderId":true}`, `{"orderId":{"orderId":%N}}`, `{"orderId":["%N"]}`}},
		{"number of another form", []string{`{"orderId":%N.0}`, `{"orderId":%Ne0}`, `{"orderId":%N0E-1}`, `{"orderId":+%N}`, `{"orderId":0%N}`, `{"orderId":%N.}`, `{"orderId":%NL}`, `{"orderId":0x%N}`, `{"orderId":-%N}`, `{"orderId":%N_0}`}},
		{"comment", []string{`{/*"orderId":%D,*/"orderId":%N}`, "{//\"orderId\":%D,\n\"orderId\":%N}", "{#\"orderId\":%D,\n\"orderId\":%N}", `{"orderId":/*%D*/%N}`, "{\"orderId\":%N//\n}", `/* x */{"orderId":%N}`}},
		{"comma too many", []string{`{"orderId":%N,}`, `{,"orderId":%N}`, `{"orderId":%N,,"x":1}`, `{"orderId":%N;"x":1}`, `{"x":1 "orderId":%N}`}},
		{"other quotes", []string{`{'orderId':%N}`, `{"orderId":'%N'}`, `{orderId:%N}`, "{`orderId`:%N}", `{"orderId'":%N}`, `{“orderId”:%N}`}},
		{"other colon", []string{`{"orderId"=%N}`, `{"orderId"=>%N}`, `{"orderId" %N}`, `{"orderId":=%N}`}},
		{"text after", []string{`{"orderId":%N} x`, `{"orderId":%N}}`, "{\"orderId\":%N}\x00", `{"orderId":%N},`, `{"orderId":%N}{"orderId":%D}`, "{\"orderId\":%N}\n{\"orderId\":%D}", `{"orderId":%N}//`}},
		{"text before", []string{")]}',\n{\"orderId\":%N}", "\ufeff{\"orderId\":%N}", "\x00{\"orderId\":%N}", `%D{"orderId":%N}`, `{"orderId":%D}{"orderId":%N}`, "\x1e{\"orderId\":%N}", "while(1);{\"orderId\":%N}"}},
		{"spaces", []string{"\v{\"orderId\":%N}", "{\u00a0\"orderId\":%N}", "{\"orderId\":\f%N}", "{\"orderId\"\u2003:%N}", " {\r\n\t\"orderId\" : %N } \n"}},
		{"array around", []string{`[{"orderId":%N}]`, `[[{"orderId":%N}]]`, `[{"orderId":%D},{"orderId":%N}]`, `"{\"orderId\":%N}"`}},
		{"nested", []string{`{"order":{"orderId":%N}}`, `{"x":{"orderId":%D},"orderId":%N}`, `{"orderId":%N,"x":{"orderId":%D}}`, `{"x":"\"orderId\":%D","orderId":%N}`, `{"x":"orderId","orderId":%N}`}},
		{"cut off", []string{`{"orderId":%N`, `"orderId":%N}`, `"orderId":%N`, `{"orderId":%N,`, `{"orderId":%N,"x`}},
		{"nothing but the number", []string{`%N`, `"%N"`, `[%N]`, `null`, ``}},
		{"deep", []string{`{"x":` + strings.Repeat("[", 70) + strings.Repeat("]", 70) + `,"orderId":%N}`, `{"orderId":%N,"x":` + strings.Repeat(`{"a":`, 600) + "1" + strings.Repeat("}", 600) + `}`}},
		{"bytes that are no UTF-8", []string{"{\"x\":\"\xff\",\"orderId\":%N}", "{\"orderId\":\"%N\xc0\"}", "{\"x\":\"\xed\xa0\x80\",\"orderId\":%N}", "{\"\xff\":1,\"orderId\":%N}", "{\"orderId\":%D,\"orderId\xff\":%N}"}},
		{"special members", []string{`{"@type":"x","orderId":%N}`, `{"__proto__":{"orderId":%N}}`, `{"orderId":%N,"@class":"x"}`, `{"":%D,"orderId":%N}`}},
		{"large", []string{`{"x":"` + strings.Repeat("a", 100_000) + `","orderId":%N}`}},
	} {
		all = append(all, mutation{"JSON: " + m.name, shape, from(inJSON), func(d *draft) {
			n := d.number()
			d.body = strings.NewReplacer("%N", d.number(), "%D", d.other(), "%E", fmt.Sprintf(`\u%04x%s`, n[0], n[1:])).Replace(pick(d.rand, m.texts...))
		}})
	}
	return append(all, mutation{"JSON: in UTF-16 or UTF-32", shape, from(inJSON), func(d *draft) {
		charset := pick(d.rand, "UTF-16", "UTF-16LE", "UTF-32")
		d.body = pick(d.rand, "", inCharset("\ufeff", charset)) + inCharset(d.body, charset)
	}})
}
