package main

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/ordergate/ordergate/tests/testbed"
)

// listenerName is the example's listener, and the prefix of its statistics.
const listenerName = "orders"

// startEnvoy starts an Envoy with one worker, and makes it the gateway's proxy.
func (g *gateway) startEnvoy(ctx context.Context, bed *testbed.Bed, config string) error {
	envoy, err := bed.Envoy(ctx, config)
	if err != nil {
		return err
	}
	return g.behind(ctx, envoy)
}

// behind makes an Envoy the gateway's proxy.
func (g *gateway) behind(ctx context.Context, envoy *testbed.Envoy) error {
	addr, err := envoy.ListenerAddr(ctx, listenerName)
	if err != nil {
		return err
	}
	g.url, g.proxy = "http://"+addr, envoy.Process
	const errors5xx = "http." + listenerName + ".downstream_rq_5xx"
	g.wrong = func(ctx context.Context) (int64, error) {
		stats, err := envoy.Stats(ctx, errors5xx)
		return stats[errors5xx], err
	}
	return nil
}

// quiet takes the access log out of a bootstrap configuration: at tens of thousands
// of requests a second it would be what is measured, and fill the disk.
func quiet(config string) (string, error) {
	return change(config, func(manager map[string]any) error {
		delete(manager, "access_log")
		return nil
	})
}

// plain takes all filters but the router out of a bootstrap configuration, and what
// routes say of them.
func plain(config string) (string, error) {
	return change(config, func(manager map[string]any) error {
		delete(manager, "access_log")
		filters, ok := manager["http_filters"].([]any)
		if !ok || len(filters) < 2 {
			return fmt.Errorf("it has the HTTP filters %v: some and the router are expected", manager["http_filters"])
		}
		manager["http_filters"] = filters[len(filters)-1:]
		table, err := at(manager, "route_config")
		if err != nil {
			return err
		}
		if table, ok := table.(map[string]any); ok {
			delete(table, "typed_per_filter_config")
		}
		routes, err := at(table, "virtual_hosts", 0, "routes")
		if err != nil {
			return err
		}
		list, _ := routes.([]any)
		for _, route := range list {
			if route, ok := route.(map[string]any); ok {
				delete(route, "typed_per_filter_config")
			}
		}
		return nil
	})
}

// directPrefix is that of the orders which do not exist.
const directPrefix = "/orders/900"

// direct has Envoy refuse the orders that do not exist by itself.
func direct(config string) (string, error) {
	return change(config, func(manager map[string]any) error {
		host, err := at(manager, "route_config", "virtual_hosts", 0)
		if err != nil {
			return err
		}
		list, err := at(host, "routes")
		if err != nil {
			return err
		}
		host.(map[string]any)["routes"] = append([]any{map[string]any{
			"match": map[string]any{"prefix": directPrefix},
			"direct_response": map[string]any{
				"status": http.StatusNotFound,
				"body":   map[string]any{"inline_string": `{"error":"order not found"}`},
			},
		}}, list.([]any)...)
		return nil
	})
}

// change changes the HTTP connection manager of a bootstrap configuration in YAML.
func change(config string, do func(manager map[string]any) error) (string, error) {
	var bootstrap map[string]any
	if err := yaml.Unmarshal([]byte(config), &bootstrap); err != nil {
		return "", fmt.Errorf("reading envoy's configuration: %w", err)
	}
	found, err := at(bootstrap, "static_resources", "listeners", 0, "filter_chains", 0, "filters", 0, "typed_config")
	if err != nil {
		return "", fmt.Errorf("reading envoy's configuration: %w", err)
	}
	manager, ok := found.(map[string]any)
	if !ok {
		return "", fmt.Errorf("reading envoy's configuration: the connection manager is a %T", found)
	}
	if err := do(manager); err != nil {
		return "", fmt.Errorf("changing envoy's configuration: %w", err)
	}
	text, err := yaml.Marshal(bootstrap)
	if err != nil {
		return "", fmt.Errorf("changing envoy's configuration: %w", err)
	}
	return string(text), nil
}

// at goes down by keys of maps and indices of lists.
func at(value any, path ...any) (any, error) {
	for i, step := range path {
		found := false
		switch step := step.(type) {
		case string:
			m, _ := value.(map[string]any)
			value, found = m[step]
		case int:
			if list, ok := value.([]any); ok && step < len(list) {
				value, found = list[step], true
			}
		}
		if !found {
			return nil, fmt.Errorf("there is nothing at %v", path[:i+1])
		}
	}
	return value, nil
}

// gateConfig is the example's configuration with this freshness; "" leaves the
// default. It settles without a lookup, and as many orders as there are callers, as the
// other gates do: what wrk gives up at the end of a round is held.
func gateConfig(bed *testbed.Bed, redisAddr, ids, freshness string) (string, error) {
	config, err := bed.GateExample(redisAddr, ids)
	if err != nil {
		return "", err
	}
	const lookup = "\n    lookup: {filter: orders}    # an order that does not exist"
	before, rest, found := strings.Cut(config, lookup)
	_, after, ended := strings.Cut(rest, "\n")
	if !found || !ended {
		return "", fmt.Errorf("taking the lookup out of the rule that settles: the example has no %q any more", lookup)
	}
	config = before + "\n" + after
	const settles = "settle: {lock: settlement}"
	if strings.Count(config, settles) != 1 {
		return "", fmt.Errorf("raising max_in_flight: the example has no %q any more", settles)
	}
	const many = "settle: {lock: settlement, max_in_flight: 100000, max_in_flight_per_client: 100000"
	config = strings.Replace(config, settles, many+"}", 1) + `
  - name: settle-once
    match: {methods: [POST], path: "/orders/{id}/settle-once"}
    id: {path: id, format: digits}
    ` + many + `, once: {}}
`
	return testbed.WithFreshness(config, freshness)
}
