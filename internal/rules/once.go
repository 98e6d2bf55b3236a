package rules

import (
	"slices"
	"strings"

	"github.com/ordergate/ordergate/config"
	"github.com/ordergate/ordergate/internal/gate"
)

// once compiles what all stored answers have.
func once(o *config.Once) *gate.Once {
	scope := make([]string, len(o.Scope))
	for i, part := range o.Scope {
		scope[i] = strings.TrimPrefix(part, config.OnceHeader)
	}
	slices.Sort(scope) // the order of scopes does not matter
	return &gate.Once{
		Scope: scope,
		Name:  o.Name, Keep: o.Keep, Stores: o.StoresStatus, MaxBody: o.MaxBody, Headers: o.Headers,
		Fingerprint: o.Fingerprint == config.FingerprintBody, Forget: o.Forget,
		Duplicate: reply(o.Duplicate), Mismatch: reply(o.Mismatch),
	}
}

// onceByKey compiles answers that are stored by a key in the request, without the lock.
func onceByKey(o *config.Once) *gate.Once {
	compiled := once(o)
	compiled.Name = config.OnceAnswer // the lock is the rule's own
	compiled.InUse, compiled.Missing, compiled.Unavailable = reply(o.InUse), reply(o.Missing), reply(o.Unavailable)
	compiled.Key = &gate.OnceKey{Required: o.Required}
	for _, part := range o.By {
		header := strings.TrimPrefix(part, config.OnceHeader) // or the name of Idempotency-Key
		if part == config.OnceBody {
			header = ""
		}
		compiled.Key.Parts = append(compiled.Key.Parts, header)
	}
	compiled.Key.Scope, compiled.Scope = compiled.Scope, nil
	return compiled
}
