package filewatch

import (
	"go.uber.org/goleak"

	"context"
	"log/slog"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// realDir returns a directory without symbolic links in its path.
func realDir(t *testing.T) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// configMap lays files out as kubelet does: a link to a file behind a link to a directory.
func configMap(t *testing.T, dir, text string) (file string) {
	t.Helper()
	bedtest.Check(t, os.Mkdir(filepath.Join(dir, "..v1"), 0o700))
	bedtest.Check(t, os.WriteFile(filepath.Join(dir, "..v1", "a.yaml"), []byte(text), 0o600))
	bedtest.Check(t, os.Symlink("..v1", filepath.Join(dir, "..data")))
	file = filepath.Join(dir, "a.yaml")
	bedtest.Check(t, os.Symlink(filepath.Join("..data", "a.yaml"), file))
	return file
}

// swap has a ConfigMap lead to another version, as kubelet does.
func swap(t *testing.T, dir, version, text string) {
	t.Helper()
	old, err := os.Readlink(filepath.Join(dir, "..data"))
	bedtest.Check(t, err)
	bedtest.Check(t, os.Mkdir(filepath.Join(dir, version), 0o700))
	bedtest.Check(t, os.WriteFile(filepath.Join(dir, version, "a.yaml"), []byte(text), 0o600))
	bedtest.Check(t, os.Symlink(version, filepath.Join(dir, "..data_tmp")))
	bedtest.Check(t, os.Rename(filepath.Join(dir, "..data_tmp"), filepath.Join(dir, "..data")))
	bedtest.Check(t, os.RemoveAll(filepath.Join(dir, old)))
}

func TestStepsOf(t *testing.T) {
	t.Parallel()
	dir := realDir(t)
	in := func(parts ...string) string { return filepath.Join(append([]string{dir}, parts...)...) }
	bedtest.Check(t, os.MkdirAll(in("maps"), 0o700))
	mapped := configMap(t, in("maps"), "")
	bedtest.Check(t, os.WriteFile(in("plain"), nil, 0o600))
	bedtest.Check(t, os.Symlink(in("maps", "a.yaml"), in("absolute")))
	bedtest.Check(t, os.Symlink("maps", in("current")))
	bedtest.Check(t, os.Symlink("round", in("round")))
	for path, want := range map[string][]string{
		in("plain"):              {in("plain")},
		in("maps", "..", "none"): {in("none")},
		in("none", "b", "c"):     {in("none")},
		mapped:                   {in("maps", "a.yaml"), in("maps", "..data"), in("maps", "..v1", "a.yaml")},
		in("absolute"):           {in("absolute"), in("maps", "a.yaml"), in("maps", "..data"), in("maps", "..v1", "a.yaml")},
		in("current", "plain"):   {in("current"), in("maps", "plain")},
	} {
		if diff := cmp.Diff(want, stepsOf(path)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", path, diff)
		}
	}
	if n := len(stepsOf(in("round"))); n > maxLinks+1 {
		t.Errorf("a link to itself has %d steps", n)
	}
}

// TestWatch changes a file in all the ways in which files are changed.
func TestWatch(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		lay    func(t *testing.T, dir string) string
		change []func(t *testing.T, dir, file string) // each leaves "<number of the change>" in the file
	}{
		"written": {plain, []func(*testing.T, string, string){
			func(t *testing.T, _, file string) { bedtest.Check(t, os.WriteFile(file, []byte("1"), 0o600)) },
			func(t *testing.T, _, file string) { bedtest.Check(t, os.WriteFile(file, []byte("2"), 0o600)) },
		}},
		"renamed": {plain, []func(*testing.T, string, string){
			func(t *testing.T, _, file string) { replaceFile(t, file, "1") },
			func(t *testing.T, _, file string) { replaceFile(t, file, "2") },
		}},
		"removed and written anew": {plain, []func(*testing.T, string, string){
			func(t *testing.T, _, file string) {
				bedtest.Check(t, os.Remove(file))
				bedtest.Check(t, os.WriteFile(file, []byte("1"), 0o600))
			},
		}},
		"with its directory": {plain, []func(*testing.T, string, string){
			func(t *testing.T, _, file string) {
				bedtest.Check(t, os.RemoveAll(filepath.Dir(file)))
				bedtest.Check(t, os.Mkdir(filepath.Dir(file), 0o700))
				bedtest.Check(t, os.WriteFile(file, []byte("1"), 0o600))
			},
			func(t *testing.T, dir, file string) {
				bedtest.Check(t, os.Rename(filepath.Dir(file), filepath.Join(dir, "old")))
				bedtest.Check(t, os.Mkdir(filepath.Dir(file), 0o700))
				bedtest.Check(t, os.WriteFile(file, []byte("2"), 0o600))
			},
			func(t *testing.T, _, file string) { replaceFile(t, file, "3") },
		}},
		"a ConfigMap": {func(t *testing.T, dir string) string { return configMap(t, dir, "0") }, []func(*testing.T, string, string){
			func(t *testing.T, dir, _ string) { swap(t, dir, "..v2", "1") },
			func(t *testing.T, dir, _ string) { swap(t, dir, "..v3", "2") },
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := realDir(t)
			file := tt.lay(t, dir)
			var last atomic.Value
			looked := make(chan struct{}, 1)
			ctx, stop := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() {
				done <- Watch(ctx, file, slog.New(slog.DiscardHandler), func() {
					text, _ := os.ReadFile(file)
					last.Store(string(text))
					select {
					case looked <- struct{}{}:
					default:
					}
				})
			}()
			<-looked
			for i, change := range tt.change {
				change(t, dir, file)
				bedtest.Eventually(t, "the change was noticed", func() bool { return last.Load() == string(rune('1'+i)) })
			}
			stop()
			bedtest.Check(t, <-done)
		})
	}
}

func plain(t *testing.T, dir string) string {
	t.Helper()
	bedtest.Check(t, os.Mkdir(filepath.Join(dir, "etc"), 0o700))
	file := filepath.Join(dir, "etc", "a.yaml")
	bedtest.Check(t, os.WriteFile(file, []byte("0"), 0o600))
	return file
}

func replaceFile(t *testing.T, file, text string) {
	t.Helper()
	bedtest.Check(t, os.WriteFile(file+".new", []byte(text), 0o600))
	bedtest.Check(t, os.Rename(file+".new", file))
}

// TestWatchOthers changes files beside the watched one: they do not concern it.
func TestWatchOthers(t *testing.T) {
	t.Parallel()
	dir := realDir(t)
	file := plain(t, dir)
	w := &watch{path: file, steps: stepsOf(file)}
	for name, want := range map[string]bool{
		file: true, filepath.Dir(file): true, file + ".swp": false, filepath.Join(dir, "etc", "other"): false,
	} {
		if w.concerns(name) != want {
			t.Errorf("%s: %v, want %v", name, !want, want)
		}
	}
}
