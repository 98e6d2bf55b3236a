package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/ordergate/ordergate/tests/testbed"
)

const (
	// seeded is how many orders each service begins with: 1 to seeded.
	seeded = 1000
	// phpWorkers is how many requests PHP answers at the same time. The Java
	// service has 64 threads.
	phpWorkers = 16
)

// side is one of the old services with what stands in front of it. Each has an
// ordergate and a Redis of its own, as both services number their orders from 1.
type side struct {
	name   string // as in the table
	dir    string // holds the service's data and its list of orders
	orders *testbed.Orders
	redis  *testbed.Redis
	envoy  *testbed.Envoy // the one with ordergate; nil before attach
	plain  string         // URL of the Envoy without ordergate
	gated  string         // URL of the Envoy with ordergate
	admin  string         // URL of ordergate's admin listener
}

// newSides returns the sides, with the addresses where their ordergates will listen for operators.
func newSides(bed *testbed.Bed) ([]*side, error) {
	sides := []*side{{name: "PHP"}, {name: "Java"}}
	for _, s := range sides {
		s.dir = filepath.Join(bed.Dir(), strings.ToLower(s.name))
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, fmt.Errorf("looking for a free port: %w", err)
		}
		s.admin = "http://" + listener.Addr().String()
		defer listener.Close() // not before the next one has another port
	}
	return sides, nil
}

// start starts the service, the Redis that ordergate will use, and an Envoy in front that does not know
// of ordergate.
func (s *side) start(ctx context.Context, bed *testbed.Bed, progress *screen) error {
	err := progress.step(s.name+" order service", func() (_ string, err error) {
		if s.orders, err = s.startOrders(ctx, bed); err != nil {
			return "", err
		}
		return s.orders.Addr(), nil
	})
	if err != nil {
		return err
	}
	if err := s.startPlain(ctx, bed, progress); err != nil {
		return err
	}
	return progress.step("Redis for "+s.name, func() (_ string, err error) {
		if s.redis, err = bed.Redis(ctx); err != nil {
			return "", err
		}
		return s.redis.Addr(), nil
	})
}

func (s *side) startOrders(ctx context.Context, bed *testbed.Bed) (*testbed.Orders, error) {
	if s.name == "PHP" {
		return bed.PHP(ctx, s.dir, seeded, phpWorkers)
	}
	return bed.Java(ctx, s.dir, seeded)
}

// startPlain starts the Envoy to compare with: that of the example, without the
// two filters of ordergate.
func (s *side) startPlain(ctx context.Context, bed *testbed.Bed, progress *screen) error {
	return progress.step("Envoy for "+s.name, func() (string, error) {
		// The filters that use these two addresses are removed.
		config, err := bed.EnvoyExample("127.0.0.1:1", "127.0.0.1:1", s.orders.Addr())
		if err != nil {
			return "", err
		}
		if config, err = withoutOrdergate(config); err != nil {
			return "", err
		}
		envoy, err := bed.Envoy(ctx, config)
		if err != nil {
			return "", err
		}
		addr, err := envoy.ListenerAddr(ctx, "orders")
		s.plain = "http://" + addr
		return addr, err
	})
}

// attachment puts an ordergate in front of a service. It is told of the seeded orders.
type attachment func(ctx context.Context, bed *testbed.Bed, s *side, progress *screen) error

// build compiles ordergate, which takes a while the first time.
func build(ctx context.Context, bed *testbed.Bed, progress *screen, asModule bool) (attachment, error) {
	var path string
	compile, attach := func() (string, error) { return bed.Build(ctx, "./cmd/sidecar", false) }, beside
	if asModule {
		compile, attach = func() (string, error) { return bed.Module(ctx) }, inside
	}
	err := progress.step("building ordergate", func() (_ string, err error) {
		path, err = compile()
		return "", err
	})
	return func(ctx context.Context, bed *testbed.Bed, s *side, progress *screen) error {
		return attach(ctx, bed, s, path, progress)
	}, err
}

// gateConfig returns ordergate's configuration.
func (s *side) gateConfig(bed *testbed.Bed) (string, error) {
	ids, err := s.writeIDs()
	if err != nil {
		return "", err
	}
	config, err := bed.GateExample(s.redis.Addr(), ids)
	if err != nil {
		return "", err
	}
	const admin = "admin: 127.0.0.1:0"
	if strings.Count(config, admin) != 1 {
		return "", fmt.Errorf("ordergate.yaml does not have %q once", admin)
	}
	return withOnce(strings.Replace(config, admin, "admin: "+strings.TrimPrefix(s.admin, "http://"), 1))
}

// add tells ordergate of orders that were created without it.
func (s *side) add(ctx context.Context, created []int64) error {
	ids := make([]string, len(created))
	for i, id := range created {
		ids[i] = strconv.FormatInt(id, 10)
	}
	body, err := json.Marshal(map[string]any{"ids": ids})
	if err != nil {
		return err
	}
	c := newClient(s.admin, 1)
	defer c.close()
	x := &exchange{method: "POST", path: "/filters/orders/ids", body: string(body)}
	if c.send(ctx, x); x.status != 200 {
		return fmt.Errorf("telling ordergate of orders: %s", x.describe())
	}
	return nil
}

// withOnce adds what the fourth act is about to the configuration of the example: the answer
// of a settlement is given again, and that of a create to whoever sends the same
// Idempotency-Key.
func withOnce(config string) (string, error) {
	for old, edited := range map[string]string{
		"settle: {lock: settlement}":      "settle: {lock: settlement, once: {}}",
		"learn: {response_json: orderId}": "learn: {response_json: orderId}, once: {wait: {up_to: 10s}}",
	} {
		if strings.Count(config, old) != 1 {
			return "", fmt.Errorf("ordergate.yaml does not have %q once", old)
		}
		config = strings.Replace(config, old, edited, 1)
	}
	return config, nil
}

// beside starts the sidecar, and the Envoy of the example that asks it.
func beside(ctx context.Context, bed *testbed.Bed, s *side, binary string, progress *screen) error {
	var authz, proc string
	err := progress.step("ordergate for "+s.name, func() (string, error) {
		config, err := s.gateConfig(bed)
		if err != nil {
			return "", err
		}
		gate, err := bed.Gate(ctx, binary, config)
		if err != nil {
			return "", err
		}
		for name, addr := range map[string]*string{"authz": &authz, "proc": &proc} {
			if *addr, err = gate.Addr(ctx, name); err != nil {
				return "", err
			}
		}
		return authz, nil
	})
	if err != nil {
		return err
	}
	return progress.step("Envoy with ordergate for "+s.name, func() (string, error) {
		config, err := bed.EnvoyExample(authz, proc, s.orders.Addr())
		if err != nil {
			return "", err
		}
		if s.envoy, err = bed.Envoy(ctx, config); err != nil {
			return "", err
		}
		return s.listens(ctx)
	})
}

// inside starts the Envoy of the example that has ordergate inside.
func inside(ctx context.Context, bed *testbed.Bed, s *side, library string, progress *screen) error {
	return progress.step("Envoy and ordergate for "+s.name, func() (string, error) {
		config, err := s.gateConfig(bed)
		if err != nil {
			return "", err
		}
		envoy, gate, err := bed.EnvoyWithModule(ctx, library, config, func(file string) (string, error) {
			return bed.ModuleExample(file, s.orders.Addr())
		})
		if err != nil {
			return "", err
		}
		s.envoy = envoy
		if err := gate.WaitReady(ctx); err != nil {
			return "", err
		}
		return s.listens(ctx)
	})
}

// listens notes where clients reach the Envoy with ordergate.
func (s *side) listens(ctx context.Context) (string, error) {
	addr, err := s.envoy.ListenerAddr(ctx, "orders")
	s.gated = "http://" + addr
	return addr, err
}

// writeIDs writes the file that ordergate reads at its start: the orders that the service begins with,
// one ID a line.
func (s *side) writeIDs() (path string, err error) {
	var text strings.Builder
	for id := range seeded {
		fmt.Fprintln(&text, id+1)
	}
	path = filepath.Join(s.dir, "ids.csv")
	if err := os.WriteFile(path, []byte(text.String()), 0o600); err != nil {
		return "", fmt.Errorf("writing the list of orders: %w", err)
	}
	return path, nil
}

// ordergateParts are the names, in examples/envoy/envoy.yaml, of what is there
// for ordergate: four filters and the clusters that they ask.
var ordergateParts = []string{
	"envoy.filters.http.ext_authz", "envoy.filters.http.ext_proc", "ordergate.guard", "ordergate.answers",
	"ordergate-authz", "ordergate-proc",
}

// withoutOrdergate returns an Envoy configuration without ordergate's parts. All
// else stays, so that a comparison of the two shows ordergate alone. It is an
// error if a part is not there.
func withoutOrdergate(config string) (string, error) {
	var tree map[string]any
	if err := yaml.Unmarshal([]byte(config), &tree); err != nil {
		return "", fmt.Errorf("reading the Envoy example: %w", err)
	}
	removed := make(map[string]bool)
	pruned := prune(tree, removed)
	for _, part := range ordergateParts {
		if !removed[part] {
			return "", fmt.Errorf("taking ordergate out of the Envoy example: it has no %s: name it as in examples/envoy/envoy.yaml", part)
		}
	}
	text, err := yaml.Marshal(pruned)
	if err != nil {
		return "", fmt.Errorf("writing the Envoy example: %w", err)
	}
	return string(text), nil
}

// prune returns a YAML value without the list entries that are named as a part
// of ordergate and without settings of its filters per route, and notes the names
// of the entries that it left out.
func prune(value any, removed map[string]bool) any {
	switch v := value.(type) {
	case map[string]any:
		delete(v, "typed_per_filter_config")
		for key := range v {
			if text, ok := v[key].(string); ok && strings.Contains(text, "DYNAMIC_METADATA(envoy.filters.http.ext_") {
				delete(v, key) // of the access log
				continue
			}
			v[key] = prune(v[key], removed)
		}
	case []any:
		kept := slices.DeleteFunc(v, func(entry any) bool {
			m, _ := entry.(map[string]any)
			name, _ := m["name"].(string)
			if !slices.Contains(ordergateParts, name) {
				return false
			}
			removed[name] = true
			return true
		})
		for i := range kept {
			kept[i] = prune(kept[i], removed)
		}
		return kept
	}
	return value
}
