package bedtest

import "sync"

// builds are the binaries that this process had compiled. The tests of one package want
// the same one up to a hundred times, and to find out that it is up to date costs Go
// most of a second of CPU.
var builds = buildCache{one: make(map[string]*build)}

// buildCache is safe for concurrent use.
type buildCache struct {
	mu  sync.Mutex
	one map[string]*build
}

// build is a binary that is compiled until that succeeds, and then no more.
type build struct {
	mu   sync.Mutex
	path string // "" before
}

// once returns the path that compile returned under this name. Others that want it
// meanwhile wait.
func (c *buildCache) once(name string, compile func() (string, error)) (path string, err error) {
	c.mu.Lock()
	b := c.one[name]
	if b == nil {
		b = new(build)
		c.one[name] = b
	}
	c.mu.Unlock()

	b.mu.Lock()
	defer b.mu.Unlock()
	if b.path == "" {
		b.path, err = compile()
	}
	return b.path, err
}
