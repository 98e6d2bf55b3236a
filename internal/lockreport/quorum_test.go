package lockreport

import (
	"strings"
	"testing"

	"github.com/ordergate/ordergate/lockmw/redislock"
)

func TestQuorumState(t *testing.T) {
	address := "127.0.0.1:1"
	for said, want := range map[string]string{
		"a a a":     "held by a on 3 of 3 servers",
		"b a a":     "held by a on 2 of 3 servers",
		"a a ?":     "held by a on 2 of 3 servers",
		"a b ?":     "not known: 1 of 3 servers do not answer",
		"- ? ?":     "not known: 2 of 3 servers do not answer",
		"a b c":     "free: no holder has more than 1 of 3 servers",
		"a a - b b": "free: no holder has more than 2 of 5 servers",
		"- - ?":     "free",
		"- - -":     "free",
	} {
		var reports []Lock
		for _, owner := range strings.Fields(said) {
			r := Lock{State: StateHeld, Servers: []string{address}}
			switch owner {
			case "?":
				r.State = StateUnreachable
			case "-":
				r.State = StateFree
			default:
				r.Holders = []Holder{{Owner: owner}}
				r.state.Holders = []redislock.Holder{{Owner: owner}}
			}
			reports = append(reports, r)
		}
		if got := quorumState(reports); got != want {
			t.Errorf("%s: got %q, want %q", said, got, want)
		}
	}
}
