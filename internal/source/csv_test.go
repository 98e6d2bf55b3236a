package source

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ordergate/ordergate/internal/orderid"
)

// writeFile writes a file with an old modification time.
func writeFile(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "ids.csv")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	before := time.Now().Add(-time.Hour)
	if err := os.Chtimes(path, before, before); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestCSV(t *testing.T) {
	long := strings.Repeat("9", orderid.MaxBytes)
	for _, tc := range []struct {
		name    string
		content string
		ids     []string
		bad     []Bad
	}{
		{"one a line", "1\n2\n3\n", []string{"1", "2", "3"}, nil},
		{"carriage returns", "1\r\n2\r\n", []string{"1", "2"}, nil},
		{"byte order mark", "\ufeff1\n2\n", []string{"1", "2"}, nil},
		{"mark and header", "\ufeffid\r\n1\r\n", []string{"1"}, nil},
		{"header", "order_id\n1\n", []string{"1"}, nil},
		{"header of several columns", "\nOrder_ID,created\n1,2026-01-01\n", []string{"1"}, nil},
		{"quoted header", "\"id\",\"created\"\n\"1\",\"x\"\n", []string{"1"}, nil},
		{"header only", "id\n", nil, nil},
		{"header's word further down", "1\nid\n", []string{"1", "id"}, nil},
		{"blank lines", "\n1\n\n\r\n2\n\n", []string{"1", "2"}, nil},
		{"blanks around", "  1 \n\t2\t,x\n   \n", []string{"1", "2"}, []Bad{{"line 3", "the first column is empty"}}},
		{"columns", "1,a,b\n2,,\n", []string{"1", "2"}, nil},
		{"quotes", "\"a,b\",x\n\"c\" , y\n\"d\"\n", []string{"a,b", "c", "d"}, nil},
		{"quotes not closed", "\"a\n\"b\"c,d\n1\n", []string{"1"}, []Bad{{"line 1", "quotes are not closed"}, {"line 2", "quotes are not closed"}}},
		{"empty column", ",a\n\"\",b\n1\n", []string{"1"}, []Bad{{"line 1", "the first column is empty"}, {"line 2", "the first column is empty"}}},
		{"length", long + "\n" + long + "9\n", []string{long}, []Bad{{"line 2", "an ID of more than 256 bytes"}}},
		{"control characters", "a\x00b\n1\na\tb\na\x7f\n", []string{"1"}, []Bad{{"line 1", "control characters"}, {"line 3", "control characters"}, {"line 4", "control characters"}}},
		{"not UTF-8", "1\n\xff\xfe\nä\n", []string{"1", "ä"}, []Bad{{"line 2", "not UTF-8"}}},
		{"refused by the caller", "1\nno-way\n", []string{"1"}, []Bad{{"line 2", `"no-way" does not have the form of an order ID`}}},
		{"first column of an endless line", "1," + strings.Repeat("x", 5*bufferBytes) + "\n2\n", []string{"1", "2"}, nil},
		{"endless column", strings.Repeat("x", 3*bufferBytes) + "\n2\n", []string{"2"}, []Bad{{"line 1", "an ID of more than 256 bytes"}}},
		{"endless last line", "1\n2," + strings.Repeat("x", 3*bufferBytes) + "\n", []string{"1", "2"}, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var got []string
			var ids, done, total int64
			report, err := CSV(writeFile(t, tc.content), Options{
				Check:    noWay,
				Progress: func(s Step) { ids, done, total = s.IDs, s.Done, s.Total },
			}).Read(t.Context(), func(id string) error {
				got = append(got, id)
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.ids, got); diff != "" {
				t.Error("IDs, -want +got:", diff)
			}
			want := Report{IDs: int64(len(tc.ids)), Skipped: int64(len(tc.bad)), First: tc.bad}
			if diff := cmp.Diff(want, report); diff != "" {
				t.Error("report, -want +got:", diff)
			}
			if size := int64(len(tc.content)); ids != want.IDs || done != size || total != size {
				t.Errorf("progress ended at %d IDs, %d of %d, want %d of %d", ids, done, total, want.IDs, size)
			}
		})
	}
}

// TestCutCSV reads files that lack content, or a part of it.
func TestCutCSV(t *testing.T) {
	for content, want := range map[string]string{
		"":          "it is empty: a file for no orders has a header, id or order_id",
		"\n\r\n":    "it is empty",
		"\ufeff":    "it is empty",
		"1001\n10":  "line 2 has no line end, so the file may be cut: end the last line, too",
		"id\n1,\"x": "line 2 has no line end",
		"1\n2," + strings.Repeat("x", 3*bufferBytes): "line 2 has no line end",
	} {
		_, err := CSV(writeFile(t, content), Options{}).Read(t.Context(), func(string) error { return nil })
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.20q: %v, want %q", content, err, want)
		}
	}
}

func TestCSVNamesOnlyTheFirstBadLines(t *testing.T) {
	var out strings.Builder
	file := CSV(writeFile(t, "1\n"+strings.Repeat("\x01\n", 20)), Options{Logger: slog.New(slog.NewTextHandler(&out, nil))})
	report, err := file.Read(t.Context(), func(string) error { return nil })
	if err != nil || report.Skipped != 20 || len(report.First) != maxListedBad || report.First[0].Where != "line 2" {
		t.Errorf("report %+v, %v", report, err)
	}
	if n := strings.Count(out.String(), "\n"); n != 1 || !strings.Contains(out.String(), "skipped=20") || !strings.Contains(out.String(), "line 2: control characters") {
		t.Errorf("log: %s", out.String())
	}
}

func TestCSVErrors(t *testing.T) {
	dir := t.TempDir()
	unreadable := writeFile(t, "1\n")
	if err := os.Chmod(unreadable, 0); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name, path, want string
		skip             bool
	}{
		{"missing", filepath.Join(dir, "none.csv"), "no such file or directory", false},
		{"directory", dir, "is a directory, not a file", false},
		{"unreadable", unreadable, "permission denied", os.Getuid() == 0},
		{"something else", writeFile(t, "\x1f\x8b\x08\x00\n\x00\x01\n"), "none of 2 lines has an order ID (line 1: control characters)", false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if tc.skip {
				t.Skip("root may read everything")
			}
			err := CSV(tc.path, Options{}).IDs(t.Context(), func(string) error { return nil })
			if err == nil || !strings.Contains(err.Error(), tc.want) || strings.Count(err.Error(), tc.path) != 1 || strings.Contains(err.Error(), "\n") {
				t.Errorf("IDs = %v; want one line with %q that names the file once", err, tc.want)
			}
		})
	}
	err := CSV(filepath.Join(dir, "none.csv"), Options{}).IDs(t.Context(), nil)
	if !errors.Is(err, os.ErrNotExist) {
		t.Errorf("IDs = %v, want fs.ErrNotExist in it", err)
	}
}

// TestCSVOfAChangingFile: what was read of a changing file may be incomplete.
func TestCSVOfAChangingFile(t *testing.T) {
	half := strings.Repeat("1\n", linesPerStep)
	for name, write := range map[string]func(path string) error{
		"it grows":       func(path string) error { return os.WriteFile(path, []byte(half+half), 0o600) },
		"it begins anew": func(path string) error { return os.WriteFile(path, nil, 0o600) },
		"it is another": func(path string) error {
			return errors.Join(os.WriteFile(path+".new", []byte(half), 0o600), os.Rename(path+".new", path))
		},
		"it is gone": os.RemoveAll,
	} {
		t.Run(name, func(t *testing.T) {
			path := writeFile(t, half)
			began := time.Now()
			if err := os.Chtimes(path, began, began); err != nil {
				t.Fatal(err)
			}
			progress := func(s Step) {
				if s.Done < s.Total {
					return
				}
				if err := write(path); err != nil {
					t.Error(err)
				}
			}
			err := CSV(path, Options{Progress: progress}).IDs(t.Context(), func(string) error { return nil })
			if err == nil || !strings.Contains(err.Error(), "it has changed while it was read") {
				t.Errorf("IDs = %v", err)
			}
			if waited := time.Since(began); waited < minFileAge/2 {
				t.Errorf("a file that was written just now was read after %v", waited)
			}
		})
	}
}

func TestCSVStops(t *testing.T) {
	path := writeFile(t, strings.Repeat("1\n", 5*linesPerStep))
	// io.EOF must not count as the end of the file.
	for _, enough := range []error{errors.New("enough"), io.EOF} {
		seen := 0
		err := CSV(path, Options{}).IDs(t.Context(), func(string) error {
			if seen++; seen == 3 {
				return enough
			}
			return nil
		})
		if !errors.Is(err, enough) || seen != 3 || !strings.Contains(err.Error(), "line 3") {
			t.Errorf("IDs = %v after %d", err, seen)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	seen := 0
	err := CSV(path, Options{}).IDs(ctx, func(string) error {
		seen++
		cancel()
		return nil
	})
	if !errors.Is(err, context.Canceled) || seen > linesPerStep {
		t.Errorf("IDs = %v after %d, want it to stop at the first look", err, seen)
	}
}

func TestCSVMemoryDoesNotGrow(t *testing.T) {
	path := filepath.Join(t.TempDir(), "many.csv")
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	const n = 500_000
	out := bufio.NewWriter(file)
	for i := range n {
		fmt.Fprintf(out, "%012d,some,more,columns\n", i)
	}
	if err := errors.Join(out.Flush(), file.Close()); err != nil {
		t.Fatal(err)
	}
	var before, now runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	seen := 0
	peak := uint64(0)
	if err := CSV(path, Options{}).IDs(t.Context(), func(string) error {
		if seen++; seen%(n/4) == 0 {
			runtime.GC()
			runtime.ReadMemStats(&now)
			peak = max(peak, now.HeapAlloc)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if seen != n {
		t.Errorf("%d IDs, want %d", seen, n)
	}
	if peak > before.HeapAlloc+4*bufferBytes {
		t.Errorf("%d bytes on the heap while reading, %d before", peak, before.HeapAlloc)
	}
}

func FuzzCSV(f *testing.F) {
	f.Add([]byte("\ufeffid\r\n1,a\n\"2\",b\n\n\xff\n"))
	f.Fuzz(func(t *testing.T, content []byte) {
		path := filepath.Join(t.TempDir(), "ids.csv")
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		n := int64(0)
		report, err := CSV(path, Options{}).Read(t.Context(), func(id string) error {
			n++
			if orderid.Check(id) != "" || strings.ContainsAny(id, "\n\r") {
				t.Errorf("ID %q", id)
			}
			return nil
		})
		if report.IDs != n || err != nil && n > 0 {
			t.Errorf("report %+v, %v, after %d IDs", report, err, n)
		}
	})
}
