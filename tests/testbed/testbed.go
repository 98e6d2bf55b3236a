// Package testbed starts real servers on loopback for tests and for the demo:
// Redis, Envoy, the old order services of examples/legacy and ordergate
// itself.
//
// Start with [New]; every server belongs to a [Bed] and ends with it, even
// when this process is killed. The package does not know of testing: in a test
// use the subpackage bedtest, which cleans up and skips what is not installed.
// Fetching the servers is left to tools/fetch.py.
package testbed

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"sync"
)

// modulePath is the first line of the go.mod that marks the root of the
// checkout; the modules below it (tools, examples) have other names.
var modulePath = regexp.MustCompile(`(?m)^module github\.com/ordergate/ordergate$`)

var errClosed = errors.New("the testbed is closed")

// MissingError says that a program which a server needs is not on this
// machine. Its text names the command that fetches it.
type MissingError struct {
	Program string // such as "redis-server"
	Fetch   string // the argument of tools/fetch.py that brings it
}

// Error tells what is missing and what to run.
func (e *MissingError) Error() string {
	return fmt.Sprintf("%s is missing: run python3 tools/fetch.py %s", e.Program, e.Fetch)
}

// Bed is a set of running servers and the directory that holds their data and
// output. It is safe for concurrent use.
type Bed struct {
	dir  string
	root string // of the checkout

	mu        sync.Mutex // guards all below
	log       io.Writer
	processes []*Process
	names     map[string]int // how many processes have each name
	certs     *Certificates  // nil until asked for
	closed    bool
}

// New returns an empty bed whose servers keep their data and output below dir,
// which is made if need be and never removed. One line a start and a stop goes
// to log, which may be nil. The working directory must be in a checkout of the
// module: the programs and the old services are found from its root.
func New(dir string, log io.Writer) (*Bed, error) {
	root, err := moduleRoot()
	if err != nil {
		return nil, err
	}
	dir, err = filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("making the testbed's directory: %w", err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("making the testbed's directory: %w", err)
	}
	if log == nil {
		log = io.Discard
	}
	return &Bed{dir: dir, root: root, log: log, names: make(map[string]int)}, nil
}

// Root returns the absolute path of the checkout.
func (b *Bed) Root() string { return b.root }

// Dir returns the absolute path of the directory given to New.
func (b *Bed) Dir() string { return b.dir }

// Processes returns every server started so far, in that order, ended or not.
func (b *Bed) Processes() []*Process {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.processes)
}

// Close stops the servers, the last started first, and waits for them. It
// reports those that ended although nobody had asked, and those that Stop
// reports. Nothing can be started after it. A second call does nothing.
func (b *Bed) Close() error {
	b.mu.Lock()
	b.closed = true
	processes := b.processes
	b.processes = nil
	b.mu.Unlock()
	var errs []error
	for _, p := range slices.Backward(processes) {
		errs = append(errs, p.finish())
	}
	return errors.Join(errs...)
}

// add gives the process its name and output file, and makes it ours to stop.
func (b *Bed) add(kind string, p *Process) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return fmt.Errorf("starting %s: %w", kind, errClosed)
	}
	b.names[kind]++
	p.bed = b
	p.name = fmt.Sprintf("%s-%d", kind, b.names[kind])
	p.output = b.path(p.name + ".log")
	b.processes = append(b.processes, p)
	return nil
}

// remove forgets a process whose first start was in vain.
func (b *Bed) remove(p *Process) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.processes = slices.DeleteFunc(b.processes, func(q *Process) bool { return q == p })
}

// logf writes one line to the log.
func (b *Bed) logf(format string, args ...any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	fmt.Fprintf(b.log, format+"\n", args...)
}

// path returns the path of a file of ours.
func (b *Bed) path(name string) string { return filepath.Join(b.dir, name) }

// cache returns the path of a file below .cache, which tools/fetch.py fills.
func (b *Bed) cache(elem ...string) string {
	return filepath.Join(append([]string{b.root, ".cache"}, elem...)...)
}

// lookPath finds a program on the PATH, or says how to fetch it.
func lookPath(program, fetch string) (string, error) {
	path, err := exec.LookPath(program)
	if err != nil {
		return "", &MissingError{Program: program, Fetch: fetch}
	}
	return path, nil
}

// moduleRoot walks up from the working directory to the module's go.mod.
func moduleRoot() (string, error) {
	start, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("finding the checkout: %w", err)
	}
	for dir := start; ; dir = filepath.Dir(dir) {
		text, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		if err == nil && modulePath.Match(text) {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("finding the checkout: %s is not in one: run it from the repository", start)
		}
	}
}

// get fetches a URL and returns the status and the body. Its connection is
// closed: one kept alive would outlive the server and look like a leak.
func get(ctx context.Context, url string) (int, string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, "", err
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, "", fmt.Errorf("reading the answer of %s: %w", url, err)
	}
	return resp.StatusCode, string(body), nil
}
