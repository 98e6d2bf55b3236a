package testbed

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// clusterNode is a node as another one sees it.
type clusterNode struct {
	id     string
	master string // the address of its master, if it is a replica
	slots  []slotRange
}

type slotRange struct{ first, last int64 }

// view returns what the node knows of all nodes, by address, once it finds that
// all slots are served.
func (r *Redis) view(ctx context.Context) (map[string]clusterNode, error) {
	answers, err := r.askAll(ctx, []string{"CLUSTER", "INFO"}, []string{"CLUSTER", "NODES"})
	if err != nil {
		return nil, err
	}
	state, _ := answers[0].(string)
	text, _ := answers[1].(string)
	if !strings.HasPrefix(state, "cluster_state:ok") {
		return nil, fmt.Errorf("%s finds the cluster out of order", r.name)
	}
	nodes := make(map[string]clusterNode)
	address := make(map[string]string) // by ID
	for line := range strings.Lines(text) {
		// ID, address@bus, flags, master, ping, pong, epoch, link, slots...
		fields := strings.Fields(line)
		if len(fields) < 8 {
			return nil, fmt.Errorf("%s lists a node as %q", r.name, line)
		}
		addr, _, _ := strings.Cut(fields[1], "@")
		node := clusterNode{id: fields[0], master: fields[3]}
		for _, text := range fields[8:] {
			first, last, isRange := strings.Cut(text, "-")
			if !isRange {
				last = first
			}
			var s slotRange
			if s.first, err = strconv.ParseInt(first, 10, 64); err == nil {
				s.last, err = strconv.ParseInt(last, 10, 64)
			}
			if err != nil {
				return nil, fmt.Errorf("%s lists the slots %q", r.name, text)
			}
			node.slots = append(node.slots, s)
		}
		nodes[addr], address[node.id] = node, addr
	}
	for addr, node := range nodes {
		node.master = address[node.master]
		nodes[addr] = node
	}
	return nodes, nil
}

// acquaintances returns the addresses of the nodes that the node has met, its own
// included.
func (r *Redis) acquaintances(ctx context.Context) (map[string]bool, error) {
	text, err := r.askText(ctx, "CLUSTER", "NODES")
	if err != nil {
		return nil, err
	}
	known := make(map[string]bool)
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) < 3 {
			return nil, fmt.Errorf("%s lists a node as %q", r.name, line)
		}
		flags := strings.Split(fields[2], ",")
		addr, _, _ := strings.Cut(fields[1], "@")
		if slices.Contains(flags, "myself") {
			addr = r.addr // it learns that from the first that it meets
		}
		if !slices.Contains(flags, "handshake") {
			known[addr] = true
		}
	}
	return known, nil
}

// ownerOf returns the address of the master of a key, as one node sees it, once
// that node finds the cluster in order.
func (r *Redis) ownerOf(ctx context.Context, key string) (string, error) {
	view, err := r.view(ctx)
	if err != nil {
		return "", err
	}
	answer, err := r.ask(ctx, "CLUSTER", "KEYSLOT", key)
	if err != nil {
		return "", err
	}
	slot, _ := answer.(int64)
	for addr, node := range view {
		for _, s := range node.slots {
			if s.first <= slot && slot <= s.last {
				return addr, nil
			}
		}
	}
	return "", fmt.Errorf("%s knows nobody who has slot %d", r.name, slot)
}
