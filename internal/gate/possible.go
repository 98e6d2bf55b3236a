package gate

// Possible returns the verdicts that a request may get before the backend has it, in their
// order. It is for a request that Open has not refused, and whose body Open has seen. Named: the
// request names an order.
func (c *Call) Possible(named bool) (list []Verdict) {
	p, dedup := c.policy, c.policy.dedup()
	if !named {
		dedup = nil
	}
	byOrder, byKey := c.hasOrder(), c.hasKey()
	locks := byOrder || byKey
	looks, compares := false, false // for a stored answer; at its request
	if c.once != nil {
		c.once.both(func(o *Once) {
			if len(o.Forget) == 0 {
				looks, compares = true, compares || o.Fingerprint && !o.Meanwhile || o.Key != nil // its host and order are compared
			}
		})
	}
	nothing := p.Lookup == nil || !named && p.Rule.Optional // nothing is looked up
	can := [Verdicts]bool{
		VerdictNone:        nothing && !locks,
		VerdictAbsent:      p.Lookup != nil && named,
		VerdictMaybe:       p.Lookup != nil && named && !locks,
		VerdictUnknown:     (!nothing || dedup != nil && !dedup.Refuse) && !locks,
		VerdictBusy:        byOrder,
		VerdictUnavailable: locks || dedup != nil && dedup.Refuse,
		VerdictOverloaded:  byOrder && p.Create == nil, // only settlements are limited
		VerdictAcquired:    locks,
		VerdictReplayed:    looks,
		VerdictDuplicate:   looks || dedup != nil,
		VerdictMismatch:    compares,
		VerdictInUse:       byKey,
		VerdictNotReady:    byOrder && p.Settle.Require != nil,
	}
	for v, possible := range can {
		if possible {
			list = append(list, Verdict(v))
		}
	}
	return list
}
