package testbed

import (
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

// defaultWatchdog is Redisson's own.
const defaultWatchdog = 30 * time.Second

// RedissonOptions says how a Java service with Redisson reaches its Redis.
type RedissonOptions struct {
	Addr    string // of the Redis, or of one node of a cluster, as "host:port"
	Cluster bool
	// Watchdog is the lease of a lock that is taken without one; Redisson renews
	// it at a third of it. 0: 30 s.
	Watchdog time.Duration
}

// Redisson is a running Java process with one client of Redisson, the program of
// tests/redisson/agent. What it does is said through its threads: see
// [Redisson.Thread]. Its methods are safe for concurrent use.
//
// Kill is a service that dies with its locks: nothing of it renews them any
// more. A restart is another client, with other owners and new threads.
type Redisson struct {
	*Process
	addr string
}

// Redisson starts the agent. The first start compiles it into .cache. It returns
// a [*MissingError] if there is no JDK, or if the jars were not fetched. The
// context bounds the start, the compiler included.
func (b *Bed) Redisson(ctx context.Context, opts RedissonOptions) (*Redisson, error) {
	java, err := lookPath("java", "java")
	if err != nil {
		return nil, err
	}
	classPath, err := b.redissonClasses(ctx)
	if err != nil {
		return nil, err
	}
	mode, watchdog := "single", opts.Watchdog
	if opts.Cluster {
		mode = "cluster"
	}
	if watchdog == 0 {
		watchdog = defaultWatchdog
	}
	args := func(port string) []string {
		return []string{
			// The cheap compiler and a small heap: the start is what a test waits for.
			"-XX:TieredStopAtLevel=1", "-Xmx256m",
			"-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
			"-cp", classPath, "Agent", port, mode, "redis://" + opts.Addr,
			strconv.FormatInt(watchdog.Milliseconds(), 10),
		}
	}
	r := &Redisson{}
	p := &Process{path: java, args: args("0")}
	p.ready = func(ctx context.Context, run *run) error {
		return run.says(ctx, javaStarted, &r.addr)
	}
	if err := b.launch(ctx, "redisson", p); err != nil {
		return nil, err
	}
	// A restart is on the same port, which may have to be waited for.
	p.args = args(port(r.addr))
	p.conflict = waitABit
	r.Process = p
	return r, nil
}

// jars returns the folder with the jars of the pom.xml in a folder, or a [*MissingError] with the name by
// which tools/fetch.py fetches them.
func (b *Bed) jars(dir, fetch string) (string, error) {
	pom, err := os.ReadFile(filepath.Join(dir, "pom.xml"))
	if err != nil {
		return "", fmt.Errorf("finding jars: %w", err)
	}
	name := fmt.Sprintf("%s-%x", filepath.Base(dir), sha256.Sum256(pom))[:len(filepath.Base(dir))+1+16] // so does tools/fetch.py
	jars := b.cache("jars", name)
	if _, err := os.Stat(jars); err != nil {
		return "", &MissingError{Program: ".cache/jars/" + name, Fetch: fetch}
	}
	return jars, nil
}

// redissonClasses returns the class path of the agent: its jars, and its classes,
// which are compiled if need be.
func (b *Bed) redissonClasses(ctx context.Context) (string, error) {
	dir := filepath.Join(b.root, "tests", "redisson")
	pomDir := filepath.Join(dir, os.Getenv("REDISSON")) // make matrix names another version
	fetch := "redisson"
	if pomDir != dir {
		fetch = "matrix"
	}
	jars, err := b.jars(pomDir, fetch)
	if err != nil {
		return "", err
	}
	sources, err := filepath.Glob(filepath.Join(dir, "agent", "*.java"))
	if err != nil {
		return "", fmt.Errorf("compiling the Redisson agent: %w", err)
	}
	classes, err := b.compileWithJars(ctx, "redisson", jars, sources)
	if err != nil {
		return "", fmt.Errorf("compiling the Redisson agent: %w", err)
	}
	return classes + string(filepath.ListSeparator) + filepath.Join(jars, "*"), nil
}
