package bedtest

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// DocumentedUser returns the words after "user" of a user of Redis in docs/redis.md,
// whose password is "<name>-secret".
func DocumentedUser(tb testing.TB, name string) []string {
	tb.Helper()
	text, err := os.ReadFile(filepath.Join(New(tb).Root(), "docs", "redis.md"))
	Check(tb, err)
	line := regexp.MustCompile(`(?m)^user ` + name + ` .*$`).FindString(string(text))
	if line == "" {
		tb.Fatalf("docs/redis.md has no user %s", name)
	}
	return strings.Fields(strings.Replace(line, ">PASSWORD", ">"+name+"-secret", 1))[1:]
}

// DocumentedUserOnly returns arguments of Redis that let nobody in but the user
// ordergate of docs/redis.md.
func DocumentedUserOnly(tb testing.TB) []string {
	return append(append([]string{"--user"}, DocumentedUser(tb, "ordergate")...), "--user", "default", "off")
}
