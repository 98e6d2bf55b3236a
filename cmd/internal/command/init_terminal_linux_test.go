package command

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestInitAsks answers the questions on a terminal.
func TestInitAsks(t *testing.T) {
	dir := t.TempDir()
	keyboard, stdin := terminal(t)
	if _, err := io.WriteString(keyboard, "java\ntomcat\n\n\nshop_order\n\n/o/{id}\nGET /o/{id}, GET /orders/{id}\n-\n\n\n\n"); err != nil {
		t.Fatal(err)
	}
	var out, errs strings.Builder
	root := newCommand(&out, &errs, os.Getenv)
	root.SetArgs([]string{"init", "--out", dir})
	root.SetIn(stdin)
	if err := root.ExecuteContext(t.Context()); err != nil {
		t.Fatal(err, errs.String())
	}
	text, err := os.ReadFile(filepath.Join(dir, "ordergate.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"backend: tomcat ", "table: shop_order, id_column: id, follow: binlog", "order-lookup-2\n", `path: "/orders/{id}/settle"`} {
		if !strings.Contains(string(text), want) {
			t.Errorf("%s, want %s", text, want)
		}
	}
	if n := strings.Count(errs.String(), "\n"); n != 2 || !strings.Contains(errs.String(), `"java" is not one of spring, `) || !strings.Contains(errs.String(), `"/o/{id}": want 'METHOD PATH'`) {
		t.Errorf("%d answers are refused, want 2: %s", n, errs.String())
	}
	if strings.Contains(string(text), "create") || !strings.Contains(errs.String(), "2. Database of the orders: mysql or postgres [mysql]: ") {
		t.Errorf("%s%s", text, errs.String())
	}
	keyboard, stdin = terminal(t)
	if _, err := io.WriteString(keyboard, "tomcat\n\x04"); err != nil {
		t.Fatal(err)
	}
	root = newCommand(&out, &errs, os.Getenv)
	root.SetArgs([]string{"init", "--out", t.TempDir()})
	root.SetIn(stdin)
	if err := root.ExecuteContext(t.Context()); err == nil || err.Error() != "init: no answer: nothing was written" {
		t.Error(err)
	}
	ctx, interrupt := context.WithCancel(t.Context())
	interrupt() // by Ctrl-C
	_, stdin = terminal(t)
	root = newCommand(&out, &errs, os.Getenv)
	root.SetArgs([]string{"init", "--out", t.TempDir()})
	root.SetIn(stdin)
	if err := root.ExecuteContext(ctx); err == nil || err.Error() != "init: no answer: nothing was written" {
		t.Error(err)
	}
}
