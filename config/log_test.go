package config

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ordergate/ordergate/internal/gate"
)

func TestDecisionLog(t *testing.T) {
	t.Parallel()
	const at = "log.decisions."
	for _, tt := range []struct {
		name, log string
		want      []string
	}{
		{"nothing said", "{}", nil},
		{"all said", "{to: /a.log, rules: [look], verdicts: [absent, busy], sample: 0.01, ids: hashed, secret_env: SECRET}", nil},
		{"nothing of lookups", "{to: stderr, sample: 0, ids: none}", nil},
		{"wrong in each", "{to: a.log, rules: [l], verdicts: [found], sample: 2, ids: all}", []string{
			at + "sample: 2 is out of range: 0 to 1 are allowed",
			at + `ids: "all" is not one of plain, hashed, none`,
			at + `to: "a.log" is not stdout, stderr or an absolute path`,
			at + `rules[0]: there is no rule "l"`,
			at + `verdicts[0]: "found" is not one of ` + strings.Join(Verdicts, ", "),
		}},
		{"hashed without a key", "{ids: hashed}", []string{"log.decisions: ids: hashed needs a key: give secret_file or secret_env"}},
		{"a key for nothing", "{secret_env: SECRET}", []string{at + "secret_env: is for ids hashed only: set it, or remove this"}},
		{"a short key", "{ids: hashed, secret_env: SHORT}", []string{at + "secret_env: the secret there is too short: give at least 16 bytes"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			file := "log: {decisions: " + tt.log + "}\nfilters: {orders: {}}\n" +
				`rules: [{name: look, match: {methods: [GET], path: "/orders/{id}"}, id: {path: id}, lookup: {filter: orders}}]` + "\n"
			var got []string
			c, err := Parse("f.yaml", []byte(file), env{"SECRET": strings.Repeat("s", 16), "SHORT": "too short"}.get)
			if err != nil {
				for line := range strings.SplitSeq(err.Error(), "\n") {
					_, text, _ := strings.Cut(line, ": ")
					got = append(got, text)
				}
			} else if l := c.Log.Decisions; l.IDs == IDsHashed && l.Secret == "" || l.To == "" {
				t.Errorf("got %+v", l)
			}
			slices.Sort(got)
			slices.Sort(tt.want)
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("unexpected violations (-want +got):\n%s", diff)
			}
		})
	}
}

// TestVerdicts compares the verdicts with those of the gate.
func TestVerdicts(t *testing.T) {
	var want []string
	for v := range gate.Verdict(gate.Verdicts) {
		want = append(want, v.String())
	}
	if diff := cmp.Diff(want, Verdicts); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
