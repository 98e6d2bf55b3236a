package engine

import (
	"cmp"
	"fmt"
	"net"
	"os"
	"strings"

	"github.com/ordergate/ordergate/config"
)

// instanceIDOf returns the ID of this instance in change logs. A restarted process has the same
// ID, and no other process has it. In a pod, the host is the pod.
func instanceIDOf(c *config.Config) string {
	if c.Redis.Member != "" {
		return c.Redis.Member
	}
	addr := cmp.Or(c.Listen.Proc, c.Listen.Authz, c.Listen.HTTP, c.Listen.Admin)
	if _, port, err := net.SplitHostPort(addr); err == nil && port == "0" {
		addr = fmt.Sprintf("process %d", os.Getpid()) // several processes can have that address
	}
	return strings.ReplaceAll(processName()+" "+addr, "#", "_")
}

// processName names this process to an operator who inspects a lock. It returns the host name,
// which in a pod is the pod's name, or "" after an error.
func processName() string {
	host, err := os.Hostname()
	if err != nil {
		return ""
	}
	return host
}
