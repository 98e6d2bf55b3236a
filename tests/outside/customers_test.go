package outside

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"time"
)

// customer is one of the people who use the service as it is meant: they create an order,
// look at it, settle it, and look at another one, at an address of their own.
func (a *assault) customer(ctx context.Context, n int) {
	client := a.client(fmt.Sprintf("127.0.0.%d", 10+n))
	defer client.CloseIdleConnections()
	for ctx.Err() == nil {
		if id := a.create(ctx, client); id != "" {
			a.look(ctx, client, id)
			a.settle(ctx, client, id)
		}
		a.look(ctx, client, fmt.Sprint(seeded-rand.IntN(1000)))
		a.settle(ctx, client, fmt.Sprint(a.victim()))
		pause(ctx, time.Duration(200+rand.IntN(400))*time.Millisecond)
	}
}

// timed notes how long an answer took.
func (a *assault) timed(ctx context.Context, client *http.Client, what, method, target, body string) (int, http.Header, string) {
	begun := time.Now()
	status, header, text, err := a.send(ctx, client, method, target, body)
	if ctx.Err() != nil {
		return 0, nil, "" // the time is up
	}
	took := time.Since(begun)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.took[what] = append(a.took[what], took)
	result := fmt.Sprintf("people who %s: %d %s", what, status, header.Get("x-ordergate-verdict"))
	if err != nil {
		result = fmt.Sprintf("people who %s: %v", what, err)
	}
	a.counts[result]++
	return status, header, text
}

// create returns the ID of a new order, "" where there is none.
func (a *assault) create(ctx context.Context, client *http.Client) string {
	status, _, text := a.timed(ctx, client, "create", http.MethodPost, "/orders", `{"amount":5}`)
	var order struct{ OrderID json.Number }
	if status != http.StatusCreated || json.NewDecoder(strings.NewReader(text)).Decode(&order) != nil {
		return ""
	}
	return order.OrderID.String()
}

// look looks up an order that exists, which has to be there.
func (a *assault) look(ctx context.Context, client *http.Client, id string) {
	status, header, _ := a.timed(ctx, client, "look up", http.MethodGet, "/orders/"+id, "")
	if status == http.StatusNotFound {
		a.t.Errorf("order %s exists, and its lookup got 404 %q", id, header.Get("x-ordergate-verdict"))
	}
}

func (a *assault) settle(ctx context.Context, client *http.Client, id string) {
	a.timed(ctx, client, "settle", http.MethodPost, "/orders/"+id+"/settle", "")
}
