package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestReply has a case for each rule about answers of ordergate.
func TestReply(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	page := write("page.html", "<title>No such order</title>\n")
	with := func(reply string) string {
		return `{filters: {f: {}}, rules: [{name: a, match: {methods: [GET], path: "/o/{id}"}, id: {path: id}, lookup: {filter: f, absent: ` + reply + `}}]}`
	}
	const at = "rules[0].lookup.absent."
	for reply, want := range map[string][]string{
		`{status: 200, content_type: "text/html; charset=utf-8", body_file: ` + page + `}`: nil,
		`{status: 302, headers: {Location: /cart}}`:                                        nil,
		`{headers: {x-a: b c, set-cookie: "a=b"}}`:                                         nil,
		`{content_type: text/plain, body: none}`:                                           nil,
		`{status: 204}`:                                                                    {at + "status: 204 is an answer without a body, which a proxy may take for another: give one from 200 with a body"},
		`{status: 301}`:                                                                    {at + "status: 301 is a redirect, and headers have no location: give it one"},
		`{content_type: html, body: x}`:                                                    {at + `content_type: "html" is not a media type, such as text/html; charset=utf-8`},
		`{content_type: text/html}`:                                                        {at + "content_type: is for a body, and there is none of this type: give body or body_file"},
		`{body: x, body_file: ` + page + `}`:                                               {at + "body_file: excludes body: give one of the two"},
		`{body_file: ` + dir + `/none}`:                                                    {at + "body_file: reading the body: no such file or directory"},
		`{body_file: ` + dir + `}`:                                                         {at + "body_file: reading the body: not a regular file"},
		`{body_file: ` + write("empty", "") + `}`:                                          {at + "body_file: reading the body: the file is empty"},
		`{body_file: ` + write("large", strings.Repeat("x", maxBody+1)) + `}`:              {at + "body_file: reading the body: the file is larger than 65536 bytes"},
		`{body_file: ` + write("latin1", "M\xfcller") + `}`:                                {at + "body_file: the file is not UTF-8"},
		`{headers: {content-type: a/b}}`:                                                   {at + `headers: "content-type" has a key of its own, belongs to the connection, or is set by Envoy or ordergate: remove it`},
		`{headers: {X-Ordergate-Verdict: a}}`:                                              {at + `headers: "x-ordergate-verdict" has a key of its own, belongs to the connection, or is set by Envoy or ordergate: remove it`},
		`{headers: {connection: close}}`:                                                   {at + `headers: "connection" has a key of its own, belongs to the connection, or is set by Envoy or ordergate: remove it`},
		`{headers: {X-A: b, x-a: c}}`:                                                      {at + `headers: "X-A" is given twice, in another case`},
		`{headers: {"a b": c}}`:                                                            {at + `headers: "a b" is not a name of a header`},
		`{headers: {x-a: "b\r\nc"}}`:                                                       {at + "headers.x-a: is not a value of a header: 1 to 4096 visible characters of ASCII, with blanks between them"},
		`{headers: {x-a: ""}}`:                                                             {at + "headers.x-a: is not a value of a header: 1 to 4096 visible characters of ASCII, with blanks between them"},
	} {
		t.Run(reply, func(t *testing.T) { expect(t, with(reply), want) })
	}
	got := mustParse(t, with(`{status: 200, content_type: text/html, body_file: `+page+`, headers: {X-A: b}}`), nil).Rules[0].Lookup.Absent
	want := Reply{Status: 200, ContentType: "text/html", Body: "<title>No such order</title>\n", BodyFile: page, Headers: map[string]string{"x-a": "b"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error("(-want +got):\n" + diff)
	}
	if got := mustParse(t, with(`{status: 302, headers: {location: /}}`), nil).Rules[0].Lookup.Absent.Body; got != "" {
		t.Errorf("a redirect has the body %q", got)
	}
}
