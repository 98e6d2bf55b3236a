package rules

import (
	"strconv"

	"github.com/ordergate/ordergate/config"
	"github.com/ordergate/ordergate/internal/order"
)

// addTokens gives the rule of a settlement by something that is no order what stands for one: a
// hash of each token. Those behind the first are parts, so a request has to have all of them.
func addTokens(rule *order.Rule, s *config.Settle, secret config.Secret) {
	for i, place := range s.By {
		id, _ := located(place.ID())
		id.Format = order.Format{Kind: order.Hashed, Key: string(secret), AsHeader: id.In == order.InHeader}
		if i == 0 {
			rule.IDs = append(rule.IDs, id)
		} else {
			rule.Parts = append(rule.Parts, order.Part{Name: "by" + strconv.Itoa(i), ID: id})
		}
	}
}
