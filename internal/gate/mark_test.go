package gate

import (
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/ordergate/ordergate/internal/order"
)

// TestMarks takes a mark once, within its time, and no other text.
func TestMarks(t *testing.T) {
	seal, other := NewSeal(), NewSeal()
	counted := make(map[string]int)
	marks := NewMarks(seal, func(result string) { counted[result]++ })
	mark := NewMark(StageProc, "settle-order", 2*time.Second)
	text := seal.Sign(mark)
	got, result := marks.Take(text)
	if got.At = got.At.Local(); result != MarkTaken || got.Nonce != mark.Nonce || got.Rule != mark.Rule || got.Stage != mark.Stage || got.Delay != mark.Delay || got.At.UnixMilli() != mark.At.UnixMilli() {
		t.Errorf("took %+v (%s), want %+v", got, result, mark)
	}
	late, early := NewMark(StageProc, "", 0), NewMark(StageProc, "", 0)
	late.At, early.At = late.At.Add(-MarkValid), early.At.Add(2*MarkValid)
	dot := strings.LastIndexByte(text, '.')
	for name, tt := range map[string]struct{ text, result string }{
		"again":                {text, MarkRepeated},
		"of another key":       {other.Sign(NewMark(StageAuthz, "", 0)), MarkForged},
		"with another stage":   {strings.Replace(seal.Sign(NewMark(StageProc, "", 0)), "proc", "authz", 1), MarkForged},
		"too old":              {seal.Sign(late), MarkExpired},
		"of the future":        {seal.Sign(early), MarkExpired},
		"without its mac":      {text[:dot], MarkForged},
		"with an empty mac":    {text[:dot+1], MarkForged},
		"a dot":                {".", MarkForged},
		"of two headers":       {MarkIn(order.HeaderList{{HeaderDoctor, seal.Sign(NewMark(StageProc, "", 0))}, {HeaderDoctor, "a"}}), MarkForged},
		"1 MB":                 {strings.Repeat("a.", 1<<19), MarkForged},
		"the seal of a target": {mac(seal.Key(), "GET", "/") + "." + mac(seal.Key(), "doctor", "/"), MarkForged},
	} {
		clear(counted)
		if m, result := marks.Take(tt.text); result != tt.result || counted[tt.result] != 1 || len(counted) != 1 {
			t.Errorf("%s: %s %+v, counted %v", name, result, m, maps.Clone(counted))
		}
	}
	if _, result := marks.Take(""); result != "" || counted[MarkForged] > 1 {
		t.Error("took no mark")
	}
	if _, result := (*Marks)(nil).Take(text); result != "" {
		t.Error("without marks, one was taken")
	}
}

// TestMarksKeyReplaced takes marks of the key before, as the instances get the new one at different
// times.
func TestMarksKeyReplaced(t *testing.T) {
	seal := NewSeal()
	marks, before := NewMarks(seal, nil), seal.Sign(NewMark(StageAuthz, "", 0))
	seal.Use(SealKey{1})
	after := seal.Sign(NewMark(StageAuthz, "", 0))
	old := seal.Sign(NewMark(StageAuthz, "", 0))
	for _, text := range []string{before, after} {
		if _, result := marks.Take(text); result != MarkTaken {
			t.Errorf("%s is refused", text)
		}
	}
	seal.Use(SealKey{2})
	seal.Use(SealKey{3})
	if _, result := marks.Take(old); result != MarkForged {
		t.Error("a mark with a key of long ago is taken")
	}
}

// TestMarksBounded remembers no more marks than it may, and takes none then.
func TestMarksBounded(t *testing.T) {
	seal := NewSeal()
	marks := NewMarks(seal, nil)
	now := time.Now()
	marks.now = func() time.Time { return now }
	for range maxUsedMarks {
		if marks.use(&Mark{Nonce: NewMark("", "", 0).Nonce, At: now}) != MarkTaken {
			t.Fatal("refused too early")
		}
	}
	if marks.use(&Mark{Nonce: "one more", At: now}) != MarkRepeated {
		t.Error("took one too many")
	}
	now = now.Add(MarkValid + time.Millisecond)
	if marks.use(&Mark{Nonce: "later", At: now}) != MarkTaken || len(marks.used) != 1 {
		t.Errorf("%d marks are remembered", len(marks.used))
	}
}

// TestHideMarked hides a target with its mark, and only ordergate's.
func TestHideMarked(t *testing.T) {
	seal := NewSeal()
	const mark, target = "proc.rule.0.1.2.mac", "/orders/42?a=1"
	path := seal.HideMarked("POST", target, mark)
	revealed, ok := seal.Reveal("POST", path)
	if got, text := Unmark(revealed); !ok || got != target || text != mark {
		t.Errorf("%s: %q, %q, %v", path, got, text, ok)
	}
	if _, ok := seal.Reveal("GET", path); ok {
		t.Error("the method may be another one")
	}
	plain, _ := seal.Reveal("POST", seal.Hide("POST", target))
	if got, text := Unmark(plain); got != target || text != "" {
		t.Errorf("without a mark: %q, %q", got, text)
	}
}

// TestMarkIn finds one mark, and no other spelling of the header.
func TestMarkIn(t *testing.T) {
	for want, headers := range map[string]order.HeaderList{
		"a": {{"x", "y"}, {HeaderDoctor, "a"}},
		",": {{HeaderDoctor, "a"}, {HeaderDoctor, "b"}},
		"":  {{"x", "y"}},
	} {
		if got := MarkIn(headers); got != want {
			t.Errorf("%v: %q", headers, got)
		}
	}
	if got := MarkIn(order.HeaderList{{"x_ordergate_doctor", "a"}}); got != "" {
		t.Errorf("another spelling: %q", got)
	}
}
