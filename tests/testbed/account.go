package testbed

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"strconv"
	"syscall"
)

// account is another user of this machine, for a server that refuses to be root.
type account struct{ uid, gid int }

// lesserAccount returns the first of the named users that this machine has, and
// nil when we are not root: then a server runs as we do.
func lesserAccount(names ...string) (*account, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	for _, name := range names {
		u, err := user.Lookup(name)
		var unknown user.UnknownUserError
		if errors.As(err, &unknown) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("looking up user %s: %w", name, err)
		}
		uid, err := strconv.Atoi(u.Uid)
		if err != nil {
			return nil, fmt.Errorf("looking up user %s: %w", name, err)
		}
		gid, err := strconv.Atoi(u.Gid)
		if err != nil {
			return nil, fmt.Errorf("looking up user %s: %w", name, err)
		}
		return &account{uid, gid}, nil
	}
	return nil, fmt.Errorf("this machine has none of the users %q", names)
}

// own gives files to the account; nil, which is ourselves, owns them already.
func (a *account) own(paths ...string) error {
	if a == nil {
		return nil
	}
	for _, path := range paths {
		if err := os.Chown(path, a.uid, a.gid); err != nil {
			return err
		}
	}
	return nil
}

// apply has a command, whose SysProcAttr is set, run as the account. A test's
// directory lets only its owner pass: the command may pass all the same.
func (a *account) apply(cmd *exec.Cmd) {
	if a == nil {
		return
	}
	cmd.Dir = "/" // entered before the right to pass is there
	cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(a.uid), Gid: uint32(a.gid)}
	passEverywhere(cmd.SysProcAttr)
}
