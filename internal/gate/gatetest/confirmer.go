package gatetest

import "context"

// Confirmer is a gate.Confirmer. It writes "confirm 42". Its fields must not change during
// a call.
type Confirmer struct {
	Journal *Journal // nil: none
	Orders  map[string]bool
	Err     error // of every call; nil: none
	Hangs   bool  // a call ends with its context only
}

// Exists implements gate.Confirmer.
func (c *Confirmer) Exists(ctx context.Context, id string) (bool, error) {
	c.Journal.Add("confirm ", id)
	if c.Hangs {
		<-ctx.Done()
		return false, ctx.Err()
	}
	return c.Orders[id], c.Err
}
