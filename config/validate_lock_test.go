package config

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

const servers = `quorum: {addresses: ["a:1", "b:1", "c:1"]}`

// TestLocks has a case for each rule on what goes with which kind of lock.
func TestLocks(t *testing.T) {
	for _, tt := range []struct {
		name, locks string
		want        []string
	}{
		{"fair", `{s: {kind: fair}}`, nil},
		{"read and write of one key", `{r: {kind: read}, w: {kind: write}}`, nil},
		{"semaphore", `{s: {kind: semaphore, permits: 1_000_000}}`, nil},
		{"quorum", `{s: {kind: quorum, ` + servers + `}}`, nil},
		{"quorum of strings", `{s: {kind: quorum, format: string, ` + servers + `}}`, nil},
		{"string", `{s: {format: string}}`, nil},
		{"replicas", `{s: {kind: fair, replicas: {confirm: 2, timeout: 500ms}}}`, nil},
		{"unknown kind", `{s: {kind: shared, permits: 5}}`, []string{`locks.s.kind: "shared" is not one of exclusive, fair, read, write, quorum, semaphore`}},
		{"unknown format", `{s: {format: text}}`, []string{`locks.s.format: "text" is not one of redisson, string`}},
		{"kind of a wrong type", `{s: {kind: 1, permits: 5, quorum: {}}}`, []string{
			`locks.s.kind: is a number: it has to be text, in quotes`, `locks.s.quorum: addresses is missing: give an odd number of at least 3`,
		}},
		{"a fair string", `{s: {kind: fair, format: string}}`, []string{`locks.s.format: string is for kinds exclusive and quorum only: choose redisson`}},

		{"a fair lock that is asked for often", `{s: {kind: fair, wait: {tries: 3, every: 4s}}}`, nil},
		{"a fair lock that is asked for seldom", `{s: {kind: fair, wait: {tries: 3, every: 5s}}}`, []string{`locks.s.wait.every: 5s is too long for kind fair, which skips waiters that do not try again in time: at most 4s`}},

		{"permits of no semaphore", `{s: {permits: 5}}`, []string{`locks.s.permits: is for kind semaphore only: set it, or remove this`}},
		{"no permits", `{s: {kind: semaphore}}`, []string{`locks.s: permits is missing: give the number of calls that may hold the lock at once`}},
		{"permits of zero", `{s: {kind: semaphore, permits: 0}}`, []string{`locks.s.permits: 0 is out of range: 1 to 1000000 are allowed`}},
		{"too many permits", `{s: {kind: semaphore, permits: 1_000_001}}`, []string{`locks.s.permits: 1000001 is out of range: 1 to 1000000 are allowed`}},
		{"permits of a wrong type", `{s: {kind: semaphore, permits: few}}`, []string{`locks.s.permits: "few" is not a whole number such as 1_000_000`}},

		{"quorum of another kind", `{s: {` + servers + `}}`, []string{`locks.s.quorum: is for kind quorum only: set it, or remove this`}},
		{"no quorum", `{s: {kind: quorum}}`, []string{`locks.s: quorum is missing: give it addresses, an odd number of at least 3`}},
		{"empty quorum", `{s: {kind: quorum, quorum: {}}}`, []string{`locks.s.quorum: addresses is missing: give an odd number of at least 3`}},
		{"quorum of none", `{s: {kind: quorum, quorum: {addresses: []}}}`, []string{`locks.s.quorum.addresses: is empty: give an odd number of at least 3`}},
		{"quorum of one", `{s: {kind: quorum, quorum: {addresses: ["a:1"]}}}`, []string{`locks.s.quorum.addresses: has 1 addresses: an odd number of at least 3 is needed, so that there is a majority`}},
		{"even quorum", `{s: {kind: quorum, quorum: {addresses: ["a:1", "b:1", "c:1", "d:1"]}}}`, []string{`locks.s.quorum.addresses: has 4 addresses: an odd number of at least 3 is needed, so that there is a majority`}},
		{"one server twice", `{s: {kind: quorum, quorum: {addresses: ["a:1", "b:1", "A:1"]}}}`, []string{`locks.s.quorum.addresses[2]: "A:1" is the server of "a:1": each vote takes a server of its own`}},
		{"one server under two names", `{s: {kind: quorum, quorum: {addresses: ["localhost:1", "127.0.0.1:1", "a:1"]}}}`, []string{`locks.s.quorum.addresses[1]: "127.0.0.1:1" is the server of "localhost:1": each vote takes a server of its own`}},
		{"no address", `{s: {kind: quorum, quorum: {addresses: ["a:1", "b", "c:0"]}}}`, []string{
			`locks.s.quorum.addresses[1]: "b" is not host:port or unix:/path`,
			`locks.s.quorum.addresses[2]: "c:0" has no valid port: 1 to 65535 are allowed`,
		}},
		{"quorum with a password", `{s: {kind: quorum, quorum: {password: x}}}`, []string{`locks.s.quorum.password: unknown key: known here are addresses`}},

		{"replicas by default", `{s: {replicas: {}}}`, nil},
		{"replicas of a quorum", `{s: {kind: quorum, replicas: {}, ` + servers + `}}`, []string{`locks.s.replicas: is for kinds exclusive, fair, read, write and semaphore only: set one of them, or remove this`}},
		{"no replicas", `{s: {replicas: {confirm: 0}}}`, []string{`locks.s.replicas.confirm: 0 is out of range: 1 to 100 are allowed`}},
		{"slow replicas", `{s: {replicas: {timeout: 501ms}}}`, []string{`locks.s.replicas.timeout: 501ms is out of range: 1ms to 500ms are allowed`}},
		{"replicas that have no time", `{s: {replicas: {timeout: 0s}}}`, []string{`locks.s.replicas.timeout: 0s is out of range: 1ms to 500ms are allowed`}},
	} {
		t.Run(tt.name, func(t *testing.T) { expect(t, with("locks", tt.locks), tt.want) })
	}
	t.Run("replicas of an embedded Redis", func(t *testing.T) {
		expect(t, "redis: {mode: embedded}\nlocks: {s: {replicas: {}}}", []string{`locks.s.replicas: is not for mode embedded, which has no replicas: remove it`})
	})
}

func TestLockDefaults(t *testing.T) {
	c := mustParse(t, with("locks", `{s: {kind: semaphore, permits: 2, replicas: {}}}`), nil)
	l := c.Locks["s"]
	if diff := cmp.Diff(&Replicas{Confirm: 1, Timeout: 100 * time.Millisecond}, l.Replicas); diff != "" || l.Format != FormatRedisson || l.Lease != 30*time.Second {
		t.Errorf("got %+v, replicas (-want +got):\n%s", l, diff)
	}
	c = mustParse(t, with("locks", `{s: {kind: quorum, `+servers+`}}`), env{
		"ORDERGATE_LOCKS_S_QUORUM_ADDRESSES": "d:1, e:1, f:1", "ORDERGATE_LOCKS_S_FORMAT": "string",
	})
	if l := c.Locks["s"]; !cmp.Equal(l.Quorum.Addresses, []string{"d:1", "e:1", "f:1"}) || l.Format != FormatString {
		t.Errorf("with variables: %+v", l)
	}
}

// TestQuorumNeedsNoOtherRedis has a file whose locks have servers of their own.
func TestQuorumNeedsNoOtherRedis(t *testing.T) {
	quorum := "locks: {s: {kind: quorum, " + servers + "}}\n"
	if c := mustParse(t, quorum, nil); c.Redis != nil {
		t.Errorf("got %v, want no Redis", c.Redis)
	}
	if c := mustParse(t, quorum+"filters: {o: {freshness: window}}", nil); c.Redis == nil {
		t.Error("no Redis for the change log")
	}
}

// TestLockKeys has pairs of locks, of which no key of one begins with the text of the other's.
func TestLockKeys(t *testing.T) {
	const (
		same  = `locks.b.key: "k:{id}" is also the key of locks.a: give each lock a key of its own`
		alike = `locks.%s.key: %s begins like %s of locks.%s, so their keys could be the same: begin each lock's key with a text that no other one begins with, such as "%[4]s:" and "%[1]s:"`
	)
	for _, tt := range []struct{ name, first, kind, second, otherKind, want string }{
		{"different beginnings", "k:{id}", "", "l:{id}", "kind: fair", ""},
		{"of one kind", "k:x:{id}", "", "k:y:{id}", "", ""},
		{"read and write", "k:{id}", "kind: read", "k:{id}", "kind: write", ""},
		{"one key", "k:{id}", "", "k:{id}", "", same},
		{"two for readers", "k:{id}", "kind: read", "k:{id}", "kind: read", same},
		{"another kind", "k:{id}", "", "k:{id}", "kind: fair", same},
		{"another format", "k:{id}", "", "k:{id}", "format: string", same},
		{"a quorum", "k:{id}", "", "k:{id}", "kind: quorum, " + servers, same},
		{"longer", "k:{id}", "", "k:x:{id}", "kind: fair", fmt.Sprintf(alike, "b", `"k:x:{id}"`, `"k:{id}"`, "a")},
		{"longer, the first", "k:x:{id}", "", "k:{id}", "", fmt.Sprintf(alike, "b", `"k:{id}"`, `"k:x:{id}"`, "a")},
		{"longer, for readers", "k:{id}", "kind: write", "k:1{id}", "kind: read", fmt.Sprintf(alike, "b", `"k:1{id}"`, `"k:{id}"`, "a")},
		{"longer at the end", "k:{id}:observe", "", "k:{id}", "", fmt.Sprintf(alike, "b", `"k:{id}"`, `"k:{id}:observe"`, "a")},
		{"no beginning", "{id}:k", "", "l:{id}", "", fmt.Sprintf(alike, "b", `"l:{id}"`, `"{id}:k"`, "a")},
		{"none without the ID", "k:", "", "k:1{id}", "", `locks.a.key: "k:" has {id} in it 0 times: it has to be there once, as in order:lock:{id}`},
		{"one of a kind that is none", "k:{id}", "kind: red", "k:{id}", "", `locks.a.kind: "red" is not one of exclusive, fair, read, write, quorum, semaphore`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var want []string
			if tt.want != "" {
				want = []string{tt.want}
			}
			expect(t, with("locks", `{a: {key: "`+tt.first+`", `+tt.kind+`}, b: {key: "`+tt.second+`", `+tt.otherKind+`}}`), want)
		})
	}
	t.Run("several", func(t *testing.T) {
		expect(t, with("locks", `{a: {key: "k:{id}"}, b: {key: "k:{id}", kind: write}, c: {key: "k:{id}", kind: read}, d: {key: "k:1:{id}"}}`), []string{
			same, `locks.c.key: "k:{id}" is also the key of locks.a: give each lock a key of its own`, fmt.Sprintf(alike, "d", `"k:1:{id}"`, `"k:{id}"`, "a"),
		})
	})
}

// TestHashTags has keys for a cluster: all that belongs to one lock has to lie in
// one slot.
func TestHashTags(t *testing.T) {
	for key, ok := range map[string]bool{
		"k:{id}": true, "k:{{id}}": true, "k:{{id}}:{x}": true, "{k}:{id}": true, "k:{a{id}}": true,
		"k{:{id}": false, "{}k:{id}": false, "k:{id}}": false, "}k:{id}": false, "k:{{id}": false, "k}{a}:{id}": true,
	} {
		for mode, refused := range map[string]bool{"cluster": !ok, "sentinel": false} {
			var want []string
			if refused {
				want = []string{`locks.s.key: "` + key + `" has braces in it that are no hash tag, so the keys of one lock would lie in several slots: ` +
					`write them around a part, as in order:lock:{{id}}, or leave them out`}
			}
			expect(t, "redis: {mode: "+mode+", addresses: ['a:1']}\nlocks: {s: {key: '"+key+"'}}", want)
		}
	}
	expect(t, "redis: {mode: cluster, addresses: ['a:1']}\nlocks: {s: {key: 'k{:{id}', kind: quorum, "+servers+"}}", nil)
}

// TestOwnKeys has keys whose braces do not hold the ID, and IDs that can be the rest of a
// key that belongs to another order's lock.
func TestOwnKeys(t *testing.T) {
	const pattern = "format: pattern, pattern: '.+'"
	for _, tt := range []struct {
		key, format string
		ok          bool
	}{
		{"{k}:{id}", pattern, false},
		{"{k}:{id}:x", pattern, false},
		{"{k}:{id}", `format: pattern, pattern: "[A-Z]{2}[0-9]+"`, true},
		{"{k}:{id}_holders", pattern, false},
		{"{k}:{id}", "format: digits", true},
		{"{k}:{id}", "format: uuid", true},
		{"k:{{id}}", pattern, true},
		{"k:{id}", pattern, true},
		{"{id}", pattern, true},
		{"{id}{k}", pattern, false},
	} {
		var want []string
		if !tt.ok {
			want = []string{`locks.s.key: "` + tt.key + `" has {id} outside of its braces, and a colon in it could make the key of an order that belongs to the lock of another one (such as ...:rwlock_timeout:1): ` +
				`write the braces around {id}, as in order:lock:{{id}}, leave them out, or give it a format without a colon`}
		}
		expect(t, `locks: {s: {key: "`+tt.key+`"}}
rules:
  - {name: a, match: {methods: [POST], path: "/a/{id}"}, id: {path: id, `+tt.format+`}, settle: {lock: s}}
`, want)
	}
}
