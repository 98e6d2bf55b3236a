package loader

// HoldSnapshots keeps the snapshot's file busy until release is called.
func (u *Loader) HoldSnapshots() (release func()) {
	u.snapshots.busy <- struct{}{}
	return func() { <-u.snapshots.busy }
}

// SnapshotBytes returns the size of the last snapshot, 0 before the first.
func (u *Loader) SnapshotBytes() uint64 { return u.snapshots.shown.Load().bytes }

// SnapshotErrors returns how many snapshots have failed.
func (u *Loader) SnapshotErrors() uint64 { return u.snapshots.failed.Load() }
