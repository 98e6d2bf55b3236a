package extauthz

import (
	"fmt"
	"sync"
	"testing"

	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
)

// TestDescribed has many checks at once, over a real connection: the memory of a reply is used again when
// gRPC has sent it, and no check gets another one's metadata.
func TestDescribed(t *testing.T) {
	t.Parallel()
	client := authv3.NewAuthorizationClient(dial(t, newServer(t)))
	var wg sync.WaitGroup
	for worker := range 16 {
		wg.Go(func() {
			for i := range 200 {
				id := fmt.Sprintf("%d%09d", worker+1, i)
				r, err := client.Check(t.Context(), checkRequest("/orders/"+id, nil))
				if err != nil {
					t.Error(err)
					return
				}
				fields := r.GetDynamicMetadata().GetFields()
				for name, want := range map[string]string{"rule": "path", "action": "lookup", "verdict": "absent", "order": id} {
					if got := fields[name].GetStringValue(); got != want {
						t.Errorf("order %s: %s is %q, want %q", id, name, got, want)
					}
				}
				if len(fields) != 4 || r.GetDeniedResponse().GetStatus().GetCode() != 404 {
					t.Errorf("order %s: %v", id, r)
				}
			}
		})
	}
	wg.Wait()
}
