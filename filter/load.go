package filter

import (
	"context"
	"fmt"
)

// Source reads the IDs of existing orders.
type Source interface {
	// IDs calls yield with every ID and returns the first error, including yield's. Its errors
	// name the source.
	IDs(ctx context.Context, yield func(id string) error) error
}

// Load adds every ID of the sources and makes the filter ready. It blocks until they are read,
// and returns the first error. The filter is then in the state unknown and keeps what was read;
// Load may be called again. Without sources the filter is ready at once: for orders that are
// all in the change log.
//
// It may run at any time. Orders that are created during the load arrive by Learn and by the
// change log, which the reader follows from its start. A filter that was ready is loading
// meanwhile. Load clears the doubts from before the call that need [ByReload] at most.
func (f *Filter) Load(ctx context.Context, sources ...Source) error {
	f.loadMu.Lock()
	defer f.loadMu.Unlock()
	soFar := f.markDoubts()
	f.setStatus(&status{state: StateLoading, reason: "reading its sources"})
	for _, source := range sources {
		err := source.IDs(ctx, func(id string) error {
			f.Add(id)
			return nil
		})
		if err != nil {
			f.setStatus(&status{state: StateUnknown, reason: err.Error()})
			return fmt.Errorf("filter %s: loading: %w", f.name, err)
		}
	}
	f.clearDoubts(ctx, soFar, ByReload)
	if f.setStatus(&status{state: StateReady}) && f.opts.Remote == nil {
		f.log.Info("filter is ready", "ids", f.Count(), "capacity", f.opts.Capacity)
	}
	return nil
}
