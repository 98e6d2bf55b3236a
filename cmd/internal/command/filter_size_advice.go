package command

import (
	"fmt"

	"github.com/ordergate/ordergate/config"
	"github.com/ordergate/ordergate/filter/bloom"

	"github.com/ordergate/ordergate/internal/admin"
)

// recommended is the kind that fits best.
type recommended struct {
	Kind   string  `json:"kind"`
	Layout *string `json:"layout"` // of kind local
	Shards *int    `json:"shards"` // of a kind in Redis
	Reason string  `json:"reason"`
}

// recommend chooses a kind. A filter in memory answers without a round trip, so it comes
// first if it fits. recommend returns nil if no kind fits.
func (q *sizeRequest) recommend(kinds []kindSize) *recommended {
	byName := make(map[string]*kindSize)
	for i := range kinds {
		byName[kinds[i].name()] = &kinds[i]
	}
	fits := func(k *kindSize) bool { return k.Problem == nil && k.ProcessBytes <= q.limit }
	limit := admin.SizeText(q.limit)

	exact, local := byName[config.FilterExact], byName[config.FilterLocal+", "+q.layout()]
	if fits(exact) && q.sample.advice.ExactFits() {
		return &recommended{Kind: exact.Kind, Reason: fmt.Sprintf(
			"the sample's numbers lie so close together that %s hold every one, which is no more than a Bloom filter's %s, and no absent number passes",
			admin.SizeText(exact.ProcessBytes), admin.SizeText(local.ProcessBytes))}
	}
	if fits(local) {
		return &recommended{Kind: local.Kind, Layout: local.Layout, Reason: fmt.Sprintf(
			"%s in each process are within the memory limit of %s, and a lookup waits for no Redis%s",
			admin.SizeText(local.ProcessBytes), limit, q.hint())}
	}
	if classic := byName[config.FilterLocal+", "+string(bloom.Classic)]; fits(classic) {
		return &recommended{Kind: classic.Kind, Layout: classic.Layout, Reason: fmt.Sprintf(
			"%s in each process are within the memory limit of %s, which those of layout blocked are not%s",
			admin.SizeText(classic.ProcessBytes), limit, q.hint())}
	}
	for _, kind := range []string{config.FilterBitmap, config.FilterBloom} {
		k := byName[kind]
		if !fits(k) {
			continue
		}
		shards := "1 shard"
		if *k.Shards > 1 {
			shards = fmt.Sprintf("%d shards", *k.Shards)
		}
		return &recommended{Kind: kind, Shards: k.Shards, Reason: fmt.Sprintf(
			"a local one takes %s in each process, past the memory limit of %s, and this %s in Redis for all of them, in %s%s",
			admin.SizeText(local.ProcessBytes), limit, admin.SizeText(k.RedisBytes), shards, q.hint())}
	}
	return nil
}

// layout returns the default layout of a local filter.
func (q *sizeRequest) layout() string {
	size, err := bloom.Params{Capacity: q.ids, FalsePositiveRate: q.rate}.Size()
	if err != nil {
		return string(bloom.Blocked)
	}
	return string(size.Layout)
}

// hint explains why the recommendation is not an exact filter.
func (q *sizeRequest) hint() string {
	switch {
	case q.sample == nil:
		return "; if the IDs are numbers, try --sample"
	case q.sample.NotNumeric > 0:
		return ""
	}
	return fmt.Sprintf("; an exact one would take %.2f bytes an ID", q.sample.advice.Exact)
}
