package loader

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/ordergate/ordergate/config"
	"github.com/ordergate/ordergate/filter"
	"github.com/ordergate/ordergate/internal/rules"
)

// TestFingerprintsOfParts changes the parts of IDs: each change makes another fingerprint, so that
// no snapshot serves IDs with other parts.
func TestFingerprintsOfParts(t *testing.T) {
	t.Parallel()
	now := time.Now()
	path := filepath.Join(t.TempDir(), "ids.csv")
	if err := os.WriteFile(path, []byte("a/1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(path, now.Add(-time.Hour), now.Add(-time.Hour)); err != nil {
		t.Fatal(err)
	}
	digits, uuid := config.ID{Query: "q", Format: config.FormatDigits, MaxLength: 19}, config.ID{Query: "q", Format: config.FormatUUID}
	with := func(id config.ID, names ...string) rules.ID {
		r := rules.ID{ID: id, Names: names}
		for range names {
			r.Parts = append(r.Parts, digits)
		}
		return r
	}
	folded := with(digits, "tenant")
	folded.Parts = []config.ID{uuid}
	sources := []filter.Source{&csvSource{path: path}}
	seen := make(map[string]string)
	for name, tt := range map[string]struct {
		parts []string
		id    rules.ID
	}{
		"none":            {nil, with(digits)},
		"one":             {[]string{"tenant"}, with(digits, "tenant")},
		"another name":    {[]string{"shop"}, with(digits, "shop")},
		"another format":  {[]string{"tenant"}, folded},
		"two":             {[]string{"tenant", "shop"}, with(digits, "tenant", "shop")},
		"two, reversed":   {[]string{"shop", "tenant"}, with(digits, "shop", "tenant")},
		"of the filter":   {[]string{"tenant"}, with(digits)},
		"of the ID alone": {nil, with(digits, "tenant")},
	} {
		sum := fingerprintOf(sources, tt.parts, []rules.ID{tt.id}, now)
		if other, taken := seen[sum]; taken || sum == "" {
			t.Errorf("%s has the fingerprint %q of %s", name, sum, other)
		}
		seen[sum] = name
	}
}

// TestTablesOfParts has the position of a table with other parts refused.
func TestTablesOfParts(t *testing.T) {
	t.Parallel()
	c := config.Source{
		Kind: config.SourceMySQL, DSN: "u:p@tcp(127.0.0.1:1)/d", Table: "orders", IDColumn: "id", CursorColumn: "id", Batch: 10, Overlap: time.Minute,
		OnBad: config.OnBadFail, PartColumns: map[string]string{"tenant": "t", "shop": "s"},
	}
	identities := make(map[string]bool)
	for _, parts := range [][]string{nil, {"tenant"}, {"shop"}, {"tenant", "shop"}, {"shop", "tenant"}} {
		table, err := newTableSource("db", c, parts, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		if identities[table.identity] {
			t.Errorf("parts %q: the identity of others", parts)
		}
		identities[table.identity] = true
	}
}
