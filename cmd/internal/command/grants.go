package command

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ordergate/ordergate/config"
	"github.com/ordergate/ordergate/internal/admin"
	"github.com/ordergate/ordergate/internal/engine"
)

// grants are the rights that a file needs.
type grants struct {
	SQL   []databaseGrants `json:"sql"`
	Redis []string         `json:"redis"` // lines of a file of users
}

// databaseGrants are statements for one database.
type databaseGrants struct {
	DSN        string   `json:"dsn"` // the variable or the file of its data source name
	Kind       string   `json:"kind"`
	Statements []string `json:"statements"`
}

func grantsCommand(env *environment) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "grants",
		Short: "Print the rights in databases and in Redis that the file needs",
		Long: "Print the rights in databases and in Redis that the file needs: SQL for an administrator, and\n" +
			"lines for a file of users of Redis. Put a password in place of PASSWORD. It connects to nothing,\n" +
			"and reads the names of users and databases from data source names that are set.",
		Args: noArguments,
		RunE: func(*cobra.Command, []string) error {
			c, _, err := engine.LoadConfigWith(env.file, config.Options{Getenv: env.getenv, WithoutDSN: true, Uses: []string{"redis", "filters", "sources", "locks", "rules"}})
			if err != nil {
				return usageError{err}
			}
			readDSNs(c, env.getenv)
			g := grants{SQL: sqlGrants(c), Redis: redisUsers(c)}
			if asJSON {
				return admin.WriteJSON(env.stdout, g)
			}
			return g.print(env.stdout)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	return cmd
}

// readDSNs adds the data source names in variables that are set, and in files that can be read.
func readDSNs(c *config.Config, getenv func(string) string) {
	for name, s := range c.Sources {
		text := ""
		if s.DSNFile != "" {
			content, _ := os.ReadFile(s.DSNFile) // without it, the names are placeholders
			text = strings.TrimRight(string(content), "\r\n")
		} else if s.DSNEnv != "" {
			text = getenv(s.DSNEnv)
		}
		if s.DSN = config.Secret(text); s.Live() {
			c.Sources[name] = s
		}
	}
}

func (g *grants) print(w io.Writer) error {
	var b strings.Builder
	for _, d := range g.SQL {
		fmt.Fprintf(&b, "-- %s, %s\n%s\n\n", d.DSN, d.Kind, strings.Join(d.Statements, "\n"))
	}
	if len(g.Redis) > 0 {
		fmt.Fprintf(&b, "# Redis\n%s\n", strings.Join(g.Redis, "\n"))
	}
	if b.Len() == 0 {
		b.WriteString("the file needs neither a database nor Redis\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// redisUsers returns the users of Redis, and of Sentinel, as lines of a file of users.
func redisUsers(c *config.Config) []string {
	if c.Redis == nil || c.Redis.Mode == config.RedisEmbedded {
		return nil
	}
	name := cmp.Or(c.Redis.Username, "ordergate")
	users := []string{"user " + name + " on >PASSWORD " + strings.Join(redisRights(c), " ")}
	if c.Redis.Mode == config.RedisSentinel {
		users = append(users, "user "+cmp.Or(c.Redis.SentinelUsername, "watcher")+" on >PASSWORD "+sentinelRights)
	}
	return users
}

// sentinelRights are those at Sentinels.
const sentinelRights = "resetchannels &+switch-master &+replica-reconf-done -@all +sentinel|get-master-addr-by-name +sentinel|sentinels +subscribe +ping +client|setname"

// redisRights returns the keys, channels and commands that the file needs.
func redisRights(c *config.Config) []string {
	var rights []string
	add := func(patterns ...string) {
		for _, p := range patterns {
			if !slices.Contains(rights, p) {
				rights = append(rights, p)
			}
		}
	}
	both := func(key string) { add("~"+pattern(key), "~"+pattern("{"+key)) } // also what stands beside the key, in its slot
	for _, name := range sortedKeys(c.Locks) {
		both(beginning(c.Locks[name].Key, c.Rules))
	}
	add("~redisson_*", "~ordergate:*")
	if slices.ContainsFunc(c.Rules, func(r config.Rule) bool { by, _ := r.ByKey(); return by != nil }) {
		add("~" + pattern("{"+config.OnceKeyPrefix))
	}
	transactions := false
	for _, name := range sortedKeys(c.Filters) {
		f := c.Filters[name]
		transactions = transactions || f.InRedis() == config.FilterRedisson || f.ShareLoad != nil && *f.ShareLoad
		switch f.InRedis() {
		case "":
		case config.FilterRedisson:
			both(f.KeyPrefix)
		default:
			add("~" + pattern(f.KeyPrefix))
		}
	}
	for i := range c.Rules {
		if s := c.Rules[i].Settle; s != nil {
			for j := range s.Require {
				if key := s.Require[j].Key(); key != "" {
					add("~" + pattern(beginning(key, c.Rules[i:i+1])))
				}
			}
		}
	}
	add("resetchannels", "&redisson_*", "-@all", "+@read", "+@write", "-@dangerous", "+eval", "+evalsha", "+publish")
	cluster := c.Redis.Mode == config.RedisCluster
	if cluster {
		add("+spublish")
	}
	add("+subscribe", "+unsubscribe")
	if cluster {
		add("+ssubscribe", "+sunsubscribe")
	}
	add("+time", "+wait", "+ping", "+client|setname", "+info")
	if transactions {
		add("+multi", "+exec")
	}
	if cluster {
		add("+cluster|slots", "+asking")
	}
	return rights
}

// beginning returns the text of a key in front of the first value that stands in it.
func beginning(key string, rules []config.Rule) string {
	end := len(key)
	for i := range rules {
		names := append(sortedKeys(rules[i].Parts), "id")
		for _, name := range names {
			if at := strings.Index(key, "{"+name+"}"); at >= 0 {
				end = min(end, at)
			}
		}
	}
	if at := strings.Index(key, "{id}"); at >= 0 {
		end = min(end, at)
	}
	if at := strings.Index(key, "{header:"); at >= 0 {
		end = min(end, at)
	}
	return key[:end]
}

// pattern returns the pattern of an ACL for all keys that begin with a text.
func pattern(begins string) string {
	return strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`, "]", `\]`).Replace(begins) + "*"
}
