package register

import (
	"errors"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestGuards has a section with a small fence overlap one with a greater, in the
// two orders in which that can do harm.
func TestGuards(t *testing.T) {
	for _, c := range []struct {
		name  string
		guard Guard
		order string // a and b read, A and B write; a has the smaller fence
		want  string // those that were refused
	}{
		{"a stale write, unfenced", Unfenced, "abBA", ""},
		{"a stale write", WritesFenced, "abBA", "A"},
		{"a stale write, reads fenced", Fenced, "abBA", "A"},
		{"a late write before the next one's, unfenced", Unfenced, "abAB", ""},
		{"a late write before the next one's", WritesFenced, "abAB", ""},
		{"a late write before the next one's, reads fenced", Fenced, "abAB", "A"},
		{"a stale read", WritesFenced, "bBaA", "A"},
		{"a stale read, reads fenced", Fenced, "bBa", "a"},
		{"in turn", Fenced, "aAbB", ""},
		{"twice under one fence", Fenced, "aAaA", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, err := Listen(c.guard)
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			client, err := Dial(t.Context(), s.Addr(), 1)
			if err != nil {
				t.Fatal(err)
			}
			defer client.Close()
			open, refused := make(map[rune]int64), ""
			for _, step := range c.order {
				switch step {
				case 'a', 'b':
					_, open[step], err = client.Read("k", int64(step))
				case 'A', 'B':
					err = client.Write(open[step+'a'-'A'])
				}
				switch {
				case errors.Is(err, ErrRefused):
					refused += string(step)
				case err != nil:
					t.Fatal(err)
				}
			}
			if refused != c.want {
				t.Errorf("%s: refused %q, want %q", c.order, refused, c.want)
			}
		})
	}
}

// TestHistory checks what is kept of a section that ended and of one that did not.
func TestHistory(t *testing.T) {
	s, err := Listen(Unfenced)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	inside := make(chan Section, 2)
	s.OnRead(func(section *Section) { inside <- *section })
	client, err := Dial(t.Context(), s.Addr(), 7)
	if err != nil {
		t.Fatal(err)
	}
	_, section, err := client.Read("k", 3)
	if err != nil {
		t.Fatal(err)
	}
	if err := client.Write(section); err != nil {
		t.Fatal(err)
	}
	if err := client.Write(section); !errors.Is(err, ErrRefused) {
		t.Errorf("a section was written twice: %v", err)
	}
	if _, _, err := client.Read("k", 4); err != nil {
		t.Fatal(err)
	}
	client.Close()
	if got := <-inside; got.Worker != 7 || got.Outcome != Open {
		t.Errorf("inside: %+v", got)
	}
	if !s.Until(time.Second, func(all []Section) bool { return len(all) == 2 }) {
		t.Fatal("the history never grew")
	}
	first, second := s.Sections()[0], s.Sections()[1]
	if first.Read != 0 || first.Wrote != 1 || first.Fence != 3 || first.Outcome != Applied || first.Return <= first.Call {
		t.Errorf("first: %+v", first)
	}
	if second.Read != 1 || second.Outcome != Open || second.Call < first.Return {
		t.Errorf("second: %+v", second)
	}
}
