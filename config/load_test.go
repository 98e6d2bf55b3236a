package config

import (
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// env is a process environment.
type env map[string]string

func (e env) get(name string) string { return e[name] }

func mustParse(t *testing.T, text string, e env) *Config {
	t.Helper()
	c, err := Parse("ordergate.yaml", []byte(text), e.get)
	if err != nil {
		t.Fatalf("parsing: %v", err)
	}
	schemaAgrees(t, text, nil)
	shownAgain(t, text, e)
	return c
}

// violations returns the lines of what is wrong with a file; none is a failure.
func violations(t *testing.T, text string, e env) []string {
	t.Helper()
	c, err := Parse("f.yaml", []byte(text), e.get)
	var wrong *InvalidError
	if !errors.As(err, &wrong) {
		t.Fatalf("got error %v, want an InvalidError", err)
	}
	if c != nil {
		t.Error("a refused file has a value")
	}
	lines := strings.Split(err.Error(), "\n")
	schemaAgrees(t, text, lines)
	return lines
}

func TestGoodFileIsReadAsItStands(t *testing.T) {
	c, err := Load("testdata/good.yaml", env{"REDIS_PASSWORD": "secret", "FILTER_SECRET": "of at least 16 bytes", "ADMIN_TOKEN": "also 16 or more bytes",
		"ORDERS_DSN": "gate:pw@tcp(db:3306)/shop", "PARTS_DSN": "postgres://gate:pw@db/shop"}.get)
	if err != nil {
		t.Fatal(err)
	}
	digits := ID{Path: "id", Format: "digits", MinLength: 2, MaxLength: 20}
	number := ID{Format: "digits", MinLength: 1, MaxLength: 19}
	with := func(id ID, change func(*ID)) ID { change(&id); return id }
	plain := Reply{Status: 404}
	invalid := Reply{Status: 400}
	window, no, yes := Freshness{Mode: "window", Window: 500 * time.Millisecond}, false, true
	usualLog := ChangeLog{Lease: 2 * time.Second, Expel: 5 * time.Minute}
	want := &Config{
		Backend: "spring",
		Log:     Log{Metadata: true},
		Listen: Listen{Authz: "unix:/run/ordergate/authz.sock", Proc: "[::1]:9292", HTTP: "unix:/run/ordergate/http.sock", Admin: "0.0.0.0:9294", TokenEnv: "ADMIN_TOKEN", Token: "also 16 or more bytes",
			AdminHosts: []string{"ordergate.internal", "gate"}, Insecure: true, SocketMode: "0600"},
		Redis: &Redis{
			Mode: "single", Addresses: []string{"redis.internal:6380"}, Username: "ordergate",
			PasswordEnv: "REDIS_PASSWORD", Password: "secret", Member: "shop-3",
		},
		Filters: map[string]Filter{
			"orders": {
				Kind: "local", Capacity: 200_000_000, FalsePositiveRate: 1e-6,
				Sources: []string{"seed", "archive-2025"}, Freshness: window, StaleAfter: 5 * time.Second, Verify: "1/10000",
				ChangeLog: usualLog, ShareLoad: &no,
				Layout: "classic", Expand: &Expand{AtFill: 0.7, By: 2, How: "layers", Max: 500_000_000},
			},
			"returns": {
				Kind: "exact", Capacity: 1_000_000, FalsePositiveRate: 0.001, Freshness: Freshness{Mode: "none"}, StaleAfter: 5 * time.Second, Verify: "off",
				ChangeLog: usualLog, ShareLoad: &no,
				Segments: &Segments{By: "day", Keep: 90, From: "arrival", Older: "absent"},
			},
			"plain": {Kind: "local", Capacity: 1_000_000, FalsePositiveRate: 0.001, Freshness: window, ChangeLog: usualLog, ShareLoad: &no, StaleAfter: 5 * time.Second, Verify: "1/10000", Layout: "blocked"},
			"live": {
				Kind: "local", Capacity: 1_000_000, FalsePositiveRate: 0.001, Sources: []string{"orders-db", "parts-db"}, StaleAfter: 5 * time.Second, Verify: "1/10000",
				Freshness: Freshness{Mode: "window", Window: 200 * time.Millisecond},
				ChangeLog: ChangeLog{Keep: 50_000, Lease: time.Second, Expel: 10 * time.Minute}, ShareLoad: &no,
				Reconcile: &Reconcile{Every: 12 * time.Hour, Sample: 0, Rate: 500}, Layout: "blocked",
			},
			"polled": {
				Kind: "local", Capacity: 1_000_000, FalsePositiveRate: 0.001, Sources: []string{"returns-db"}, StaleAfter: 5 * time.Second, Verify: "1/10000", Layout: "blocked",
				Freshness: window, ChangeLog: ChangeLog{Keep: 100_000, Lease: 2 * time.Second, Expel: 5 * time.Minute}, ShareLoad: &yes,
			},
			"shared": {
				Kind: "redis-bitmap", Capacity: 30_000_000_000, FalsePositiveRate: 0.001, Freshness: window, ChangeLog: usualLog, ShareLoad: &no, StaleAfter: 5 * time.Second, Verify: "1/10000",
				AlertFalsePositiveRate: 0.005, KeyPrefix: "ids:all", Shards: 300, SecretEnv: "FILTER_SECRET", Secret: "of at least 16 bytes",
			},
			"java": {
				Kind: "layered", Capacity: 1_000_000, FalsePositiveRate: 0.001, Freshness: window, ChangeLog: usualLog, ShareLoad: &no, StaleAfter: time.Minute, Verify: "1/10000",
				Layout: "blocked", Snapshot: &Snapshot{Path: "/var/lib/ordergate/java.snap", Every: time.Minute},
				RedisKind: "redisson", KeyPrefix: "order-ids", Shards: 1, Codec: "string", Elements: "string",
			},
		},
		Sources: map[string]Source{
			"seed":         {Kind: "csv", Path: "ids.csv"},
			"archive-2025": {Kind: "csv", Path: "/var/lib/ordergate/archive.csv"},
			"orders-db": {
				Kind: "mysql", DSNEnv: "ORDERS_DSN", DSN: "gate:pw@tcp(db:3306)/shop", Table: "shop.orders", IDColumn: "order_id", CursorColumn: "id",
				Batch: 1000, Pause: 10 * time.Millisecond, MaxRate: 50_000, OnBad: "skip", Overlap: 5 * time.Minute,
				Follow: "binlog", ServerID: 4_294_967_295,
			},
			"parts-db": {
				Kind: "postgres", DSNEnv: "PARTS_DSN", DSN: "postgres://gate:pw@db/shop", Table: "parts", IDColumn: "Order ID", CursorColumn: "Order ID",
				Batch: 10_000, OnBad: "fail", Overlap: time.Minute, Follow: "logical", Slot: "ordergate_parts_db", Publication: "parts",
			},
			"returns-db": {
				Kind: "postgres", DSNEnv: "PARTS_DSN", DSN: "postgres://gate:pw@db/shop", Table: "returns", IDColumn: "id", CursorColumn: "id",
				Batch: 10_000, OnBad: "fail", Overlap: time.Minute, Follow: "poll", Every: 250 * time.Millisecond, Grace: 3 * time.Second,
			},
		},
		Locks: map[string]Lock{
			"settlement": {
				Kind: "exclusive", Format: "redisson", Key: "order:lock:{id}", Lease: 45 * time.Second,
				Wait:             Wait{Tries: 5, Every: 50 * time.Millisecond},
				OnUnknownOutcome: UnknownPolicy{Hold: 2 * time.Minute},
				KeepFence:        24 * time.Hour,
			},
			"refund": {
				Kind: "exclusive", Format: "redisson", Key: "{refund}:lock:{id}", Lease: 30 * time.Second,
				KeepFence: 24 * time.Hour, Wait: Wait{UpTo: 2 * time.Second}, MaxWaitersPerKey: 100,
				OnUnknownOutcome: UnknownPolicy{Hold: 30 * time.Second},
			},
		},
		Rules: []Rule{
			{
				Name:    "order-search",
				Match:   Match{Methods: []string{"GET"}, Path: "/orders/search", Case: "sensitive", OtherMethods: "pass"},
				Backend: "spring",
				Pass:    true,
				Mode:    Mode{Word: "enforce"},
			},
			{
				Name: "order-lookup",
				Match: Match{
					Methods: []string{"GET", "HEAD"}, Path: "/orders/{id}", Case: "insensitive", Host: "shop.example", OtherMethods: "refuse",
				},
				Backend:          "php",
				FrontControllers: []string{"/shop.php", "/"},
				IDs:              []ID{digits},
				Invalid:          plain,
				Lookup: &Lookup{
					Filter: "orders",
					Absent: Reply{Status: 410, Body: `{"error":"gone"}`, RetryAfter: 90 * time.Second},
				},
				Mode: Mode{Word: "observe"},
			},
			{
				Name:    "order-create",
				Match:   Match{Methods: []string{"POST"}, Path: "/orders", Case: "sensitive", OtherMethods: "pass"},
				Backend: "spring",
				IDs: []ID{
					with(number, func(id *ID) { id.Query, id.Optional = "order_id", true }),
					with(number, func(id *ID) {
						id.JSON, id.JSONType, id.MaxBody, id.Optional = "data.orderId", "string", 65536, true
					}),
				},
				Invalid: invalid,
				Create:  &Create{Filter: "orders", Learn: Learn{ResponseJSON: "data.orderId"}},
				Mode:    Mode{Word: "enforce"},

				JSONWithoutType: "accept",
			},
			{
				Name:    "return-create",
				Match:   Match{Methods: []string{"PUT"}, Path: "/returns", Query: map[string]QueryValues{"Action": {"open_return"}}, Case: "sensitive", OtherMethods: "pass"},
				Backend: "spring",
				IDs:     []ID{{Format: "pattern", Pattern: "R-[0-9]{1,12}", Case: "as_is", MinLength: 1, MaxLength: 14}},
				Invalid: invalid,
				Create:  &Create{Filter: "returns", Learn: Learn{ResponseHeader: "x-return-id", Pattern: "(R-[0-9]+)$"}},
				Mode:    Mode{Word: "enforce"},
			},
			{
				Name:    "batch-lookup",
				Match:   Match{Methods: []string{"POST"}, Path: "/orders/batch", Case: "sensitive", OtherMethods: "pass"},
				Backend: "spring",
				IDs: []ID{
					with(number, func(id *ID) {
						id.JSON, id.JSONType, id.List, id.MaxList, id.MaxBody = "orderIds", "any", true, 1000, 1<<20
					}),
					with(number, func(id *ID) {
						id.Form, id.MaxBody, id.Format, id.Time = "order_id", 4096, "timestamped", IDTime{Layout: "060102", At: 2}
					}),
					with(number, func(id *ID) {
						id.Cookie, id.Format, id.Time = "last-order", "snowflake", IDTime{Epoch: "2010-11-04T01:42:54.657Z", Shift: 20}
					}),
				},
				Invalid: invalid,
				Lookup:  &Lookup{Filter: "orders", Absent: Reply{Status: 404, Body: `{"error":"order not found"}`}},
				Mode:    Mode{Word: "enforce"},

				JSONWithoutType: "accept",
			},
			{
				Name: "commission-settle",
				Match: Match{
					Methods: []string{"POST"}, Path: "/v1.0/~shop/orders/{id}/parts/{part}/settle", Case: "sensitive", OtherMethods: "pass",
				},
				Backend: "spring",
				IDs:     []ID{{Header: "x-order-id", Format: "uuid", Case: "lower"}},
				Invalid: plain,
				Lookup:  &Lookup{Filter: "plain", Absent: Reply{Status: 404, Body: `{"error":"order not found"}`}},
				Settle: &Settle{
					Lock: "settlement",
					Busy: Reply{Status: 423, Body: "busy", RetryAfter: 2 * time.Second},
					Unavailable: Reply{
						Status: 503, Body: `{"error":"settlement is not available, try again"}`,
					},
					MaxHold:     time.Hour,
					MaxInFlight: 64, MaxInFlightPerClient: 8, BackendWorkers: 32, BackendTimeout: 10 * time.Second,
				},
				Mode: Mode{Word: "enforce"},
			},
		},
	}
	if diff := cmp.Diff(want, c, cmp.AllowUnexported(Rule{})); diff != "" {
		t.Errorf("unexpected value (-want +got):\n%s", diff)
	}
}

func TestAcceptedFilesValidateAgain(t *testing.T) {
	for _, file := range []string{"testdata/good.yaml", "testdata/design.yaml"} {
		c, err := Load(file, env{"REDIS_PASSWORD": "secret", "FILTER_SECRET": "of at least 16 bytes", "ADMIN_TOKEN": "also 16 or more bytes",
			"ORDERS_DSN": "gate:pw@tcp(db:3306)/shop", "PARTS_DSN": "postgres://gate:pw@db/shop"}.get)
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Validate(); err != nil {
			t.Errorf("%s: %v", file, err)
		}
	}
}

// TestGoldenViolations compares everything that is said of a bad file.
func TestGoldenViolations(t *testing.T) {
	for _, name := range []string{"wrong", "duplicate", "syntax", "documents", "empty"} {
		t.Run(name, func(t *testing.T) {
			data, err := os.ReadFile(filepath.Join("testdata", name+".yaml"))
			if err != nil {
				t.Fatal(err)
			}
			_, err = Parse(name+".yaml", data, env{}.get)
			if err == nil {
				t.Fatal("accepted")
			}
			golden := filepath.Join("testdata", name+".golden")
			if *update {
				if err := os.WriteFile(golden, []byte(err.Error()+"\n"), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, readErr := os.ReadFile(golden)
			if readErr != nil {
				t.Fatal(readErr)
			}
			if diff := cmp.Diff(string(want), err.Error()+"\n"); diff != "" {
				t.Errorf("unexpected violations (-want +got):\n%s", diff)
			}
			if strings.Contains(err.Error(), "hunter2") {
				t.Error("a violation repeats a password")
			}
		})
	}
}

func TestUnreadableFileIsOneLine(t *testing.T) {
	big := filepath.Join(t.TempDir(), "big.yaml")
	if err := os.WriteFile(big, make([]byte, maxFileSize+1), 0o600); err != nil {
		t.Fatal(err)
	}
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name, path, want string
		is               error
	}{
		{"a pipe without a writer", pipe, pipe + ":1: the file is empty", nil},
		{"missing", "testdata/none.yaml", "reading configuration testdata/none.yaml: no such file or directory", os.ErrNotExist},
		{"a directory", "testdata", "reading configuration testdata: is a directory", nil},
		{"too large", big, "reading configuration " + big + ": the file is larger than 4194304 bytes", nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := Load(tt.path, env{}.get)
			if err == nil || err.Error() != tt.want {
				t.Errorf("got %v, want %s", err, tt.want)
			}
			if tt.is != nil && !errors.Is(err, tt.is) {
				t.Errorf("%v is not %v", err, tt.is)
			}
		})
	}
}

// loadWith is LoadEffective without the origins.
func loadWith(path string, o Options) (*Config, Warnings, error) {
	e, err := LoadEffective(path, o)
	if err != nil {
		return nil, Warnings{}, err
	}
	return e.Config, e.Warnings, nil
}
