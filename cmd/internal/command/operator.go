package command

import (
	"cmp"
	"fmt"
	"os"
	"os/user"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/ordergate/ordergate/internal/audit"
)

// operator holds the reason for a change, from the flag --reason.
type operator struct{ reason string }

func (b *operator) flag(cmd *cobra.Command) {
	cmd.Flags().StringVar(&b.reason, "reason", "", "why, for the log and for ordergate locks audit")
}

func (b *operator) check(command string) error {
	if len(b.reason) > audit.MaxReason {
		return usageError{fmt.Errorf("%s: --reason has %d bytes: at most %d are kept", command, len(b.reason), audit.MaxReason)}
	}
	return nil
}

// operatorName returns the current user as user@host.
func operatorName() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return userName() + "@" + host
}

func userName() string {
	if u, err := user.Current(); err == nil {
		return cmp.Or(u.Username, u.Uid)
	}
	return strconv.Itoa(os.Getuid())
}
