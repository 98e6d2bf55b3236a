package changelog

import (
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func reply(logID, tail any, entries any) []any {
	return []any{logID, tail, "1700000000000", "1", "", int64(0), int64(0), entries, []any{}, "", "0", "0", int64(0), "0"}
}

func TestParsePageRefuses(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name  string
		reply []any
		want  string
	}{
		{"nothing", nil, "unexpected form"},
		{"epoch of another type", reply(1, "0", []any{}), "unexpected form"},
		{"entries of another type", reply("e", "0", "x"), "unexpected form"},
		{"counter not a number", reply("e", "-1", []any{}), "not a number"},
		{"time not a number", []any{"e", "1", "now", "1", "", int64(0), int64(0), []any{}, []any{}, "", "0", "0", int64(0), "0"}, "not a number"},
		{"least not a number", []any{"e", "1", "1", "1", "", int64(0), int64(0), []any{}, []any{}, "", "x", "0", int64(0), "0"}, "not a number"},
		{"window not a number", []any{"e", "1", "1", "1", "", int64(0), int64(0), []any{}, []any{}, "", "0", "1s", int64(0), "0"}, "not a number"},
		{"beginning not a number", []any{"e", "1", "1", "1", "", int64(0), int64(0), []any{}, []any{}, "", "0", "0", int64(0), "x"}, "not a number"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p, err := parsePage(tc.reply)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("parsePage = %+v, %v; want an error with %q", p, err, tc.want)
			}
		})
	}
}

func TestParseEntry(t *testing.T) {
	t.Parallel()
	row := func(name any, fields ...any) []any { return []any{name, fields} }
	for _, tc := range []struct {
		name string
		row  any
		bad  string
	}{
		{"good", row("1-0", "id", "x", "n", "y"), ""},
		{"row of another type", "x", "unexpected form"},
		{"row without fields", []any{"1-0", nil}, "malformed"},
		{"name of another type", row(7, "id", "x", "n", "y"), "not written by ordergate"},
		{"second of a millisecond", row("1-1", "id", "x", "n", "y"), "not written by ordergate"},
		{"other fields", row("1-0", "n", "x", "id", "y"), "malformed"},
		{"long ID", row("1-0", "id", strings.Repeat("x", 257), "n", "y"), "257 bytes"},
		{"no ID", row("2-0", "id", "", "n", "y"), "0 bytes"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			e := parseEntry(tc.row)
			if tc.bad == "" && e != (entry{seq: 1, id: "x", nonce: "y"}) || tc.bad != "" && !strings.Contains(e.malformed, tc.bad) {
				t.Errorf("parseEntry = %+v, want %q", e, tc.bad)
			}
		})
	}
	if e := parseEntry(row("3-0", "doubt", "term: a: b", "n", "y")); e.doubt != (Doubt{Kind: Failover, Reason: "a: b", Orders: true}) || e.malformed != "" || e.id != "" {
		t.Errorf("a doubt: %+v", e)
	}
}

// Whichever entries are removed from a log, a page of it is refused or complete.
func TestAcceptedPagesAreComplete(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(0, 12).Draw(t, "entries")
		read := rapid.IntRange(0, n).Draw(t, "read before")
		count := rapid.IntRange(1, 5).Draw(t, "page size") + 1
		var last entry
		p := page{logID: "e", tail: uint64(n)}
		for seq := 1; seq <= n; seq++ {
			e := entry{seq: uint64(seq), id: "x", nonce: string(rune('a' + seq))}
			if seq == read {
				last = e
			}
			gone := rapid.IntRange(0, 9).Draw(t, "luck") == 0
			if seq >= read && seq > 0 && !gone && len(p.entries) < count {
				p.entries = append(p.entries, e)
			}
		}
		fresh, bad := p.newEntries("e", last, len(p.entries) >= count)
		if bad != nil {
			return
		}
		want := n - read
		if room := count - 1; read > 0 && want > room {
			want = room
		} else if read == 0 && want > count {
			want = count
		}
		if len(fresh) != want {
			t.Fatalf("accepted %d entries after %d, want %d", len(fresh), read, want)
		}
		for i, e := range fresh {
			if e.seq != uint64(read+1+i) {
				t.Fatalf("entry %d stands where %d should", e.seq, read+1+i)
			}
		}
	})
}
