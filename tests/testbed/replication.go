package testbed

import (
	"context"
	"fmt"
)

// isMaster is nil if the Redis takes itself for a master.
func (r *Redis) isMaster(ctx context.Context) error {
	role, err := r.info(ctx, "replication", "role")
	if err == nil && role != "master" {
		err = fmt.Errorf("%s is a %s", r.name, role)
	}
	return err
}

// follows is nil if the Redis is a replica of the master and in step with it.
func (r *Redis) follows(ctx context.Context, master *Redis) error {
	text, err := r.askText(ctx, "INFO", "replication")
	if err != nil {
		return err
	}
	for field, want := range map[string]string{
		"role": "slave", "master_port": port(master.addr), "master_link_status": "up", "master_sync_in_progress": "0",
	} {
		got, err := r.infoField(text, field)
		if err != nil {
			return err
		}
		if got != want {
			return fmt.Errorf("%s has %s %s, not %s", r.name, field, got, want)
		}
	}
	return nil
}

// running returns those that have not ended.
func running(servers []*Redis) []*Redis {
	var alive []*Redis
	for _, r := range servers {
		if r.running() {
			alive = append(alive, r)
		}
	}
	return alive
}

// find returns the server at an address, or nil.
func find(servers []*Redis, addr string) *Redis {
	for _, r := range servers {
		if r.addr == addr {
			return r
		}
	}
	return nil
}

func addrs(servers []*Redis) []string {
	list := make([]string, len(servers))
	for i, r := range servers {
		list[i] = r.addr
	}
	return list
}

// pairs reads a list of names and values, as Redis answers in version 2 of its
// protocol where it means a mapping.
func pairs(answer any) map[string]string {
	list, _ := answer.([]any)
	fields := make(map[string]string, len(list)/2)
	for i := 0; i+1 < len(list); i += 2 {
		fields[fmt.Sprint(list[i])] = fmt.Sprint(list[i+1])
	}
	return fields
}
