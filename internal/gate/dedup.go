package gate

import (
	"context"

	"github.com/ordergate/ordergate/internal/presence"
)

// Confirmer looks orders up where they are stored. It is safe for concurrent use.
type Confirmer interface {
	// Exists reports whether an order is stored now. It bounds its own time, and blocks
	// until ctx ends at most. It returns an error if it could not look the order up. It may
	// keep the ID after it has returned.
	Exists(ctx context.Context, id string) (bool, error)
}

// Dedup refuses a create whose request names an order that exists. A filter alone is not
// enough for that: its Maybe may be wrong, and the create of a new order must go on.
type Dedup struct {
	Filter      Lookups   // only Absent counts: the order is new
	Confirm     Confirmer // decides about the others; nil: they cannot be looked up
	Refuse      bool      // refuse a create that cannot be confirmed; otherwise it goes on
	Duplicate   Reply
	Unavailable Reply // with Refuse
}

// Decide returns the verdict on a create of the order: VerdictNone if it is new,
// VerdictDuplicate if it exists. Otherwise the order could not be looked up: then the
// verdict is VerdictUnavailable with Refuse, and VerdictUnknown without. It blocks until
// ctx ends at most.
//
// The verdict is about the moment of the call. So a caller that holds the order's lock
// decides again: an earlier verdict may be of the time before another create of the order.
func (d *Dedup) Decide(ctx context.Context, id string) Verdict {
	if d.Filter.Query(ctx, id) == presence.Absent {
		return VerdictNone
	}
	if d.Confirm != nil {
		switch exists, err := d.Confirm.Exists(ctx, id); {
		case err == nil && exists:
			return VerdictDuplicate
		case err == nil:
			return VerdictNone
		}
	}
	if d.Refuse {
		return VerdictUnavailable
	}
	return VerdictUnknown
}

// dedup returns the dedup of a rule; nil: it has none.
func (p *Policy) dedup() *Dedup {
	if p.Create == nil {
		return nil
	}
	return p.Create.Dedup
}
