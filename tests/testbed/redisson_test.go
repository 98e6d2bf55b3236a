package testbed_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ordergate/ordergate/tests/testbed"
	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// TestRedissonMissing has what the agent needs not be there. That it works is
// tested in tests/redisson.
func TestRedissonMissing(t *testing.T) {
	t.Run("jars", func(t *testing.T) {
		need(t, "java", "java")
		root := t.TempDir() // a checkout that nothing was fetched for
		write := func(name, text string) {
			path := filepath.Join(root, name)
			bedtest.Check(t, os.MkdirAll(filepath.Dir(path), 0o755))
			bedtest.Check(t, os.WriteFile(path, []byte(text), 0o600))
		}
		write("go.mod", "module github.com/ordergate/ordergate\n")
		write("tests/redisson/pom.xml", "<project/>")
		t.Chdir(root)
		_, err := bedtest.New(t).Bed.Redisson(t.Context(), testbed.RedissonOptions{})
		var missing *testbed.MissingError
		if !errors.As(err, &missing) || missing.Fetch != "redisson" || !strings.HasPrefix(missing.Program, ".cache/jars/redisson-") {
			t.Errorf("got %v, want a MissingError of the jars", err)
		}
	})
	t.Run("JDK", func(t *testing.T) {
		bed := bedtest.New(t)
		t.Setenv("PATH", t.TempDir())
		_, err := bed.Bed.Redisson(t.Context(), testbed.RedissonOptions{})
		var missing *testbed.MissingError
		if !errors.As(err, &missing) || missing.Fetch != "java" {
			t.Errorf("got %v, want a MissingError of java", err)
		}
	})
}
