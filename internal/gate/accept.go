package gate

import (
	"mime"
	"strings"

	"github.com/ordergate/ordergate/internal/lazyregexp"
	"github.com/ordergate/ordergate/internal/order"
)

// HeaderAccept is what a client may choose a 406 by, after the backend has acted.
const HeaderAccept = "accept"

// maxAccept bounds the media types of an Accept that is kept. Spring refuses more than 50.
const maxAccept = 32

// acceptAll returns the Accept with which a request is forwarded, so that its client cannot choose
// the status 406, which proves nothing about the call: what the client prefers, and then anything.
// An Accept that a server may not understand becomes */*. "" means that it stays as it is.
func acceptAll(h order.Header) string {
	var all string
	lines := 0
	for name, value := range order.All(h) {
		if name != HeaderAccept {
			continue
		}
		if lines++; lines > 1 {
			all += ", "
		}
		all += value
	}
	if lines == 0 || lines == 1 && all == "*/*" {
		return ""
	}
	anything := false
	if strings.Count(all, ",") >= maxAccept {
		return "*/*"
	}
	for part := range strings.SplitSeq(all, ",") {
		mediaType, params, err := mime.ParseMediaType(part)
		kind, sub, ok := strings.Cut(mediaType, "/")
		if err != nil || !ok || kind == "" || sub == "" || kind == "*" && sub != "*" || !plainParameters(params) || isZero(params["q"]) {
			return "*/*"
		}
		anything = anything || mediaType == "*/*"
	}
	switch {
	case !anything:
		return all + ", */*;q=0.1"
	case lines > 1: // of several lines, some servers read the first
		return all
	}
	return ""
}

// weight is that of a media type (RFC 9110, 12.4.2).
var weight = lazyregexp.New(`^(0(\.\d{0,3})?|1(\.0{0,3})?)$`)

// plainParameters reports whether every server understands these parameters of a media type.
func plainParameters(params map[string]string) bool {
	if q, ok := params["q"]; ok && !weight.MatchString(q) {
		return false
	}
	charset, ok := params["charset"]
	return !ok || strings.EqualFold(charset, "utf-8") || strings.EqualFold(charset, "iso-8859-1") || strings.EqualFold(charset, "us-ascii")
}

func isZero(q string) bool { return q != "" && strings.Trim(q, "0.") == "" }
