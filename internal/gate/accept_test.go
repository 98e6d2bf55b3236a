package gate

import (
	"strings"
	"testing"

	"github.com/ordergate/ordergate/internal/order"
)

func TestAcceptAll(t *testing.T) {
	for accept, want := range map[string]string{
		"*/*":                         "",
		"application/json, */*;q=0.5": "",
		"text/html,application/xhtml+xml,image/webp,application/signed-exchange;v=b3;q=0.7,*/*;q=0.8": "",
		"text/xml":                 "text/xml, */*;q=0.1",
		"text/xml; charset=UTF-8":  "text/xml; charset=UTF-8, */*;q=0.1",
		"application/*+json;q=1.0": "application/*+json;q=1.0, */*;q=0.1",
		"text/xml|*/*":             "text/xml, */*",
		"text/xml|text/plain":      "text/xml, text/plain, */*;q=0.1",
		"":                         "*/*", "x": "*/*", "a/b,": "*/*", "/": "*/*", "*/json": "*/*", "*/*;q=0": "*/*", "a/b;q=0": "*/*", "a/b, text/*;q=0.0": "*/*", "a/b;Q=0.000,*/*": "*/*", "*/*;q=0.000": "*/*",
		"a/b;q=2": "*/*", "a/b;q=0.1234": "*/*", "a/b;q=1.1": "*/*", "a/b;q=0..1": "*/*", "a/b;q=.5": "*/*", "a/b;q=": "*/*", "a/b;q=01": "*/*",
		"*/*;charset=none": "*/*", "a/b;c": "*/*", "a/b;c=\"": "*/*",
		strings.Repeat("a/b,", maxAccept) + "*/*": "*/*",
	} {
		header := order.HeaderList{{"x", "1"}}
		for line := range strings.SplitSeq(accept, "|") {
			header = append(header, [2]string{HeaderAccept, line})
		}
		if got := acceptAll(header); got != want {
			t.Errorf("%q becomes %q, want %q", accept, got, want)
		}
	}
	if got := acceptAll(order.HeaderList{{"x", "1"}}) + acceptAll(nil); got != "" {
		t.Errorf("without one: %q", got)
	}
}
