package command

import (
	"context"
	"fmt"
	"math/rand/v2"

	"github.com/ordergate/ordergate/filter/exact"
	"github.com/ordergate/ordergate/internal/source"
)

// sampleReport summarizes a sample of the IDs, for an exact filter.
type sampleReport struct {
	IDs        int64 `json:"ids"`
	NotNumeric int64 `json:"not_numeric"` // a single one rules out an exact filter

	advice exact.Advice
}

// keptIDs is the number of IDs that readSample keeps. It is ten times the number that
// [exact.Advise] needs for an estimate within 10%.
const keptIDs = 100_000

// readSample reads a sample of any length in constant memory, and estimates the size of an
// exact filter from it.
func readSample(ctx context.Context, path string, ids uint64, rate float64) (*sampleReport, error) {
	if path == "-" {
		path = "/dev/stdin"
	}
	r := &sampleReport{}
	kept := make([]string, 0, 1024)
	// Each ID is kept with the same probability (Vitter, "Random Sampling with a Reservoir",
	// 1985, algorithm R). The seed is fixed, so a file always gives the same result.
	random := rand.New(rand.NewPCG(1, 2))
	report, err := source.CSV(path, source.Options{}).Read(ctx, func(id string) error {
		if _, number := exact.Parse(id); !number {
			r.NotNumeric++
		}
		r.IDs++
		if len(kept) < keptIDs {
			kept = append(kept, id)
		} else if at := random.Int64N(r.IDs); at < keptIDs {
			kept[at] = id
		}
		return nil
	})
	switch {
	case err != nil:
		return nil, err
	case report.Skipped > 0:
		return nil, fmt.Errorf("%s: %d lines are no order IDs, the first is %s", path, report.Skipped, report.First[0])
	case r.NotNumeric > 0:
		return r, nil
	}
	if r.advice, err = exact.Advise(kept, ids, rate); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return r, nil
}
