package tests

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

const fromSnapshot = `msg="filter is ready, from its snapshot"`

// TestSnapshotSparesTheSources shows that the source is not read after a restart, and
// that it is once it has changed.
func TestSnapshotSparesTheSources(t *testing.T) {
	t.Parallel()
	k := newKeeper(t, 1000)
	k.start("")
	k.want("maybe", "1", "1000")
	k.want("absent", "1001", "9999")
	must(t, k.gate.Stop())

	// The same size and time, but other orders.
	text, err := os.ReadFile(k.ids)
	must(t, err)
	info, err := os.Stat(k.ids)
	must(t, err)
	must(t, os.WriteFile(k.ids, bytes.Replace(text, []byte("\n1000\n"), []byte("\n9999\n"), 1), 0o600))
	must(t, os.Chtimes(k.ids, info.ModTime(), info.ModTime()))
	k.start("")
	k.mustSay(fromSnapshot, "file="+k.file)
	k.want("maybe", "1", "1000")
	k.want("absent", "1001", "9999")
	must(t, k.gate.Stop())

	k.age(30 * time.Minute)
	k.start("")
	k.mustSay("the sources are read again", k.file)
	k.want("maybe", "1", "9999")
	k.want("absent", "1000", "1001")
	must(t, k.gate.Stop())

	// One that changed a moment ago may change again without its time telling.
	k.age(0)
	for range 2 {
		k.start("")
		if k.said(fromSnapshot) {
			t.Error("a source that has just changed was not read again")
		}
		k.want("maybe", "9999")
		k.age(0)
		k.written()
		k.gate.Kill()
	}

	// Without its source a filter knows nothing for certain, as without a snapshot.
	must(t, os.Remove(k.ids))
	k.startUnready("")
	k.want("unknown", "1001")
}

// TestSnapshotAndTheLog has orders that were learned before the snapshot, after it, and
// while no ordergate ran.
func TestSnapshotAndTheLog(t *testing.T) {
	t.Parallel()
	k := newKeeper(t, 1000)
	k.create("2000001")
	k.start("")
	k.create("2000002")
	k.want("maybe", "2000001", "2000002")
	out, _, err := k.command("filter", "snapshot", "orders", "--json")
	must(t, err)
	var report struct {
		Path       string
		Bytes, IDs uint64
		Position   uint64
	}
	must(t, json.Unmarshal([]byte(out), &report))
	if stat, err := os.Stat(k.file); err != nil || report.Path != k.file || report.Bytes != uint64(stat.Size()) || report.IDs != 1002 || report.Position != 2 {
		t.Errorf("the command said %s of %v, %v", out, stat, err)
	}
	k.create("2000003")
	k.want("maybe", "2000003")
	k.gate.Kill()
	k.create("2000004")
	k.start("")
	k.mustSay(fromSnapshot, "ids=1002")
	k.want("maybe", "1", "2000001", "2000002", "2000003", "2000004")
	k.want("absent", "2000005", "1001")
	if lag := k.metric("log_lag_entries"); lag != 0 {
		t.Errorf("the lag is %v", lag)
	}

	// At its end it writes what it has.
	must(t, k.gate.Stop())
	out, errs, err := k.command2("filter", "snapshot", "inspect", k.file, "--json")
	if err != nil {
		t.Fatal(err, errs)
	}
	var file struct {
		Filter, Kind string
		IDs          uint64
		Position     struct{ Seq uint64 }
		Parts        []struct{ Label string }
	}
	must(t, json.Unmarshal([]byte(out), &file))
	if file.Filter != "orders" || file.Kind != "bloom" || file.IDs != 1004 || file.Position.Seq != 5 || len(file.Parts) != 1 || file.Parts[0].Label != "all/0" {
		t.Errorf("the file has %s", out)
	}
	if key, err := os.ReadFile(k.file + ".secret"); err != nil || strings.Contains(out, strings.TrimSpace(string(key))) {
		t.Errorf("the secret is shown, or missing: %v", err)
	}
}

// TestSnapshotRefused has files that are of no use: each is named, kept, and the
// source read.
func TestSnapshotRefused(t *testing.T) {
	t.Parallel()
	k := newKeeper(t, 1000)
	k.start("")
	k.written()
	must(t, k.gate.Stop())
	good, err := os.ReadFile(k.file)
	must(t, err)
	damaged := bytes.Clone(good)
	damaged[len(damaged)/2] ^= 1
	secret := filepath.Join(t.TempDir(), "secret")
	must(t, os.WriteFile(secret, []byte("a secret of other bytes"), 0o600))
	foreign := newKeeper(t, 10)
	foreign.config = strings.ReplaceAll(foreign.yaml(""), "orders:\n", "others:\n")
	foreign.config = strings.ReplaceAll(foreign.config, "filter: orders", "filter: others")
	foreign.gate = foreign.Gate(foreign.binary, foreign.config)
	must(t, foreign.gate.Stop())
	others, err := os.ReadFile(foreign.file)
	must(t, err)
	for _, tc := range []struct {
		name, settings, reason string
		data                   []byte
	}{
		{"damaged", "", "is damaged: section 0, block 0: the checksum is wrong", damaged},
		{"cut off", "", "is damaged", good[:len(good)-9]},
		{"empty", "", "the file has only 0 bytes", nil},
		{"another filter's", "", "name is", others},
		{"another secret's", "secret_file: " + secret + "; capacity: 5000", "key fingerprint is", good},
		{"of another capacity", "capacity: 6000", "capacity is 5000, want 6000", good},
		{"of another rate", "false_positive_rate: 0.01; capacity: 5000", "false positive rate is 0.001, want 0.01", good},
		{"of another kind", "kind: exact; capacity: 5000", "kind is", good},
	} {
		t.Run(tc.name, func(t *testing.T) {
			k.t = t
			must(t, os.RemoveAll(k.file+".refused"))
			must(t, os.WriteFile(k.file, tc.data, 0o600))
			k.start(tc.settings)
			k.mustSay("level=WARN", "the snapshot is refused", k.file, tc.reason)
			k.want("maybe", "1", "500", "1000")
			k.want("absent", "1001", "2000")
			k.written()
			must(t, k.gate.Stop())
			if kept, err := os.ReadFile(k.file + ".refused"); err != nil || !bytes.Equal(kept, tc.data) {
				t.Errorf("the refused file: %d bytes, %v", len(kept), err)
			}
			k.start(tc.settings)
			k.mustSay(fromSnapshot)
			must(t, k.gate.Stop())
		})
	}
}

// TestSnapshotRefusedIsKeptUntilTheLoad has a source that cannot be read: a file that
// only the configuration does not fit must not go.
func TestSnapshotRefusedIsKeptUntilTheLoad(t *testing.T) {
	t.Parallel()
	k := newKeeper(t, 1000)
	k.start("")
	k.written()
	must(t, k.gate.Stop())
	good, err := os.ReadFile(k.file)
	must(t, err)
	must(t, os.Rename(k.ids, k.ids+"2"))
	k.startUnready("capacity: 7000")
	k.mustSay("the snapshot is refused")
	k.mustSay("filter not loaded")
	if status, text := k.post("orders"); status != http.StatusServiceUnavailable || !strings.Contains(text, "no such file") {
		t.Errorf("%d %s", status, text)
	}
	must(t, k.gate.Stop())
	if data, err := os.ReadFile(k.file); err != nil || !bytes.Equal(data, good) {
		t.Errorf("the file: %v", err)
	}
	must(t, os.Rename(k.ids+"2", k.ids))
	k.start("")
	k.mustSay(fromSnapshot)
	k.want("maybe", "1000")
}

// TestSnapshotOfALostLog has Redis lose the log while no ordergate runs, or parts of it.
func TestSnapshotOfALostLog(t *testing.T) {
	t.Parallel()
	k := newKeeper(t, 1000)
	for _, tc := range []struct {
		name, reason string
		do           func() error
	}{
		{"flushed", "it was recreated", func() error { return k.redis.FlushAll(t.Context()).Err() }},
		{"trimmed", "is gone", func() error { return k.redis.XTrimMaxLen(t.Context(), "ordergate:{orders}:log", 0).Err() }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			k.t = t
			k.create("3000001")
			k.start("")
			k.want("absent", "4000000") // so the log has been read
			k.want("maybe", "3000001")
			must(t, k.gate.Stop())
			must(t, tc.do())
			k.start("")
			// The error names the first doubt, which may be another one.
			k.mustSay("level=ERROR", "nothing counts as absent until the sources have every order")
			k.mustSay(tc.reason)
			k.want("maybe", "1", "1000", "3000001")
			if got := k.ask("4000000"); got != "unknown" {
				t.Errorf("an order that only the lost log could have is %s", got)
			}
			k.load()
			bedtest.Eventually(t, "a verdict", func() bool { return k.ask("4000000") == "absent" })
			k.want("maybe", "1", "1000", "3000001")
			must(t, k.gate.Stop())
		})
	}
}

// TestSnapshotWithoutRedis starts while Redis is away: what the snapshot has passes,
// and nothing is refused until the log was read.
func TestSnapshotWithoutRedis(t *testing.T) {
	t.Parallel()
	k := newKeeper(t, 1000)
	k.start("")
	k.written()
	k.gate.Kill()
	must(t, k.server.Stop())
	k.start("")
	k.mustSay(fromSnapshot)
	k.want("maybe", "1000")
	k.want("unknown", "5000000")
	// An empty one comes back.
	must(t, k.server.Restart(t.Context()))
	k.create("3000002")
	k.mustSay("level=ERROR", "nothing counts as absent until the sources have every order")
	k.load()
	bedtest.Eventually(t, "orders are absent", func() bool { return k.ask("5000000") == "absent" })
	k.want("maybe", "1000", "3000002")
	k.mustSay("level=WARN", "it was recreated")
}

// TestSnapshotKinds restarts every kind of filter.
func TestSnapshotKinds(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, settings string
		room           float64
	}{
		{"classic", "layout: classic; capacity: 5000", 5000},
		{"exact", "kind: exact; capacity: 5000", 5000},
		{"layers", "expand: {how: layers}; capacity: 500", 1000},
		{"rebuilt", "expand: {at_fill: 0.8, by: 3}; capacity: 500", 1000},
		{"layered", "kind: layered; capacity: 5000", 5000},
		{"days", "segments: {by: day, keep: 30, from: arrival, older: absent}; capacity: 50_000", 1000},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			k := newKeeper(t, 1000)
			k.start(tc.settings)
			bedtest.Eventually(t, "room for all", func() bool { return k.metric("capacity") >= tc.room && k.metric("capacity") >= k.metric("ids") })
			k.create("3000001")
			k.want("maybe", "3000001")
			must(t, k.gate.Stop())
			k.create("3000002")
			k.start(tc.settings)
			k.mustSay(fromSnapshot)
			bedtest.Eventually(t, "it has as much room as before", func() bool { return k.metric("capacity") >= tc.room })
			k.want("maybe", "1", "500", "1000", "3000001", "3000002")
			// Of ten, the same one in a thousand: never three. Until its window is open, all are unknown.
			bedtest.Eventually(t, "of ten that do not exist, two pass at most", func() bool {
				passed := 0
				for i := range 10 {
					if k.ask(strconv.Itoa(4_000_000+i)) != "absent" {
						passed++
					}
				}
				return passed <= 2
			})
		})
	}
}

// TestSnapshotIsOneProcess's alone. The second says so, and takes over when the first
// has ended.
func TestSnapshotIsOneProcess(t *testing.T) {
	t.Parallel()
	k := newKeeper(t, 1000)
	k.start("")
	k.written()
	first, before := k.gate, k.bytes()
	k.member = "there"
	k.start("")
	k.mustSay("level=ERROR", "another process", k.file)
	k.want("maybe", "1000")
	k.want("absent", "1001")
	if status, text := k.post("orders"); status != http.StatusInternalServerError || !strings.Contains(text, "another process") {
		t.Errorf("%d %s", status, text)
	}
	if n := k.metric("snapshot_errors_total"); n < 2 {
		t.Errorf("%v errors were counted", n)
	}
	if body := k.readyz(); !strings.Contains(body, "another process") {
		t.Errorf("readyz: %s", body)
	}
	if !bytes.Equal(before, k.bytes()) {
		t.Error("the file has changed")
	}
	must(t, first.Stop())
	k.create("3000001")
	k.want("maybe", "3000001")
	if status, text := k.post("orders"); status != http.StatusOK || !strings.Contains(text, `"ids": 1001`) {
		t.Errorf("%d %s", status, text)
	}
	if body := k.readyz(); strings.Contains(body, "another process") {
		t.Errorf("readyz: %s", body)
	}
	if _, err := os.Stat(k.file + ".refused"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a good file was set aside: %v", err)
	}
}

// TestSnapshotKilled kills an ordergate at moments of writing; each next one has the
// old file or the new one, and no order is lost.
func TestSnapshotKilled(t *testing.T) {
	t.Parallel()
	k := newKeeper(t, 1000)
	created := 0
	for round := range 3 {
		k.start("capacity: 3_000_000")
		if round > 0 {
			k.mustSay(fromSnapshot)
		}
		k.want("maybe", "1", "1000")
		for i := range created {
			k.want("maybe", strconv.Itoa(5_000_000+i))
		}
		k.want("absent", "7000000")
		k.written()
		gone := make(chan struct{})
		go func() { // writes one after the other until it is killed
			defer close(gone)
			for {
				resp, err := client.Post("http://"+k.GateAddr(k.gate, "admin")+"/filters/orders/snapshot", "", nil)
				if err != nil {
					return
				}
				resp.Body.Close()
			}
		}()
		temporary := k.file + ".tmp"
		for range 1 + round*6 {
			k.create(strconv.Itoa(5_000_000 + created))
			created++
		}
		bedtest.Eventually(t, "it is writing", func() bool {
			info, err := os.Stat(temporary)
			return err == nil && info.Size() > int64(round)<<20
		})
		k.gate.Kill()
		<-gone
	}
	if _, err := os.Stat(k.file + ".refused"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a file was refused: %v", err)
	}
}

// TestSnapshotSecret has a secret that others may read: ordergate does not start with
// it, nor with one that is none.
func TestSnapshotSecret(t *testing.T) {
	t.Parallel()
	k := newKeeper(t, 10)
	k.start("")
	must(t, k.gate.Stop())
	secret := k.file + ".secret"
	info, err := os.Stat(secret)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("%v, %v", info, err)
	}
	text, err := os.ReadFile(secret)
	must(t, err)
	for name, spoil := range map[string]func() error{
		"chmod 600":             func() error { return os.Chmod(secret, 0o640) },
		"32 hexadecimal digits": func() error { return os.WriteFile(secret, text[:30], 0o600) },
	} {
		must(t, spoil())
		gate, err := k.GateUnready(t.Context(), k.binary, k.yaml(""))
		must(t, err)
		if err := gate.Wait(t.Context()); err == nil || !strings.Contains(err.Error(), "exit status 1") {
			t.Errorf("%s: it ended with %v", name, err)
		}
		if last := gate.Tail(); !strings.Contains(last, "filter orders: the secret of its hashes: "+secret) || !strings.Contains(last, name) {
			t.Errorf("%s: it said %s", name, last)
		}
		must(t, os.Chmod(secret, 0o600))
		must(t, os.WriteFile(secret, text, 0o600))
	}
	k.start("")
	k.mustSay(fromSnapshot)
}
