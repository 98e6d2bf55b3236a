package order

import (
	"runtime"
	"strings"
	"testing"
	"time"
)

// FuzzCanonical checks that what is canonical stays as it is, in every format.
func FuzzCanonical(f *testing.F) {
	pattern, err := CompilePattern(`[A-Za-z]{0,3}[0-9-]+|x.*`, AsIs)
	if err != nil {
		f.Fatal(err)
	}
	formats := []Format{
		digits, {Kind: UUID, Case: Lower}, {Kind: Pattern, Min: 1, Max: 40, Pattern: pattern},
		{Kind: Timestamped, Min: 1, Max: 19, Layout: "20060102", At: 2},
		{Kind: Snowflake, Min: 1, Max: 19, Epoch: time.UnixMilli(1288834974657), Shift: 22},
	}
	for _, seed := range []string{"42", "042", "123E4567-e89b-12d3-a456-426614174000", "AB-12", "9920261121", "x%41", "+1", "４２"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		for _, format := range formats {
			c, ok := format.Canonical(text)
			if !ok {
				continue
			}
			if again, ok := format.Canonical(c); !ok || again != c {
				t.Errorf("kind %d: %q is canonical for %q, and becomes %q", format.Kind, c, text, again)
			}
			if !strings.EqualFold(c, text) {
				t.Errorf("kind %d: %q became another ID, %q", format.Kind, text, c)
			}
			for i := range len(c) {
				if c[i] <= ' ' || c[i] >= 0x7f {
					t.Errorf("kind %d: %q was let through", format.Kind, text)
				}
			}
		}
	})
}

// TestMemoryIsLinear sends what makes a careless reader go back, or copy, again
// and again, at two sizes: four times the input may take about four times the
// memory, not sixteen.
func TestMemoryIsLinear(t *testing.T) {
	const small, large = 4_000, 16_000
	repeat := func(prefix, text string) func(int) Request {
		return func(n int) Request {
			return Request{Method: "POST", Target: prefix + strings.Repeat(text, n/len(text))}
		}
	}
	body := func(target, contentType, open, text, end string) func(int) Request {
		return func(n int) Request {
			return Request{
				Method: "POST", Target: target, Header: HeaderList{{"content-type", contentType}}, BodyState: BodyComplete,
				Body: []byte(open + strings.Repeat(text, n/len(text)) + end),
			}
		}
	}
	table, err := NewTable([]Rule{
		{Methods: []string{"POST"}, Path: "/orders/{id}/settle", IDs: at(InPath, "id")},
		{Methods: []string{"POST"}, Path: "/index.php", Query: map[string][]string{"route": {"a/b/c"}}},
		{Methods: []string{"POST"}, Path: "/json", IDs: []ID{{In: InJSON, Members: []string{"id"}, MaxBody: 1 << 20, Format: digits}}},
		{Methods: []string{"POST"}, Path: "/form", IDs: []ID{{In: InForm, Name: "id", MaxBody: 1 << 20, Format: digits}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	tests := map[string]func(int) Request{
		"slashes":         repeat("/", "/"),
		"dots":            repeat("/", "../"),
		"escapes":         repeat("/", "%25"),
		"nested escapes":  repeat("/", "%252525"),
		"path parameters": repeat("/a", ";x"),
		"backslashes":     repeat("/", `\a`),
		"query":           repeat("/index.php?", "a=/b&"),
		"names":           repeat("/orders/42/settle?", "%2541=1&"),
		"one long name":   repeat("/orders/42/settle?", "%25"),
		"upper case":      repeat("/", "A"),
		"JSON nesting":    body("/json", typeJSON, "", `{"a":`, ""),
		"JSON escapes":    body("/json", typeJSON, `{"`, `\u0041`, `":1,"id":1}`),
		"JSON array":      body("/json", typeJSON, `{"a":[`, `1,`, `1],"id":1}`),
		"scripts":         repeat("/", "x.php/"),
		"suffixes":        repeat("/x", ".a"),
		"route":           repeat("/index.php?route=", "a/"),
		"a path of ours":  repeat("/orders/42/settle?a=", "/x.php"),
		"form":            body("/form", typeForm, "", "%41=1&", ""),

		"form of a front controller":        body("/index.php", typeForm, "", "a=/orders/4/settle/x&", ""),
		"multipart of a front controller":   body("/index.php", "multipart/form-data", "", "name=", ""),
		"methods in a front controller":     body("/index.php", typeForm, "", "_method=GET&", ""),
		"choices of a front controller":     repeat("/index.php?", "action=help&"),
		"many slashes, each maybe a host's": repeat("/", "/x"),
	}
	for name, request := range tests {
		t.Run(name, func(t *testing.T) {
			little, much := allocated(table, request(small)), allocated(table, request(large))
			if much > 6*little+64<<10 {
				t.Errorf("%d bytes of input took %d bytes of memory, %d took %d", small, little, large, much)
			}
		})
	}
}

// TestFormsTakeLittleTime sends forms of the largest size that is looked into, of what
// could make a reader look at all that follows, again and again.
func TestFormsTakeLittleTime(t *testing.T) {
	// It takes less than a second. It took minutes.
	const most = 30 * time.Second
	for _, text := range []string{"name=", "name=_method\n", "name=\"%25%25/a\";\n", "name=\"_method\"\n\n", "name=\"a[", "name=\n\n\x00"} {
		body := []byte(strings.Repeat(text, maxScreened/len(text)))
		for _, path := range []string{"/", "/orders/42"} {
			begin := time.Now()
			shopTable(t, Strict).Match(Request{
				Method: "POST", Target: path, Header: HeaderList{{"content-type", "multipart/form-data; boundary=b"}}, BodyState: BodyComplete, Body: body,
			})
			if took := time.Since(begin); took > most {
				t.Errorf("%d bytes of %q to %s took %v", len(body), text, path, took)
			}
		}
	}
}

// allocated returns the bytes that one match allocates.
func allocated(table *Table, req Request) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	table.Match(req)
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}
