package rules

import (
	"github.com/ordergate/ordergate/config"
	"github.com/ordergate/ordergate/internal/spelling"
)

// uuidAsIs matches a UUID with letters of one case.
const uuidAsIs = `[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|[0-9A-F]{8}(-[0-9A-F]{4}){3}-[0-9A-F]{12}`

// Twins are two IDs of a rule that a column takes for the same.
type Twins struct {
	One, Other string
	ByCase     bool // [config.ID].Case can make one of all such IDs
}

// FindTwins returns two texts that are different IDs, although a column takes them for the same; nil:
// there are none. Numbers have one spelling, as have UUIDs in one case.
func FindTwins(id config.ID, equal *spelling.Equality, same func(one, other string) bool) (*Twins, error) {
	expr := id.Pattern
	switch {
	case id.Format == config.FormatUUID && id.Case == config.CaseAsIs:
		expr = uuidAsIs
	case id.Format != config.FormatPattern:
		return nil, nil
	case id.FoldsCase():
		expr = "(?i:" + expr + ")"
	}
	find := func(id config.ID) (*Twins, error) {
		f, err := format(id)
		if err != nil {
			return nil, err
		}
		one, other, found, err := spelling.Find(expr, id.MinLength, id.FoldsCase(), equal, func(one, other string) bool {
			a, isOne := f.Canonical(one)
			b, isOther := f.Canonical(other)
			return isOne && isOther && a != b && same(one, other)
		})
		if err != nil || !found {
			return nil, err
		}
		return &Twins{One: one, Other: other}, nil
	}
	twins, err := find(id)
	if twins != nil && !id.FoldsCase() {
		id.Case = config.CaseLower
		others, err := find(id)
		if err != nil {
			return nil, err
		}
		twins.ByCase = others == nil
	}
	return twins, err
}
