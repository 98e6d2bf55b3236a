package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/ordergate/ordergate/internal/audit"
	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// TestOnceForget deletes stored answers of orders with and without parts. The audit has each.
func TestOnceForget(t *testing.T) {
	t.Parallel()
	server := bedtest.New(t).Redis("--user", "narrow", "on", ">secret", "~{*", "~order:lock:*", "~redisson_*", "&*", "+@all")
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer client.Close()
	file := writeConfig(t, fmt.Sprintf(onceExplained, "addresses: ["+server.Addr()+"]"))
	narrow := writeConfig(t, fmt.Sprintf(onceExplained, "addresses: ["+server.Addr()+"], username: narrow, password_file: "+writeConfig(t, "secret")))
	const ofOrder, ofTenant = "{order:lock:1}:ordergate_once:batch", "{order:lock:acme/42}:ordergate_once:commission"
	for _, tt := range []struct {
		name, file   string
		args         []string
		code         int
		out, err     string // parts of the output
		kept, logged []string
	}{
		{"without parts", file, []string{"1", "--reason", "why"}, exitDone, ofOrder + "  forgotten\n", "", []string{ofTenant}, []string{ofOrder + " orders why"}},
		{"with parts", file, []string{"acme/42"}, exitDone, ofTenant + "  forgotten\n", "", []string{ofOrder}, []string{ofTenant + " settlement "}},
		{"of a lock", file, []string{"acme/42", "--lock", "settlement"}, exitDone, ofTenant + "  forgotten\n", "", []string{ofOrder}, []string{ofTenant + " settlement "}},
		{"nothing is stored", file, []string{"2"}, exitDone, "no answer is stored\n", "", []string{ofOrder, ofTenant}, nil},
		{"without its parts", file, []string{"42", "--lock", "settlement"}, exitUsage, "", "want TENANT/ORDER-ID", []string{ofOrder, ofTenant}, nil},
		{"a long reason", file, []string{"1", "--reason", strings.Repeat("a", audit.MaxReason+1)}, exitUsage, "", "once forget: --reason has 501 bytes", []string{ofOrder, ofTenant}, nil},
		{"no right to the audit", narrow, []string{"1"}, exitDone, ofOrder + "  forgotten\n", "once forget: forgotten, and ordergate locks audit will not show it: writing to ordergate:audit: NOPERM", []string{ofTenant}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			bedtest.Check(t, client.FlushAll(t.Context()).Err())
			bedtest.Check(t, client.MSet(t.Context(), ofOrder, "a", ofTenant, "b").Err())
			code, stdout, stderr := command(t.Context(), append([]string{"once", "forget", "--config", tt.file}, tt.args...)...)
			if code != tt.code || !strings.Contains(stdout, tt.out) || !strings.Contains(stderr, tt.err) || (stderr == "") != (tt.err == "") {
				t.Errorf("exit code %d, stdout %q, stderr %q", code, stdout, stderr)
			}
			if n := client.Exists(t.Context(), tt.kept...).Val(); int(n) != len(tt.kept) || int(client.Exists(t.Context(), ofOrder, ofTenant).Val()) != len(tt.kept) {
				t.Errorf("kept %d of %q", n, tt.kept)
			}
			entries, err := audit.Read(t.Context(), client, 0)
			bedtest.Check(t, err)
			var logged []string
			for _, e := range entries {
				if e.Action == audit.Forgot && e.Who == operatorName() {
					logged = append(logged, e.Key+" "+e.Lock+" "+e.Reason)
				}
			}
			if fmt.Sprint(logged) != fmt.Sprint(tt.logged) {
				t.Errorf("the audit has %q, want %q", logged, tt.logged)
			}
		})
	}
}
