package gatetest

import "github.com/ordergate/ordergate/internal/gate"

// Decisions is a gate.DecisionLog that drops what it takes: all decisions, or none.
type Decisions bool

// Wants implements gate.DecisionLog.
func (all Decisions) Wants(int, gate.Action, gate.Verdict) bool { return bool(all) }

// Write implements gate.DecisionLog.
func (Decisions) Write(*gate.LoggedDecision) {}
