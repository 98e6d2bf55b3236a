package command

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ordergate/ordergate/config"
	"github.com/ordergate/ordergate/internal/engine"
	"github.com/ordergate/ordergate/internal/envoyfile"
	"github.com/ordergate/ordergate/internal/lazyregexp"
)

// answers are what init asks for. Flags give them, or questions on a terminal.
type initAnswers struct {
	backend                 string
	database                string // mysql or postgres
	dsnEnv, table, column   string
	lookup, create, settle  []string // requests, see parseSketch
	written                 []string // the flag and the request of each rule of the file
	redis, out, log, format string
	force                   bool
}

// styles are the kinds of backends that init knows, with the configuration's words.
var styles = map[string]string{
	"spring": config.BackendSpring, "tomcat": config.BackendTomcat, "php-paths": config.BackendPHP, "php-front-controller": config.BackendPHP, "strict": config.BackendStrict,
}

// socketFolder is where the packages and the image have the sockets.
const socketFolder = "/run/ordergate"

func initCommand(env *environment) *cobra.Command {
	var a initAnswers
	cmd := &cobra.Command{
		Use:   "init",
		Short: "Write a first ordergate.yaml, which only observes",
		Long: "Write a first ordergate.yaml, which only observes. On a terminal, init asks for what no flag\n" +
			"gives. With --log it proposes the requests that it sees in an access log.\n\n" +
			"A request is written 'METHOD PATH', with {id} where the order's ID is:\n\n" +
			"  'GET /orders/{id}'                                    in the path\n" +
			"  'GET /index.php?route=account/order&order_id={id}'    in a parameter, of this route\n" +
			"  'POST /pay json:orderId'                              in a JSON body\n" +
			"  'POST /pay form:order_id'                             in a form\n" +
			"  'POST /confirm cookie:PHPSESSID'                      nowhere: the session has the order\n" +
			"  'POST /orders'                                        nowhere: the order is created",
		Example: "  ordergate init --log access.log\n" +
			"  ordergate init --backend spring --database mysql --table shop.orders --id-column order_no --lookup 'GET /orders/{id}' --settle 'POST /orders/{id}/pay'",
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.run(cmd.Context(), env, cmd.InOrStdin(), cmd.Flags().Changed)
		},
	}
	f := cmd.Flags()
	f.StringVar(&a.backend, "backend", "", "spring, tomcat, php-paths, php-front-controller, or strict for any other")
	f.StringVar(&a.database, "database", "", "mysql (also MariaDB) or postgres")
	f.StringVar(&a.dsnEnv, "dsn-env", "ORDERS_DSN", "the variable with the database's data source name")
	f.StringVar(&a.table, "table", "", "the table with the orders")
	f.StringVar(&a.column, "id-column", "", "its column with the ID as clients write it")
	f.StringArrayVar(&a.lookup, "lookup", nil, "a request that looks an order up, any number of times")
	f.StringArrayVar(&a.create, "create", nil, "a request that creates an order")
	f.StringArrayVar(&a.settle, "settle", nil, "a request that settles an order")
	f.StringVar(&a.format, "id-format", "", "digits or uuid; default as in the log, or digits")
	f.StringVar(&a.redis, "redis", "127.0.0.1:6379", "Redis's address")
	f.StringVar(&a.out, "out", ".", "the folder to write to")
	f.StringVar(&a.log, "log", "", "an access log with the requests to propose")
	f.BoolVar(&a.force, "force", false, "replace an ordergate.yaml that exists")
	return cmd
}

func (a *initAnswers) run(ctx context.Context, env *environment, stdin io.Reader, given func(flag string) bool) error {
	path := filepath.Join(a.out, "ordergate.yaml")
	if err := a.exists(path); err != nil && (given("out") || !isTerminal(stdin)) {
		return err
	}
	var seen *logSample
	if a.log != "" {
		var err error
		if seen, err = sampleLog(a.log, stdin); err != nil {
			return usageError{fmt.Errorf("init: %w", err)}
		}
		seen.print(env.stderr)
	}
	hint := ", or run it on a terminal, where it asks"
	if isTerminal(stdin) {
		hint = ""
		if err := a.ask(ctx, bufio.NewReader(stdin), env.stderr, given, seen); err != nil {
			return fmt.Errorf("init: %w", err)
		}
	}
	if seen != nil && len(a.lookup)+len(a.create)+len(a.settle) == 0 {
		a.lookup, a.create, a.settle = seen.texts(lookups), seen.texts(creates), seen.texts(settlements)
	}
	if a.backend == "" && seen != nil {
		a.backend = seen.style()
	}
	if err := a.check(hint); err != nil {
		return usageError{err}
	}
	text, err := a.yaml(seen)
	if err != nil {
		return usageError{fmt.Errorf("init: %w", err)}
	}
	path = filepath.Join(a.out, "ordergate.yaml")
	if err := a.write(path, text); err != nil {
		return err
	}
	envoy, err := a.writeEnvoy(env, path)
	if err != nil {
		return err
	}
	_, err = fmt.Fprint(env.stdout, a.next(path, envoy, strings.Count(text, unclearRule)))
	return err
}

// writeEnvoy writes the part of Envoy beside the file. It returns its path, or why there is none.
func (a *initAnswers) writeEnvoy(env *environment, file string) (string, error) {
	path := filepath.Join(a.out, "envoy.yaml")
	if _, err := os.Stat(path); err == nil && !a.force {
		return "kept " + path, nil
	}
	of := *env
	of.file = file
	var text strings.Builder
	plan, err := of.plan(0)
	if err == nil {
		err = envoyfile.Write(&text, plan, envoyfile.Options{
			Target: envoyfile.Static, Backend: "127.0.0.1:8080", Connections: 32, Listen: "127.0.0.1:10000", Admin: "127.0.0.1:9901",
			File: file, Command: "ordergate envoy --config " + file,
		})
	}
	if err != nil {
		return "no envoy.yaml: " + err.Error(), nil
	}
	if err := writeWhole(path, []byte(text.String())); err != nil {
		return "", fmt.Errorf("init: %w", err)
	}
	return "wrote " + path + " for a service at 127.0.0.1:8080", nil
}

// question is one of those on a terminal.
type question struct {
	flag, text string
	proposal   string
	set        func(answer string) error
}

// ask asks for what no flag gives. An empty line takes the proposal in brackets. It asks again after
// an answer that cannot be.
func (a *initAnswers) ask(ctx context.Context, in *bufio.Reader, w io.Writer, given func(string) bool, seen *logSample) error {
	text := func(to *string) func(string) error {
		return func(answer string) error { *to = answer; return nil }
	}
	list := func(to *[]string) func(string) error {
		return func(answer string) error {
			*to = nil
			for text := range strings.SplitSeq(answer, ",") {
				if text = strings.TrimSpace(text); text == "" || text == "-" {
					continue
				}
				if _, err := parseSketch(text); err != nil {
					return err
				}
				*to = append(*to, text)
			}
			return nil
		}
	}
	for _, q := range []question{
		{"backend", "1. Backend: spring, tomcat, php-paths, php-front-controller or strict", seen.style(), a.setBackend},
		{"database", "2. Database of the orders: mysql or postgres", "mysql", a.setDatabase},
		{"dsn-env", "   The variable with its data source name", a.dsnEnv, text(&a.dsnEnv)},
		{"table", "3. Table with the orders", "orders", text(&a.table)},
		{"id-column", "   Its column with the ID as clients write it", "id", text(&a.column)},
		{"lookup", "4. Requests that look an order up, as GET /orders/{id}; commas between them, - for none", seen.propose(lookups), list(&a.lookup)},
		{"create", "   Requests that create an order, as POST /orders", seen.propose(creates), list(&a.create)},
		{"settle", "   Requests that settle an order, as POST /orders/{id}/pay", seen.propose(settlements), list(&a.settle)},
		{"redis", "5. Redis's address", a.redis, text(&a.redis)},
		{"out", "6. Folder to write ordergate.yaml to", a.out, text(&a.out)},
	} {
		for asked := given(q.flag); !asked; {
			fmt.Fprintf(w, "%s [%s]: ", q.text, q.proposal)
			answer, err := readLine(ctx, in)
			if err != nil {
				fmt.Fprintln(w)
				return errors.New("no answer: nothing was written")
			}
			err = q.set(cmp.Or(answer, q.proposal))
			if asked = err == nil; !asked {
				fmt.Fprintln(w, "  ", err)
			}
		}
	}
	return nil
}

func (a *initAnswers) setBackend(answer string) error {
	if _, ok := styles[strings.ToLower(answer)]; !ok {
		return fmt.Errorf("%q is not one of spring, tomcat, php-paths, php-front-controller, strict", answer)
	}
	a.backend = answer
	return nil
}

func (a *initAnswers) setDatabase(answer string) error {
	switch strings.ToLower(answer) {
	case config.SourceMySQL, "mariadb":
		a.database = config.SourceMySQL
	case config.SourcePostgres, "postgresql":
		a.database = config.SourcePostgres
	default:
		return fmt.Errorf("%q is not mysql or postgres", answer)
	}
	return nil
}

// check returns what is missing, or not one of the choices. The hint is for what is missing.
func (a *initAnswers) check(hint string) error {
	var missing []string
	for _, f := range []struct{ flag, value string }{{"backend", a.backend}, {"database", a.database}, {"table", a.table}, {"id-column", a.column}, {"lookup, --create or --settle", strings.Join(slices.Concat(a.lookup, a.create, a.settle), "")}} {
		if f.value == "" {
			missing = append(missing, "--"+f.flag)
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("init: give %s%s", strings.Join(missing, ", "), hint)
	}
	if err := a.setBackend(a.backend); err != nil {
		return fmt.Errorf("init: --backend: %w", err)
	}
	if err := a.setDatabase(a.database); err != nil {
		return fmt.Errorf("init: --database: %w", err)
	}
	if a.format != "" && a.format != config.FormatDigits && a.format != config.FormatUUID {
		return fmt.Errorf("init: --id-format: %q is not digits or uuid", a.format)
	}
	if info, err := os.Stat(a.out); err != nil || !info.IsDir() {
		return fmt.Errorf("init: --out: %s is not a folder: init writes ordergate.yaml and envoy.yaml there", a.out)
	}
	return nil
}

// exists returns an error if the file must not be replaced.
func (a *initAnswers) exists(path string) error {
	if _, err := os.Stat(path); err == nil && !a.force {
		return usageError{fmt.Errorf("init: %s exists: --force replaces it", path)}
	}
	return nil
}

// write writes the file if "ordergate check" accepts it.
func (a *initAnswers) write(path, text string) error {
	if err := a.exists(path); err != nil {
		return err
	}
	aside, err := os.CreateTemp(a.out, "ordergate-*.yaml")
	if err != nil {
		return fmt.Errorf("init: %w", err)
	}
	defer func() { _ = os.Remove(aside.Name()) }()
	_, err = aside.WriteString(text)
	if err = errors.Join(err, aside.Chmod(0o644), aside.Close()); err != nil {
		return fmt.Errorf("init: %w", err)
	}
	if _, _, err := engine.LoadConfigWith(aside.Name(), config.Options{Getenv: func(string) string { return "" }, WithoutDSN: true}); err != nil {
		return usageError{a.blame(err)}
	}
	if err := os.Rename(aside.Name(), path); err != nil {
		return fmt.Errorf("init: %w", err)
	}
	return nil
}

// flagOf are the flags of the keys that init writes.
var flagOf = map[string]string{
	"redis.addresses": "--redis", "sources.orders-db.dsn_env": "--dsn-env", "sources.orders-db.table": "--table", "sources.orders-db.id_column": "--id-column",
}

var ofRule = lazyregexp.New(`rules\[(\d+)\](?: \(\S+\))?`)

// blame names the flags behind the violations of a file that was not written.
func (a *initAnswers) blame(err error) error {
	var invalid *config.InvalidError
	if !errors.As(err, &invalid) {
		return fmt.Errorf("init: %w", err)
	}
	name := func(of string) string {
		return ofRule.Compiled().ReplaceAllStringFunc(of, func(rule string) string {
			if i, err := strconv.Atoi(ofRule.Compiled().FindStringSubmatch(rule)[1]); err == nil && i < len(a.written) {
				return a.written[i]
			}
			return rule
		})
	}
	var lines []error
	for _, v := range invalid.Violations {
		key, _, _ := strings.Cut(v.Path, "[")
		if key == "rules" {
			key = name(ofRule.Compiled().FindString(v.Path))
		}
		lines = append(lines, fmt.Errorf("init: %s: %s", cmp.Or(flagOf[key], key), name(v.Message)))
	}
	return errors.Join(lines...)
}

// next says what to do with the file.
func (a *initAnswers) next(path, envoy string, unclear int) string {
	log := "access.log"
	if a.log != "" && a.log != "-" {
		log = a.log
	}
	with := ""
	if path != defaultFile {
		with = " --config " + path
	}
	name, table, ok := strings.Cut(a.table, ".")
	if !ok || table == "" || a.database != config.SourceMySQL {
		name = "DATABASE"
	}
	dsn := map[string]string{config.SourceMySQL: "mysql://ordergate:PASSWORD@127.0.0.1:3306/", config.SourcePostgres: "postgres://ordergate:PASSWORD@127.0.0.1:5432/"}[a.database] + name
	folder := ""
	if _, err := os.Stat(socketFolder); err != nil {
		folder = "mkdir -m 700 " + socketFolder
	}
	look := ""
	if unclear > 0 {
		look = fmt.Sprintf("look at %s at the end of %s", plural(unclear, "request", "requests"), path)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "wrote %s, which only observes\n%s\nNext:\n", path, envoy)
	for _, line := range [][2]string{
		{look, "they may create or settle: the log does not show it"},
		{"ordergate replay" + with + " " + log, "what it would have done"},
		{"ordergate grants" + with, "the rights in the database and in Redis"},
		{"export " + a.dsnEnv + "='" + dsn + "'", ""},
		{folder, "for the sockets, which only Envoy reaches"},
		{"ordergate check --live" + with, "whether Redis and the table are as it needs them"},
		{"ordergate envoy" + with + " --backend HOST:PORT --out envoy.yaml", "for your service"},
		{"ordergate serve" + with + " & envoy -c envoy.yaml &", ""},
		{"ordergate doctor" + with + " --through http://127.0.0.1:10000", "what is missing"},
		{"curl -s http://127.0.0.1:9194/metrics | grep ^ordergate_decisions", "what it would refuse"},
	} {
		if line[0] != "" {
			fmt.Fprintln(&b, strings.TrimSuffix("  "+line[0]+"   # "+line[1], "   # "))
		}
	}
	return b.String()
}
