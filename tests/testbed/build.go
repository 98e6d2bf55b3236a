package testbed

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// stripped leaves out what only debuggers read, which takes a third of the linker's time.
const stripped = "-ldflags=-s -w"

// Build compiles the command of a package, such as "./cmd/sidecar", with the
// race detector if asked, and returns the path of the binary below .cache/bin.
// It is quick when nothing changed, and safe when several processes build or
// run the same command: they wait for each other, and the binary is replaced
// in one step.
func (b *Bed) Build(ctx context.Context, pkg string, race bool) (string, error) {
	name, flags := strings.ReplaceAll(strings.TrimPrefix(pkg, "./"), "/", "-"), []string{stripped}
	if race {
		name, flags = name+"-race", append(flags, "-race")
	}
	binary, err := b.build(ctx, pkg, name, flags)
	if err != nil {
		return "", fmt.Errorf("building %s: %w", pkg, err)
	}
	return binary, nil
}

// build compiles a package into a file of that name.
func (b *Bed) build(ctx context.Context, pkg, name string, flags []string) (string, error) {
	args := append([]string{"build"}, flags...)
	// Go leaves a binary alone that is up to date, but only where it put it,
	// and it puts a new one there in more than one step. So it has a place of
	// its own, and a link to that is what gets run.
	built, binary := b.cache("build", name), b.cache("bin", name)
	for _, dir := range []string{filepath.Dir(built), filepath.Dir(binary)} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return "", err
		}
	}
	unlock, err := lockFile(built + ".lock")
	if err != nil {
		return "", err
	}
	defer unlock()
	cmd := exec.CommandContext(ctx, "go", append(args, "-o", built, pkg)...)
	cmd.Dir = b.root
	if out, err := cmd.CombinedOutput(); err != nil {
		text := strings.ReplaceAll(strings.TrimSpace(string(out)), "\n", " | ")
		return "", fmt.Errorf("go build: %w: %s", err, text)
	}
	temp := binary + ".new"
	if err := removeIfThere(temp); err != nil {
		return "", err
	}
	if err := os.Link(built, temp); err != nil {
		return "", err
	}
	// Renaming a link over another one of the same file does nothing and
	// leaves both, hence the removal above.
	if err := os.Rename(temp, binary); err != nil {
		return "", err
	}
	return binary, nil
}
