package testbed

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
)

var (
	phpStarted  = regexp.MustCompile(`\(http://(127\.0\.0\.1:\d+)\) started`)
	javaStarted = regexp.MustCompile(`(?m)^listening on (127\.0\.0\.1:\d+)$`)
)

// Orders is a running order service of examples/legacy: the backend that
// nobody wants to change.
type Orders struct {
	*Process
	addr string
	data string
}

// PHP starts the PHP order service with its files in dataDir, the orders 1 to
// seed, and workers processes that answer requests (1 if less). It returns a
// [*MissingError] if php is not installed. The context bounds the start.
func (b *Bed) PHP(ctx context.Context, dataDir string, seed, workers int) (*Orders, error) {
	php, err := lookPath("php", "php")
	if err != nil {
		return nil, err
	}
	dir := filepath.Join(b.root, "examples", "legacy", "php")
	args := func(addr string) []string {
		return []string{"-S", addr, "-t", dir, filepath.Join(dir, "index.php")}
	}
	p := &Process{path: php, env: ordersEnv(dataDir, seed)}
	if workers > 1 {
		// PHP counts the workers besides the first process.
		p.env = append(p.env, "PHP_CLI_SERVER_WORKERS="+strconv.Itoa(workers-1))
	}
	// On SIGINT the first process waits for its workers; any other signal
	// would leave their bodies to whoever adopts them.
	p.stop = syscall.SIGINT
	p.forks = workers > 1
	return b.orders(ctx, "php", p, dataDir, args, phpStarted)
}

// Java starts the Java order service with its files in dataDir and the orders
// 1 to seed. The first start compiles it into .cache. It returns a
// [*MissingError] if there is no JDK. The context bounds the start, not the
// compiler.
func (b *Bed) Java(ctx context.Context, dataDir string, seed int) (*Orders, error) {
	java, err := lookPath("java", "java")
	if err != nil {
		return nil, err
	}
	classes, err := b.compileJava(ctx)
	if err != nil {
		return nil, err
	}
	args := func(addr string) []string {
		port := addr[strings.LastIndexByte(addr, ':')+1:]
		return []string{
			// The cheap compiler and a small heap: the start is what a test waits for.
			"-XX:TieredStopAtLevel=1", "-Xmx256m",
			// The JDK's web server delays some answers by 40 ms otherwise (Nagle), and
			// of the connections that an Envoy keeps it closes those over 200 without a
			// word, which the next request on one sees as a 503.
			"-Dsun.net.httpserver.nodelay=true", "-Dsun.net.httpserver.maxIdleConnections=2000",
			"-cp", classes, "OrderService", port,
		}
	}
	p := &Process{path: java, env: ordersEnv(dataDir, seed)}
	return b.orders(ctx, "java", p, dataDir, args, javaStarted)
}

// URL returns the service's address as "http://host:port". It stays the same
// over a restart.
func (o *Orders) URL() string { return "http://" + o.addr }

// Addr returns the service's "host:port".
func (o *Orders) Addr() string { return o.addr }

// AccessLog returns a line for every request that reached the service, as
// "METHOD target status". The line is written before the answer is.
func (o *Orders) AccessLog() ([]string, error) {
	return readLines(filepath.Join(o.data, "access.log"))
}

// Payments returns a line for every payment made, as "order=ID amount=N".
func (o *Orders) Payments() ([]string, error) {
	return readLines(filepath.Join(o.data, "payments.log"))
}

// PaymentsOf counts the payments made for one order. More than one is the
// damage that settling under a lock prevents.
func (o *Orders) PaymentsOf(id int64) (int, error) {
	lines, err := o.Payments()
	n := 0
	for _, line := range lines {
		if strings.HasPrefix(line, fmt.Sprintf("order=%d ", id)) {
			n++
		}
	}
	return n, err
}

// orders starts the process on a free port, which the service prints.
func (b *Bed) orders(ctx context.Context, kind string, p *Process, dataDir string, args func(addr string) []string, started *regexp.Regexp) (*Orders, error) {
	data, err := filepath.Abs(dataDir)
	if err != nil {
		return nil, fmt.Errorf("starting %s: %w", kind, err)
	}
	if err := os.MkdirAll(data, 0o755); err != nil {
		return nil, fmt.Errorf("starting %s: %w", kind, err)
	}
	o := &Orders{data: data}
	p.args = args("127.0.0.1:0")
	// No request is made: it would be in the access log.
	p.ready = func(ctx context.Context, r *run) error {
		return r.says(ctx, started, &o.addr)
	}
	if err := b.launch(ctx, kind, p); err != nil {
		return nil, err
	}
	// A restart is on the same port, which may have to be waited for.
	p.args = args(o.addr)
	p.conflict = waitABit
	o.Process = p
	return o, nil
}

// compileJava returns a directory with the classes of the Java service. Its name has the hash of
// the source.
func (b *Bed) compileJava(ctx context.Context) (string, error) {
	source := filepath.Join(b.root, "examples", "legacy", "java", "OrderService.java")
	text, err := os.ReadFile(source)
	if err != nil {
		return "", fmt.Errorf("compiling the Java order service: %w", err)
	}
	classes := b.cache("java", fmt.Sprintf("%x", sha256.Sum256(text))[:16])
	if err := b.javac(ctx, classes, source); err != nil {
		return "", fmt.Errorf("compiling the Java order service: %w", err)
	}
	return classes, nil
}

func ordersEnv(dataDir string, seed int) []string {
	data, err := filepath.Abs(dataDir)
	if err != nil {
		data = dataDir // orders reports it
	}
	return []string{"ORDERS_DATA=" + data, "ORDERS_SEED=" + strconv.Itoa(seed)}
}

// readLines returns the lines of a file; a file that is not there has none.
func readLines(path string) ([]string, error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading what the order service did: %w", err)
	}
	return strings.FieldsFunc(string(text), func(c rune) bool { return c == '\n' }), nil
}
