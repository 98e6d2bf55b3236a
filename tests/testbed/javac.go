package testbed

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// compileWithJars returns a directory with the classes of the sources. Its name has the hash of
// what goes in.
func (b *Bed) compileWithJars(ctx context.Context, name, jars string, sources []string) (string, error) {
	hash := sha256.New()
	fmt.Fprintln(hash, filepath.Base(jars)) // its name has a hash as well
	for _, source := range sources {
		text, err := os.ReadFile(source)
		if err != nil {
			return "", err
		}
		hash.Write(text)
	}
	classes := b.cache("java", fmt.Sprintf("%s-%x", name, hash.Sum(nil)[:8]))
	// Spring finds parameters by their names.
	return classes, b.javac(ctx, classes, append([]string{"-proc:none", "-parameters", "-cp", filepath.Join(jars, "*")}, sources...)...)
}

// javac compiles into a directory below .cache, unless it is there. The directory comes into being
// by a rename, so two compilers at once do no harm. The arguments are options and sources.
func (b *Bed) javac(ctx context.Context, classes string, args ...string) error {
	if _, err := os.Stat(classes); err == nil {
		return nil
	}
	javac, err := lookPath("javac", "java")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(b.cache("java"), 0o755); err != nil {
		return err
	}
	work, err := os.MkdirTemp(b.cache("java"), "work-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(work) }() // what stays is only clutter
	args = slices.Concat([]string{"--release", "17", "-d", work}, args)
	if out, err := exec.CommandContext(ctx, javac, args...).CombinedOutput(); err != nil {
		first, _, _ := strings.Cut(string(out), "\n")
		return fmt.Errorf("%w: %s", err, first)
	}
	// Of two at once, the first has the name; the classes are the same.
	if err := os.Rename(work, classes); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil
}
