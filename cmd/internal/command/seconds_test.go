package command

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/ordergate/ordergate/internal/admin"
	"github.com/ordergate/ordergate/internal/explain"
	"github.com/ordergate/ordergate/internal/lockreport"
)

// TestDurationsAreSeconds looks at everything that a command or the admin address writes as
// JSON: a length of time is a number of seconds there, and its key says so.
func TestDurationsAreSeconds(t *testing.T) {
	for _, report := range []any{
		explain.Explanation{}, sizing{}, sampleReport{}, lockreport.List{}, lockReports{}, auditReport{}, releaseReport{}, snapshotFile{},
		admin.AddedReport{}, admin.ContainsReport{}, admin.FilterReport{}, admin.LoadReport{}, admin.SnapshotReport{},
	} {
		at := reflect.TypeOf(report)
		durationsIn(t, at, at.Name(), make(map[reflect.Type]bool))
	}
}

func durationsIn(t *testing.T, at reflect.Type, name string, seen map[reflect.Type]bool) {
	switch {
	case at == reflect.TypeFor[time.Duration]():
		t.Errorf("%s is in nanoseconds: make it admin.Seconds", name)
	case at == reflect.TypeFor[admin.Seconds]() && !strings.HasSuffix(name, "_seconds"):
		t.Errorf("the key of %s does not end in _seconds", name)
	case strings.HasSuffix(name, "_ms"):
		t.Errorf("%s is in milliseconds: make it admin.Seconds", name)
	case at.Kind() == reflect.Pointer || at.Kind() == reflect.Slice || at.Kind() == reflect.Map:
		durationsIn(t, at.Elem(), name, seen)
	case at.Kind() == reflect.Struct && !seen[at]:
		seen[at] = true
		for i := range at.NumField() {
			if key := at.Field(i).Tag.Get("json"); key != "" && key != "-" {
				durationsIn(t, at.Field(i).Type, name+"."+key, seen)
			}
		}
	}
}
