//go:build unix && !solaris && !netbsd && !openbsd

package engine

import "syscall"

// freeBytes returns the room that a user has on the disk of a directory.
func freeBytes(dir string) (n uint64, known bool) {
	var s syscall.Statfs_t
	if err := syscall.Statfs(dir, &s); err != nil {
		return 0, false
	}
	return uint64(s.Bavail) * uint64(s.Bsize), true //nolint:unconvert // other systems have other types
}
