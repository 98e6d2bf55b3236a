package bundle

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"
)

// TestScrubber has secrets in each form in which a text may have them.
func TestScrubber(t *testing.T) {
	t.Parallel()
	secret := `pass"word/%äö`
	s := NewScrubber([]string{secret, "abc", "", "longer-than-the-next", "longer-than"})
	for _, tt := range []struct{ text, want string }{
		{"error=" + secret + " ", "error=(hidden) "},
		{fmt.Sprintf("error=%q", secret), `error="(hidden)"`},
		{"mysql://x/?p=pass%22word%2F%25%C3%A4%C3%B6&q=1", "mysql://x/?p=(hidden)&q=1"},
		{"longer-than-the-next, longer-than-that", "(hidden), (hidden)-that"},
		{"abc abc abcd (abc)", "(hidden) (hidden) abcd ((hidden))"},
		{"redis://user:another@host:1/2", "redis://(hidden)@host:1/2"},
		{"error=user:another/one@tcp(host:1)/shop", "error=(hidden)@tcp(host:1)/shop"},
		{"host=a password='an other' user=b", "host=a password=(hidden) user=b"},
		{"password: x\nPassword=\"y z\"", "password: (hidden)\nPassword=(hidden)"},
		{"Authorization: Bearer abc.def-ghi", "Authorization: Bearer (hidden)"},
		{"time=12:00:01 who=root@vm addr=127.0.0.1:1 password_file: /run/x", "time=12:00:01 who=root@vm addr=127.0.0.1:1 password_file: /run/x"},
	} {
		if got := string(s.Scrub([]byte(tt.text))); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.text, got, tt.want)
		}
	}
}

// TestLog keeps the last lines, of writers at the same time, and bounds each.
func TestLog(t *testing.T) {
	t.Parallel()
	var l Log
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			for i := range maxLines {
				fmt.Fprintf(&l, "%d of %d\n", i, w)
				if i%100 == 0 {
					l.Text()
				}
			}
		})
	}
	wg.Wait()
	if n := bytes.Count(l.Text(), []byte("\n")); n != maxLines {
		t.Errorf("%d lines", n)
	}
	fmt.Fprint(&l, strings.Repeat("x", 2*maxLine))
	fmt.Fprint(&l, "the last")
	if text := string(l.Text()); !strings.HasSuffix(text, "x\nthe last\n") || strings.Count(text, "x") != maxLine || strings.Count(text, "\n") != maxLines {
		t.Errorf("%d bytes, %d lines", len(text), strings.Count(text, "\n"))
	}
}

// TestFiles writes an archive into which another one was read.
func TestFiles(t *testing.T) {
	t.Parallel()
	var inner, outer, again Files
	inner.Add("log.txt", []byte("the secret-text"))
	inner.Miss("INFO", errors.New("away"))
	var b bytes.Buffer
	for _, step := range []error{
		inner.Write(&b, "", NewScrubber([]string{"secret-text"}), time.Now()), outer.Read(&b, "instance/"),
		outer.Write(&b, "report/", NewScrubber(nil), time.Now()), again.Read(&b, ""),
	} {
		if step != nil {
			t.Fatal(step)
		}
	}
	if got := fmt.Sprintf("%s %s", again.all, outer.Missing()); got != "[{report/instance/log.txt the (hidden)} {report/missing.txt INFO: away\n}] [INFO: away]" {
		t.Error(got)
	}
	if err := again.Read(strings.NewReader("no archive"), ""); err == nil {
		t.Error("a text was read as an archive")
	}
}
