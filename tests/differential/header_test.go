package differential

import (
	"slices"
	"strings"
)

// headerMutations change the header that has the ID, or add headers that
// change what a backend makes of a request. In the lines, %N is the order and
// %D the decoy, %A the path of the one and %B that of the other.
func headerMutations() []mutation {
	var all []mutation
	add := func(name string, fits func(*draft) bool, change func(*draft, []string) []string, lines ...[]string) {
		all = append(all, mutation{"header: " + name, shape, fits, func(d *draft) {
			replace := strings.NewReplacer("%N", d.number(), "%D", d.other(), "%A", d.pathOf(d.number()), "%B", d.pathOf(d.other()))
			var filled []string
			for _, l := range pick(d.rand, lines...) {
				filled = append(filled, replace.Replace(l))
			}
			d.headers = change(d, filled)
		}})
	}
	instead := func(_ *draft, lines []string) []string { return lines }
	beside := func(d *draft, lines []string) []string { return slices.Concat(d.headers, lines) }
	header := from(inHeader)

	add("twice", header, instead, []string{"X-Order-Id: %D", "X-Order-Id: %N"}, []string{"X-Order-Id: %N", "X-Order-Id: %D"}, []string{"X-Order-Id: %N", "x-order-id: %N"}, []string{"X-Order-Id:", "X-Order-Id: %N"})
	add("name that folds", header, instead, []string{"X_Order_Id: %N"}, []string{"X.Order.Id: %N"}, []string{"X-Order_Id: %N"}, []string{"X-OrderId: %N"}, []string{"XOrderId: %N"}, []string{"X--Order-Id: %N"})
	add("name that folds, beside the decoy", header, instead, []string{"X-Order-Id: %D", "X_Order_Id: %N"}, []string{"X_Order_Id: %N", "X-Order-Id: %D"}, []string{"X-Order-Id: %D", "X.Order.Id: %N"}, []string{"X-Order-Id: %D", "X-Order_Id: %N"}, []string{"X-Order-Id: %D", "X~Order~Id: %N"})
	add("space around the name", header, instead, []string{"X-Order-Id : %N"}, []string{" X-Order-Id: %N"}, []string{"X-Order-Id\t: %N"}, []string{"X-Order-Id: %D", "X-Order-Id : %N"}, []string{"x: 1\r\n X-Order-Id: %N"})
	add("name in other letters", header, instead, []string{"x-order-id: %N"}, []string{"X-ORDER-ID: %N"}, []string{"X-Order-Id:%N"}, []string{"X-Order-Id: \t %N \t"})
	add("list", header, instead, []string{"X-Order-Id: %N, %D"}, []string{"X-Order-Id: %D,%N"}, []string{"X-Order-Id: %N,"}, []string{"X-Order-Id: ,%N"}, []string{"X-Order-Id: %N %D"}, []string{"X-Order-Id: %N;%D"})
	add("parameter or comment", header, instead, []string{"X-Order-Id: %N;q=1"}, []string{"X-Order-Id: %N (x)"}, []string{"X-Order-Id: (x) %N"}, []string{`X-Order-Id: "%N"`}, []string{"X-Order-Id: =?utf-8?q?%N?="}, []string{"X-Order-Id: id=%N"})
	add("folded line", header, instead, []string{"X-Order-Id:\r\n %N"}, []string{"X-Order-Id: %D\r\n X-Order-Id: %N"}, []string{"X-Order-Id: %N\r\n x"}, []string{"X-Order-Id: %N\n"}, []string{"X-Order-Id: %D\rX-Order-Id: %N"})
	add("named by Connection", header, beside, []string{"Connection: x-order-id"}, []string{"Connection: keep-alive, X-Order-Id"}, []string{"Connection: x-order-id", "X_Order_Id: %D"})
	add("in another place", header, instead, []string{"Order-Id: %N"}, []string{"X-Order-Id-: %N"}, []string{"X-Forwarded-X-Order-Id: %N"}, []string{"Cookie: orderId=%N"})

	add("another URL", nil, beside, []string{"X-Original-URL: %A"}, []string{"X-Rewrite-URL: %A"}, []string{"X-Original-URI: %A"}, []string{"X-Original-URL: %A?x=1"}, []string{"X_Original_URL: %A"})
	all = append(all, mutation{"header: another URL than the decoy's", shape, from(inPath), func(d *draft) {
		d.path = d.pathOf(d.other())
		d.headers = append(d.headers, pick(d.rand, "X-Original-URL: ", "X-Rewrite-URL: ", "x-rewrite-url: http://orders", "X-Rewrite_URL: ")+d.pathOf(d.number()))
	}})
	all = append(all, mutation{"header: another URL than the root", shape, from(inPath), func(d *draft) {
		d.path = pick(d.rand, "/", "/index.php", "/elsewhere")
		d.headers = append(d.headers, pick(d.rand, "X-Original-URL: ", "X-Rewrite-URL: ", "X.Original.URL: ", "X_Rewrite.URL: ", "X-Original.URL: ")+d.pathOf(d.number()))
	}})
	all = append(all, mutation{"header: path in parts", shape, from(inPath), func(d *draft) {
		d.path = strings.TrimPrefix(d.path, "/orders")
		d.headers = append(d.headers, pick(d.rand, "X-Forwarded-Prefix: /orders", "X-Forwarded-Path: /orders", "X-Forwarded-Prefix: /x", "Script-Name: /orders", "Path-Info: "+d.pathOf(d.number())))
	}})
	add("prefix", nil, beside, []string{"X-Forwarded-Prefix: /x"}, []string{"X-Forwarded-Prefix: /orders/%D"}, []string{"X-Forwarded-Prefix: %B"}, []string{"X-Forwarded-Prefix: %A", "X-Forwarded-Prefix: /"}, []string{"Forwarded: for=1;host=x"})
	// The key that these claim is nobody's, so that one which arrives is noticed.
	add("ours", nil, beside, []string{"x-ordergate-key: order:lock:forged"}, []string{"X_Ordergate_Key: order:lock:forged"}, []string{"X.Ordergate.Key: order:lock:forged"}, []string{"x-ordergate-key: order:lock:forged", "x-ordergate-key: order:lock:forged"}, []string{"X-Ordergate_Key: order:lock:forged"}, []string{"x-ordergate-key : order:lock:forged"}, []string{"x-ordergate-lease: %N", "x-ordergate-fence: 999"}, []string{"x-ordergate-verdict: acquired"}, []string{"Connection: x-ordergate-key"}, []string{"Connection: close, x-ordergate-key"})
	return all
}

// cookieMutations change the Cookie header as a whole.
func cookieMutations() []mutation {
	var all []mutation
	for _, m := range []struct {
		name  string
		lines []string
	}{
		{"two headers", []string{"Cookie: orderId=%D\r\nCookie: orderId=%N", "Cookie: orderId=%N\r\nCookie: orderId=%D", "Cookie: x=1\r\nCookie: orderId=%N"}},
		{"quotes", []string{`Cookie: orderId="%N"`, `Cookie: orderId="%N`, `Cookie: x="; orderId=%D; y="; orderId=%N`, `Cookie: orderId='%N'`, `Cookie: orderId="%D"; orderId=%N`}},
		{"separators", []string{"Cookie: x=1,orderId=%N", "Cookie: x=1;orderId=%N", "Cookie: x=1 orderId=%N", "Cookie: orderId=%N,orderId=%D", "Cookie: ;;orderId=%N;", "Cookie: orderId=%N&orderId=%D", "Cookie: x=1\torderId=%N"}},
		{"spaces", []string{"Cookie: orderId =%N", "Cookie: orderId= %N", "Cookie:  orderId=%N ", "Cookie: orderId\t=\t%N", "Cookie: orderId=%D; orderId =%N"}},
		{"old syntax", []string{`Cookie: $Version=1; orderId=%N; $Path=/`, `Cookie: $Version="1"; orderId="%N"`, "Cookie2: orderId=%N", `Cookie: $Version=1; orderId=%D, orderId=%N`,
			`Cookie: $Version=1; x=1, orderId=%N; orderId=%D`, `Cookie: $Version="1"; x="1" , orderId="%N"; orderId=%D`, `Cookie: orderId=%D; $Version=1; x=1,orderId=%N`}},
		{"escapes", []string{"Cookie: order%49d=%N", "Cookie: orderId=%34%N", "Cookie: orderId=%20%N", "Cookie: orderId=%D; order%49d=%N", "Cookie: orderId=+%N"}},
		{"names of PHP's folding", []string{"Cookie: orderId[]=%N", "Cookie: orderId=%D; orderId[]=%N", "Cookie: orderId[x]=%N; orderId=%D", "Cookie: orderId%00=%N"}},
		{"prefix of the name", []string{"Cookie: __Host-orderId=%N", "Cookie: __Secure-orderId=%N; orderId=%D", "Cookie: orderId2=%D; orderId=%N"}},
	} {
		all = append(all, mutation{"cookie: " + m.name, framing, from(inCookie), func(d *draft) {
			d.cookies = nil
			d.headers = append(d.headers, strings.NewReplacer("%N", d.number(), "%D", d.other()).Replace(pick(d.rand, m.lines...)))
		}})
	}
	return all
}

// methodMutations change the method, or what a framework takes for it.
func methodMutations() []mutation {
	methods := []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "post", "Post", "get", "BREW", "PROPFIND", "QUERY"}
	all := []mutation{
		{"method: parameter", framing, nil, func(d *draft) {
			d.query = append(d.query, pick(d.rand, "_method", "_METHOD", "x-http-method-override", "method")+"="+pick(d.rand, "GET", "PUT", "POST", "DELETE", "settle"))
		}},
		{"method: field", framing, from(inPath, inQuery, inForm, inHeader, inCookie), func(d *draft) {
			d.method = pick(d.rand, "POST", d.method)
			d.setForm("_method=" + pick(d.rand, "GET", "PUT", "POST", "DELETE"))
		}},
		{"method: header", framing, nil, func(d *draft) {
			d.headers = append(d.headers, pick(d.rand, "X-HTTP-Method-Override", "X-Method-Override", "X-HTTP-Method", "X-Original-Method", "X_HTTP_Method_Override")+": "+pick(d.rand, methods...))
		}},
		{"method: another, with the own in a header", framing, nil, func(d *draft) {
			d.headers = append(d.headers, pick(d.rand, "X-HTTP-Method-Override: ", "X-Method-Override: ")+d.method)
			d.method = pick(d.rand, methods...)
		}},
		{"version: 1.0", framing, nil, func(d *draft) {
			d.version = pick(d.rand, "HTTP/1.0", "HTTP/1.2", "http/1.1", "HTTP/0.9")
			d.alone = true
		}},
		{"version: 2", framing, nil, func(d *draft) { d.version = overHTTP2 }},
		{"method: another, over HTTP/2", framing, nil, func(d *draft) {
			d.version = overHTTP2
			d.method = pick(d.rand, strings.ToLower(d.method), d.method[:1]+strings.ToLower(d.method[1:]), pick(d.rand, methods...))
		}},
		{"host", framing, nil, func(d *draft) {
			d.headers = append(d.headers, pick(d.rand, "X-Forwarded-Host: other", "X-Host: other", "Host: other", "X-Forwarded-Proto: https"))
			d.alone = true
		}},
	}
	for _, m := range methods {
		all = append(all, mutation{"method: " + m, framing, func(d *draft) bool { return d.method != m }, func(d *draft) { d.method = m }})
	}
	return all
}
