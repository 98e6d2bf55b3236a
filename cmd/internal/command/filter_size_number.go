package command

import (
	"errors"
	"strconv"
	"strings"

	"github.com/ordergate/ordergate/internal/lazyregexp"
)

var errNoNumber = errors.New("not a number")

// plainNumber matches a decimal number as YAML and Go write it, without a sign. Underscores
// may separate digits.
var plainNumber = lazyregexp.New(`^([0-9](_?[0-9])*)?(\.[0-9]+)?([eE][-+]?[0-9]{1,3})?$`)

// parseNumber reads a number such as 0.001, 2e8 or 200_000_000.
func parseNumber(text string) (float64, error) {
	if text == "" || !plainNumber.MatchString(text) {
		return 0, errNoNumber
	}
	return strconv.ParseFloat(strings.ReplaceAll(text, "_", ""), 64)
}

// parseCount is parseNumber for whole numbers below 2^53.
func parseCount(text string) (uint64, error) {
	n, err := parseNumber(text)
	if err != nil || n >= 1<<53 || n != float64(uint64(n)) {
		return 0, errNoNumber
	}
	return uint64(n), nil
}

// byteUnits holds the units of sizes. Longer names come first, because parseBytes takes the
// first unit that is a suffix.
var byteUnits = [...]struct {
	name  string
	bytes float64
}{
	{"TiB", 1 << 40}, {"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10},
	{"TB", 1e12}, {"GB", 1e9}, {"MB", 1e6}, {"kB", 1e3}, {"B", 1},
}

// parseBytes reads a size such as 1.5GB, in bytes.
func parseBytes(text string) (uint64, error) {
	for _, unit := range byteUnits {
		number, has := strings.CutSuffix(text, unit.name)
		if !has {
			continue
		}
		n, err := parseNumber(strings.TrimRight(number, " "))
		if err != nil || n*unit.bytes >= 1<<53 {
			return 0, errNoNumber
		}
		return uint64(n * unit.bytes), nil
	}
	return 0, errNoNumber
}
