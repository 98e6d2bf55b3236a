//go:build unix

package snapshot

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/ordergate/ordergate/filter/bloom"
)

// With these in the environment the test's own binary is the process that writes.
const (
	writerPath = "ORDERGATE_TEST_SNAPSHOT_PATH"
	writerRoom = "ORDERGATE_TEST_SNAPSHOT_ROOM" // the most that a file may have, in bytes
)

func TestMain(m *testing.M) {
	if path := os.Getenv(writerPath); path != "" {
		os.Exit(writeForEver(path))
	}
	goleak.VerifyTestMain(m)
}

// growing is the filter of the writer: 4 MiB, of several blocks.
func growing() (*bloom.Filter, error) {
	return bloom.New(bloom.Params{Capacity: 2_000_000, FalsePositiveRate: 0.001, Key: testKey})
}

// writeForEver adds IDs and writes snapshots, whose positions say how many IDs
// they have at least, and prints each position once Write has returned. It ends
// when it is killed, or with the first error, which it prints.
func writeForEver(path string) int {
	if room := os.Getenv(writerRoom); room != "" {
		most, err := strconv.ParseUint(room, 10, 64)
		if err == nil {
			err = syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: most, Max: most})
		}
		if err != nil {
			fmt.Println(err)
			return 2
		}
	}
	f, err := growing()
	if err != nil {
		fmt.Println(err)
		return 2
	}
	for n := 0; ; n++ {
		f.Add(strconv.Itoa(n))
		h := testHeader()
		h.Position = []byte(strconv.Itoa(n))
		if err := Write(context.Background(), path, h, []Section{{Bloom: f}}); err != nil {
			fmt.Println(err)
			return 1
		}
		fmt.Println(n)
	}
}

func writerProcess(t *testing.T, path string, env ...string) (*exec.Cmd, *bufio.Scanner) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(append(os.Environ(), writerPath+"="+path), env...)
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	return cmd, bufio.NewScanner(out)
}

// position loads the file and returns its position, -1 if there is none yet. All
// IDs up to it must be there.
func position(t *testing.T, path string) int {
	t.Helper()
	h, sections, err := load(t.Context(), path, testHeader().Identity, testKey)
	if errors.Is(err, os.ErrNotExist) {
		return -1
	}
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.Atoi(string(h.Position))
	if err != nil {
		t.Fatal(err)
	}
	for i := range n + 1 {
		if !sections[0].Bloom.MayContain(strconv.Itoa(i)) {
			t.Fatalf("ID %d is gone from a snapshot at position %d", i, n)
		}
	}
	return n
}

// TestKilled ends the writer with -9 at any moment: the file is always one that
// was written, and never older than what the writer had reported.
func TestKilled(t *testing.T) {
	path := filepath.Join(t.TempDir(), "orders.snap")
	f, err := growing()
	if err != nil {
		t.Fatal(err)
	}
	for round := range 12 {
		cmd, lines := writerProcess(t, path)
		reported := -1
		for range rand.IntN(3) { // 0 is before the first one in this process
			if !lines.Scan() {
				t.Fatalf("round %d: the writer ended by itself", round)
			}
			n, err := strconv.Atoi(lines.Text())
			if err != nil {
				t.Fatalf("the writer: %s", lines.Text())
			}
			reported = n
		}
		// In the middle of the next one, wherever that is.
		part := rand.Int64N(int64(f.SizeBytes()))
		poll(t, func() bool {
			info, err := os.Stat(path + ".tmp")
			return err == nil && info.Size() >= part
		})
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		for lines.Scan() { // what it had printed already
			if n, err := strconv.Atoi(lines.Text()); err == nil {
				reported = n
			}
		}
		_ = cmd.Wait() // it says "killed"
		if got := position(t, path); got < reported {
			t.Fatalf("round %d: the snapshot is at %d, the writer had reported %d", round, got, reported)
		}
		// The next writer begins at 0, and so would its reports.
		if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
	}
}

func poll(t *testing.T, condition func() bool) {
	t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for !condition() {
		if time.Now().After(deadline) {
			t.Fatal("waited in vain")
		}
		runtime.Gosched()
	}
}

// TestDiskFull has the old file survive an error at any byte of the new one.
func TestDiskFull(t *testing.T) {
	path := filepath.Join(t.TempDir(), "orders.snap")
	old, err := growing()
	if err != nil {
		t.Fatal(err)
	}
	old.Add("0")
	h := testHeader()
	h.Position = []byte("0")
	if err := Write(t.Context(), path, h, []Section{{Bloom: old}}); err != nil {
		t.Fatal(err)
	}
	whole, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, room := range []int64{1, 300, blockSize, whole.Size() - 1} {
		cmd, lines := writerProcess(t, path, fmt.Sprintf("%s=%d", writerRoom, room))
		if !lines.Scan() || !strings.Contains(lines.Text(), "file too large") {
			t.Errorf("room for %d: the writer said %q", room, lines.Text())
		}
		var exit *exec.ExitError
		if err := cmd.Wait(); !errors.As(err, &exit) || exit.ExitCode() != 1 {
			t.Errorf("room for %d: %v", room, err)
		}
		if got := position(t, path); got != 0 {
			t.Errorf("room for %d: the snapshot is at %d", room, got)
		}
		if _, err := os.Stat(path + ".tmp"); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("room for %d: the new file is still there: %v", room, err)
		}
	}
}

// TestLeftover is what a killed writer leaves, longer than the new file.
func TestLeftover(t *testing.T) {
	path := filepath.Join(t.TempDir(), "orders.snap")
	if err := os.WriteFile(path+".tmp", make([]byte, 9<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	sections := threeSections(t)
	if err := Write(t.Context(), path, testHeader(), sections); err != nil {
		t.Fatal(err)
	}
	_, got, err := load(t.Context(), path, testHeader().Identity, testKey)
	if err != nil {
		t.Fatal(err)
	}
	checkSame(t, got, sections)
}

func TestOneWriterAtATime(t *testing.T) {
	path := filepath.Join(t.TempDir(), "orders.snap")
	f, err := os.Create(path + ".tmp")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := lock(f); err != nil {
		t.Fatal(err)
	}
	if err := Write(t.Context(), path, testHeader(), nil); err == nil || !strings.Contains(err.Error(), "another process is writing it") {
		t.Errorf("error %v", err)
	}
	if _, err := os.Stat(path + ".tmp"); err != nil {
		t.Errorf("the other's file: %v", err)
	}
	// Many at once: each fails or leaves a whole file.
	f.Close()
	sections := []Section{{Bloom: newBloom(t, "", 100_000, 1000)}}
	var wg sync.WaitGroup
	var written atomic.Int64
	for range 4 {
		wg.Go(func() {
			for range 20 {
				err := Write(t.Context(), path, testHeader(), sections)
				switch {
				case err == nil:
					written.Add(1)
				case !strings.Contains(err.Error(), "another process"):
					t.Error(err)
				}
				if _, _, err := load(t.Context(), path, testHeader().Identity, testKey); err != nil && !errors.Is(err, os.ErrNotExist) {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if written.Load() == 0 {
		t.Error("nobody wrote")
	}
}

// TestWriteBesideAdds loads what was written while IDs came in: all from before
// each Write must be there, and a filter that takes the file while it follows has
// both.
func TestWriteBesideAdds(t *testing.T) {
	path := filepath.Join(t.TempDir(), "orders.snap")
	f, set := newBloom(t, "", 400_000, 0), newExact(t, 0)
	var added atomic.Int64
	var wg sync.WaitGroup
	stop := make(chan struct{})
	for range 4 {
		wg.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				id := strconv.Itoa(n)
				f.Add(id)
				if _, err := set.Add(id); err != nil {
					t.Error(err)
				}
				// The slowest of the four has not counted yet what the fastest added.
				for {
					before := added.Load()
					if before > int64(n) || added.CompareAndSwap(before, int64(n)+1) {
						break
					}
				}
			}
		})
	}
	for range 5 {
		before := int(added.Load())
		if err := Write(t.Context(), path, testHeader(), []Section{{Bloom: f}, {Exact: set}}); err != nil {
			t.Fatal(err)
		}
		s, err := Open(path, testHeader().Identity)
		if err != nil {
			t.Fatal(err)
		}
		for i := range s.Sections() {
			into, err := s.New(i, testKey)
			if err != nil {
				t.Fatal(err)
			}
			add := func(id string) {
				if into.Bloom != nil {
					into.Bloom.Add(id)
				} else if _, err := into.Exact.Add(id); err != nil {
					t.Error(err)
				}
			}
			has := func(id string) bool {
				if into.Bloom != nil {
					return into.Bloom.MayContain(id)
				}
				in, _ := into.Exact.MayContain(id)
				return in
			}
			var follower sync.WaitGroup
			const later = 1_000_000_000
			follower.Go(func() {
				for n := range 5000 {
					add(strconv.Itoa(later + n))
				}
			})
			if err := s.Read(t.Context(), i, into); err != nil {
				t.Fatal(err)
			}
			follower.Wait()
			for n := range before {
				if !has(strconv.Itoa(n)) {
					t.Fatalf("section %d: ID %d of %d is gone", i, n, before)
				}
			}
			for n := range 5000 {
				if !has(strconv.Itoa(later + n)) {
					t.Fatalf("section %d: ID %d is gone, which was added during the load", i, later+n)
				}
			}
		}
		s.Close()
	}
	close(stop)
	wg.Wait()
}
