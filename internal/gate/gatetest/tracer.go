package gatetest

import (
	"context"
	"fmt"

	"github.com/ordergate/ordergate/internal/gate"
)

// Tracer is a gate.Tracer that reads what it takes, for the race detector.
type Tracer struct{}

// Context implements gate.Tracer.
func (Tracer) Context(ctx context.Context, _ string) context.Context { return ctx }

// Trace implements gate.Tracer.
func (Tracer) Trace(t *gate.Trace) { _ = fmt.Sprint(*t) }
