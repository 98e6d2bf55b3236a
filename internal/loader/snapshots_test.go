package loader

import (
	"encoding/hex"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ordergate/ordergate/config"
	"github.com/ordergate/ordergate/filter"
	"github.com/ordergate/ordergate/filter/snapshot"
	"github.com/ordergate/ordergate/internal/rules"
	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// TestFilterKey pins the key: another one would make every filter that was kept
// useless.
func TestFilterKey(t *testing.T) {
	t.Parallel()
	key := filterKey("a secret of at least 16 bytes")
	if got := hex.EncodeToString(key[:]); got != "dfe4633c64c3ca49062b2c53c40a2716" {
		t.Errorf("key %s", got)
	}
}

func TestMemoryKey(t *testing.T) {
	t.Parallel()
	snap := &config.Snapshot{Path: filepath.Join(t.TempDir(), "orders.snap")}
	zero := [16]byte{}
	for _, tc := range []struct {
		name string
		c    config.Filter
		zero bool
		file bool
	}{
		{"nothing to keep", config.Filter{Kind: config.FilterLocal}, true, false},
		{"numbers", config.Filter{Kind: config.FilterExact, Snapshot: snap}, true, false},
		{"configured", config.Filter{Kind: config.FilterLocal, Secret: "a secret of at least 16 bytes", Snapshot: snap}, false, false},
		{"made", config.Filter{Kind: config.FilterLocal, Snapshot: snap}, false, true},
	} {
		key, err := memoryKey(tc.c, [16]byte{})
		if err != nil || (key == zero) != tc.zero {
			t.Errorf("%s: key %x, %v", tc.name, key, err)
		}
		again, err := memoryKey(tc.c, [16]byte{})
		if err != nil || again != key {
			t.Errorf("%s: another key the next time, %v", tc.name, err)
		}
		if _, err := os.Stat(snap.Path + ".secret"); (err == nil) != tc.file {
			t.Errorf("%s: a file of the secret: %v", tc.name, err)
		}
	}
}

// TestFolderIsNoSnapshot leaves what is no file at its path: as root, a rename would move /dev/null.
func TestFolderIsNoSnapshot(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := &snapshots{path: dir, claim: new(snapshot.Claim), refused: true}
	if err := s.prepare(); err == nil || err.Error() != dir+" is not a regular file" {
		t.Error(err)
	}
	if _, err := os.Stat(dir); err != nil {
		t.Error(err)
	}
}

func TestKeptKeyIsMadeOnce(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "orders.snap.secret")
	var keys [16][16]byte
	var wg sync.WaitGroup
	for i := range keys {
		wg.Go(func() {
			var err error
			if keys[i], err = keptKey(path, [16]byte{}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	for _, key := range keys {
		if key != keys[0] || key == ([16]byte{}) {
			t.Fatalf("keys %x", keys)
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
		t.Errorf("files %v, %v", left, err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
}

func TestKeptKeyRefuses(t *testing.T) {
	t.Parallel()
	const good = "00112233445566778899aabbccddeeff"
	for _, tc := range []struct {
		name, text string
		mode       os.FileMode
		want       string // "": taken
	}{
		{"good", good + "\n", 0o600, ""},
		{"read only, of another system", good + "\r\n", 0o400, ""},
		{"the group may read it", good, 0o640, "-rw-r-----"},
		{"others may write it", good, 0o602, "chmod 600"},
		{"empty", "", 0o600, "32 hexadecimal digits"},
		{"short", good[2:], 0o600, "32 hexadecimal digits"},
		{"long", good + "00", 0o600, "32 hexadecimal digits"},
		{"very long", strings.Repeat(good, 100), 0o600, "has 3200 bytes"},
		{"not hexadecimal", "x" + good[1:], 0o600, "32 hexadecimal digits"},
		{"zero", strings.Repeat("0", 32), 0o600, "32 hexadecimal digits"},
	} {
		path := filepath.Join(t.TempDir(), "a.secret")
		if err := os.WriteFile(path, []byte(tc.text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, tc.mode); err != nil {
			t.Fatal(err)
		}
		key, err := keptKey(path, [16]byte{})
		if tc.want == "" {
			if err != nil || hex.EncodeToString(key[:]) != good {
				t.Errorf("%s: %x, %v", tc.name, key, err)
			}
			continue
		}
		if err == nil || !strings.Contains(err.Error(), tc.want) || !strings.Contains(err.Error(), path) || strings.Contains(err.Error(), good[3:]) {
			t.Errorf("%s: %v", tc.name, err)
		}
	}
	for _, path := range []string{t.TempDir(), filepath.Join(t.TempDir(), "none", "a")} {
		if _, err := keptKey(path, [16]byte{}); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v", path, err)
		}
	}
}

func TestStamp(t *testing.T) {
	t.Parallel()
	now := time.Now()
	path := filepath.Join(t.TempDir(), "ids.csv")
	write := func(text string, age time.Duration) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, now.Add(-age), now.Add(-age)); err != nil {
			t.Fatal(err)
		}
	}
	digits := rules.ID{ID: config.ID{Path: "id", Format: config.FormatDigits, MaxLength: 19}}
	uuid := rules.ID{ID: config.ID{Path: "id", Format: config.FormatUUID}}
	file := []filter.Source{&csvSource{path: path}}
	write("1\n", time.Hour)
	first := fingerprintOf(file, nil, []rules.ID{digits}, now)
	if first == "" || first != fingerprintOf(file, nil, []rules.ID{digits}, now.Add(time.Hour)) {
		t.Fatalf("stamp %q", first)
	}
	elsewhere := digits
	elsewhere.Path, elsewhere.Header = "", "x-order-id"
	if fingerprintOf(file, nil, []rules.ID{elsewhere}, now) != first {
		t.Error("where a rule finds an ID makes no difference to which there are")
	}
	if fingerprintOf(file, nil, []rules.ID{digits, elsewhere}, now) != first {
		t.Error("how many rules ask for IDs of one form makes no difference to which there are")
	}
	longer := digits
	longer.MaxLength++
	seen := map[string]string{first: "the first"}
	for name, s := range map[string]string{
		"another format":   fingerprintOf(file, nil, []rules.ID{uuid}, now),
		"another length":   fingerprintOf(file, nil, []rules.ID{longer}, now),
		"another rule":     fingerprintOf(file, nil, []rules.ID{digits, uuid}, now),
		"no rule":          fingerprintOf(file, nil, nil, now),
		"no source":        fingerprintOf(nil, nil, []rules.ID{digits}, now),
		"the source twice": fingerprintOf(append(file, file...), nil, []rules.ID{digits}, now),
	} {
		if other, taken := seen[s]; taken || s == "" {
			t.Errorf("%s has the stamp %q of %q", name, s, other)
		}
		seen[s] = name
	}
	write("1\n", time.Hour+time.Nanosecond*1000)
	if s := fingerprintOf(file, nil, []rules.ID{digits}, now); s == first || s == "" {
		t.Errorf("another time: %q", s)
	}
	write("12\n", time.Hour)
	if s := fingerprintOf(file, nil, []rules.ID{digits}, now); s == first || s == "" {
		t.Errorf("another size: %q", s)
	}
	for _, age := range []time.Duration{time.Second, 0, -time.Hour} {
		write("1\n", age)
		if s := fingerprintOf(file, nil, []rules.ID{digits}, now); s != "" {
			t.Errorf("changed %v ago: %q", age, s)
		}
	}
	for _, path := range []string{path + "none", t.TempDir()} {
		if s := fingerprintOf([]filter.Source{&csvSource{path: path}}, nil, nil, now); s != "" {
			t.Errorf("%s: %q", path, s)
		}
	}
	if s := fingerprintOf([]filter.Source{filter.Source(nil)}, nil, nil, now); s != "" {
		t.Errorf("a source that cannot tell: %q", s)
	}
}

// startHost runs the loader of a filter, and waits until its snapshot is there.
func startHost(t *testing.T, path string) *host {
	t.Helper()
	text := `
listen: {authz: 127.0.0.1:0, proc: "", admin: 127.0.0.1:0}
filters: {orders: {capacity: 100, snapshot: {path: ` + path + `}}}
rules:
  - {name: r, match: {methods: [GET], path: "/{id}"}, id: {path: id}, lookup: {filter: orders}}
`
	c, err := config.Parse("a.yaml", []byte(text), func(string) string { return "" })
	if err != nil {
		t.Fatal(err)
	}
	m, err := build(t.Context(), c, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Close)
	bedtest.Eventually(t, "a snapshot is written", func() bool { return m.filters["orders"].snapshots.shown.Load().bytes > 0 })
	return m
}

// TestSnapshotIsNotRepeated leaves a file alone that has all there is.
func TestSnapshotIsNotRepeated(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "orders.snap")
	m := startHost(t, path)
	s := m.filters["orders"].snapshots
	stat := func() os.FileInfo {
		t.Helper()
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		return info
	}
	before, at := stat(), s.shown.Load().at
	s.try(t.Context())
	if !os.SameFile(before, stat()) {
		t.Error("nothing has changed, but it was written")
	}
	if !s.shown.Load().at.After(at) {
		t.Error("its age does not say that it is up to date")
	}
	m.filters["orders"].filter.Add("7")
	s.try(t.Context())
	if os.SameFile(before, stat()) {
		t.Error("an order more, and it was not written")
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	s.try(t.Context())
	stat()
}
