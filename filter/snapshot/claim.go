package snapshot

import (
	"fmt"
	"os"
)

// Claim is the right to write snapshots to a path, among the processes that ask for
// it. Reading needs none.
type Claim struct{ file *os.File }

// NewClaim takes the right at once, or says that another process has it. It is held
// by a lock on a file beside the snapshot, with ".lock" behind its path, which stays
// there. It ends with Release, or with the process, whatever the end of that.
func NewClaim(path string) (*Claim, error) {
	f, err := os.OpenFile(path+".lock", os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("claiming snapshot %s: %w", path, err)
	}
	if err := lock(f); err != nil {
		f.Close()
		return nil, fmt.Errorf("claiming snapshot %s: %w: give each process a path of its own", path, err)
	}
	return &Claim{f}, nil
}

// Release gives the right up.
func (c *Claim) Release() { c.file.Close() }
