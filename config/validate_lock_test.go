package config

import (
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
		{"kind of a wrong type", `{s: {kind: 1, permits: 5, quorum: {}}}`, []string{`locks.s.kind: is a number: it has to be text, in quotes`}},
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
		{"quorum of none", `{s: {kind: quorum, quorum: {addresses: []}}}`, []string{`locks.s.quorum.addresses: has 0 addresses: an odd number of at least 3 is needed, so that there is a majority`}},
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
		{"replicas of a quorum", `{s: {kind: quorum, replicas: {}, ` + servers + `}}`, []string{`locks.s.replicas: is not for kind quorum, which relies on a majority of its servers: remove it`}},
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

// TestLockKeys has pairs of locks whose keys can be the same, or cannot.
func TestLockKeys(t *testing.T) {
	const (
		digits  = `format: digits`
		uuid    = `format: uuid`
		pattern = `format: pattern, pattern: ".+"`
		fair    = "kind: fair"
		sema    = "kind: semaphore, permits: 2"
	)
	for _, tt := range []struct {
		name             string
		first, second    string // keys
		kind             string // of the second; the first is exclusive
		formatA, formatB string // of the IDs in them
		observe          bool
		clash            bool
	}{
		{"one key, another kind", "k:{id}", "k:{id}", fair, digits, digits, false, true},
		{"one key, another format", "k:{id}", "k:{id}", "format: string", digits, digits, false, true},
		{"one key, a quorum", "k:{id}", "k:{id}", "kind: quorum, " + servers, digits, digits, false, true},
		{"one key, a semaphore", "k:{id}", "k:{id}", sema, digits, uuid, false, true},
		{"different beginnings", "k:{id}", "l:{id}", fair, pattern, pattern, false, false},
		{"different ends", "{id}:k", "{id}:l", fair, pattern, pattern, false, false},
		{"longer beginning of letters", "k:{id}", "k:x:{id}", fair, digits, digits, false, false},
		{"longer beginning of letters, patterns", "k:{id}", "k:x:{id}", fair, pattern, digits, false, true},
		{"longer beginning of letters, a pattern in the longer one", "k:{id}", "k:x:{id}", fair, digits, pattern, false, false},
		{"longer beginning of digits", "k:{id}", "k:1{id}", fair, digits, digits, false, true},
		{"longer beginning of hex", "k:{id}", "k:a{id}", fair, uuid, digits, false, true},
		{"longer beginning of hex, digits", "k:{id}", "k:a{id}", fair, digits, digits, false, false},
		{"longer end", "k:{id}:x", "k:{id}", fair, digits, pattern, false, true},
		{"longer end, digits", "k:{id}:x", "k:{id}", fair, digits, digits, false, false},
		{"longer on either side", "k:1{id}", "k:{id}2", fair, digits, digits, false, true},
		{"what no pattern admits", "k:{id}", "k:a,b{id}", fair, pattern, pattern, false, false},
		{"the key of what is observed", "k:{id}", "k:{id}:observe", fair, digits, digits, true, true},
		{"the key of what is not observed", "k:{id}", "k:{id}:observe", fair, digits, digits, false, false},
		{"the same kind, longer", "k:{id}", "k:1{id}", "kind: exclusive", digits, digits, false, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			mode := "enforce"
			if tt.observe {
				mode = "observe"
			}
			file := `locks: {a: {key: "` + tt.first + `"}, b: {key: "` + tt.second + `", ` + tt.kind + `}}
rules:
  - {name: a, match: {methods: [POST], path: "/a/{id}"}, id: {path: id, ` + tt.formatA + `}, settle: {lock: a}, mode: ` + mode + `}
  - {name: b, match: {methods: [POST], path: "/b/{id}"}, id: {path: id, ` + tt.formatB + `}, settle: {lock: b}}
`
			var want []string
			if tt.clash {
				want = []string{`locks.b.key: "` + tt.second + `" can make the same key as "` + tt.first +
					`" of locks.a, which is of another kind or format: give each lock a key of its own`}
			}
			expect(t, file, want)
		})
	}
	t.Run("the ID of a limit", func(t *testing.T) {
		file := `locks: {a: {key: "k:{id}"}, b: {key: "k:x{id}", ` + fair + `}, m: {key: "m:{id}", ` + sema + `}}
rules:
  - {name: a, match: {methods: [POST], path: "/a/{id}"}, id: {path: id}, settle: {lock: a, limit: {lock: m, id: {query: m, ` + pattern + `}}}}
`
		expect(t, file, nil)
		file = `locks: {a: {key: "k:{id}"}, b: {key: "m:x{id}", ` + fair + `}, m: {key: "m:{id}", ` + sema + `}}
rules:
  - {name: a, match: {methods: [POST], path: "/a/{id}"}, id: {path: id}, settle: {lock: a, limit: {lock: m, id: {query: m, ` + pattern + `}}}}
`
		expect(t, file, []string{`locks.m.key: "m:{id}" can make the same key as "m:x{id}" of locks.b, which is of another kind or format: give each lock a key of its own`})
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
		{"{k}:{id}:x", pattern, true},
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
			name := ":ordergate_holders"
			switch tt.key {
			case "{k}:{id}":
				name = ":rwlock_timeout:1"
			case "{id}{k}":
				name = "redisson_lock_token:"
			}
			want = []string{`locks.s.key: "` + tt.key + `" can make the key of an order that belongs to the lock of another one (such as ...` + name +
				`): write the braces around {id}, as in order:lock:{{id}}, or leave them out`}
		}
		expect(t, `locks: {s: {key: "`+tt.key+`"}}
rules:
  - {name: a, match: {methods: [POST], path: "/a/{id}"}, id: {path: id, `+tt.format+`}, settle: {lock: s}}
`, want)
	}
}
