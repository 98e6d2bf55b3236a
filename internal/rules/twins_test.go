package rules

import (
	"regexp"
	"testing"

	"github.com/ordergate/ordergate/internal/order"
	"github.com/ordergate/ordergate/internal/spelling"
)

// TestFindTwinsAsksLittle has a database that takes no two texts for one, contrary to what is said of its
// column. It is not asked about each of thousands of pairs.
func TestFindTwinsAsksLittle(t *testing.T) {
	asked := 0
	column := spelling.Column{Name: "code", IsNumber: true, Equality: *spelling.Bytewise(), Same: func(string, string) (bool, error) {
		asked++
		return false, nil
	}}
	column.Equality.Tail = true
	format := order.Format{
		Kind: order.Pattern, Min: 1, Max: 64, Pattern: regexp.MustCompile(`\A(?:[1-9][0-9]{0,17}(-[0-9A-Za-z]{1,100})?)\z`),
	}
	all, err := FindTwins([]order.Format{format}, []spelling.Column{column})
	if len(all) > 0 || err != nil || asked == 0 || asked > 2*maxAsked {
		t.Errorf("found %v (%v) by %d questions", all, err, asked)
	}
}
