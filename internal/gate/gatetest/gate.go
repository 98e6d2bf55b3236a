package gatetest

import (
	"time"

	"pgregory.net/rapid"

	"github.com/ordergate/ordergate/internal/gate"
)

// Gate returns a gate of policies that it has to accept.
func Gate(t rapid.TB, policies []gate.Policy, record gate.Recorder) *gate.Gate {
	t.Helper()
	g, err := gate.New(policies, record, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	return g
}
