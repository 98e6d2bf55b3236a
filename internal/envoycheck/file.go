package envoycheck

import (
	"cmp"
	"fmt"
	"net"
	"net/netip"
	"strings"

	"github.com/ordergate/ordergate/config"
)

// file checks what the file itself may leave out.
func (c *check) file(attached []*chain) {
	l := &c.plan.Config.Listen
	for _, ch := range attached {
		if f := ch.get(isAuthz); f != nil {
			if f.authz.GetGrpcService() != nil {
				c.socket("authz", l.Authz)
			} else {
				c.socket("http", l.HTTP)
			}
		}
		if ch.has(isProc) {
			c.socket("proc", l.Proc)
		}
	}
	for i := range c.plan.Needs {
		if settles := c.plan.Needs[i].Rule; settles.Settle != nil && settles.Lookup == nil {
			c.lookup(settles)
		}
	}
}

// socket checks that only Envoy reaches a listener of ordergate. A port on loopback is a note. It is the
// default, and in a pod beside Envoy only the pod's containers reach it: among them the backend, which
// an attacker may have send requests there. It does not differ from what other settings need, and where
// the machine has other users is not known here.
func (c *check) socket(name, address string) {
	l, who := &c.plan.Config.Listen, "another user of this machine"
	switch {
	case address == "":
		return
	case strings.HasPrefix(address, "unix:"):
		if l.FileMode()&0o002 == 0 {
			return
		}
		address += " with socket_mode " + l.SocketMode
	case l.TLS != nil:
		return
	case isLoopback(address):
		c.note(fmt.Sprintf("listen.%s: every program of this machine or pod reaches %s, the backend too, and can take locks, and have orders learned that do not exist: "+
			"listen: { %[1]s: unix:/run/ordergate/%[1]s.sock } and the same in Envoy's cluster, or listen.tls, lets only Envoy in", name, address))
		return
	default:
		who = "another machine"
	}
	c.find("listen."+name, "it is "+address+", which not only Envoy reaches", who+" takes locks, and has orders learned that do not exist",
		fmt.Sprintf("listen: { %s: unix:/run/ordergate/%[1]s.sock } and the same in Envoy's cluster, or listen.tls", name))
}

func isLoopback(address string) bool {
	host, _, _ := net.SplitHostPort(address) // config has checked it
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.IsLoopback() || strings.EqualFold(host, "localhost")
}

// lookup notes the lookup that a rule which settles could have.
func (c *check) lookup(settles *config.Rule) {
	for i := range c.plan.Needs {
		if looks := c.plan.Needs[i].Rule; looks.Lookup != nil && haveSameID(looks, settles) {
			c.note(fmt.Sprintf("rule %s: it has no lookup, so an order that does not exist is locked, and leaves its fence in Redis (17 GB in half a day of a flood): "+
				"lookup: { filter: %s } refuses it", settles.Name, looks.Lookup.Filter))
			return
		}
	}
}

// haveSameID reports whether two rules certainly name orders in the same way: at the same place of the
// path, or by the same name elsewhere. A parameter "id" may be that of anything.
func haveSameID(a, b *config.Rule) bool {
	if len(a.IDs) != 1 || len(b.IDs) != 1 || a.Match.Host != b.Match.Host {
		return false
	}
	one, two := &a.IDs[0], &b.IDs[0]
	if one.Path != "" && two.Path != "" {
		before, _, _ := strings.Cut(a.Match.Path, "{"+one.Path+"}")
		prefix, _, _ := strings.Cut(b.Match.Path, "{"+two.Path+"}")
		return before == prefix
	}
	place := func(id *config.ID) [4]string { return [4]string{id.Query, id.Form, id.JSON, id.Header} }
	name := cmp.Or(one.Query, one.Form, one.JSON, one.Header)
	return name != "" && name != "id" && place(one) == place(two)
}
