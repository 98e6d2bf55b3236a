package command

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ordergate/ordergate/config"
	"github.com/ordergate/ordergate/internal/admin"
	"github.com/ordergate/ordergate/internal/explain"
	"github.com/ordergate/ordergate/internal/gate"
	"github.com/ordergate/ordergate/internal/order"
)

// diagnosis is the result of one check. Its JSON always has all keys.
type diagnosis struct {
	Result string `json:"result"` // ok, fail, or skipped: nothing is known
	Check  string `json:"check"`
	Rule   string `json:"rule"` // "": it concerns no single rule
	Text   string `json:"text"`
	Do     string `json:"do"` // what to do; "": nothing
}

// The results of a check.
const (
	resultOK      = "ok"
	resultFail    = "fail"
	resultSkipped = "skipped"
)

// marks of the results in the output.
var resultMarks = map[string]string{resultOK: "ok  ", resultFail: "FAIL", resultSkipped: "-   "}

// doctorOptions are the flags of doctor.
type doctorOptions struct {
	through           string
	host              string
	headers           []string
	toBackend, asJSON bool
	insecure          bool
}

func doctorCommand(env *environment) *cobra.Command {
	var opts doctorOptions
	cmd := &cobra.Command{
		Use:   "doctor --through URL",
		Short: "Prove that requests through Envoy reach the running ordergate, and check what it needs",
		Long: "Prove that requests through Envoy reach the running ordergate, and check what it needs.\n\n" +
			"For each rule, doctor sends marked requests through Envoy, which ordergate answers with what\n" +
			"it has seen. They take no lock and teach no filter. One that reaches ordergate does not reach\n" +
			"the backend. Where ordergate is not attached, such a request is an ordinary one, for the largest\n" +
			"order that the rule's format allows: so writes are sent only if a read was answered, and first\n" +
			"without a body. The marks come from the admin address of the running ordergate.\n\n" +
			"The exit status is 1 if a check failed.",
		Example: "  ordergate doctor --through http://127.0.0.1:10000",
		Args:    noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			d, err := newDoctor(env, opts)
			if err != nil {
				return usageError{fmt.Errorf("doctor: %w", err)}
			}
			if d.config, err = env.load(); err != nil {
				return err
			}
			if d.policies, err = explain.Policies(d.config); err != nil {
				return usageError{fmt.Errorf("%s: %w", env.file, err)}
			}
			d.examine(cmd.Context())
			return d.finish()
		},
	}
	cmd.Flags().StringVar(&opts.through, "through", "", "the address of Envoy's listener for clients, such as http://127.0.0.1:10000")
	cmd.Flags().StringVar(&opts.host, "host", "", "the host of the requests, for rules without match.host; default that of --through")
	cmd.Flags().StringArrayVarP(&opts.headers, "header", "H", nil, "a header of the requests as 'name: value', any number of times: of a login, for example")
	cmd.Flags().BoolVar(&opts.toBackend, "to-backend", false, "also let marked requests go on to the backend, at the path "+gate.MarkedPath+", to prove that its answers are seen")
	cmd.Flags().BoolVar(&opts.insecure, "insecure", false, "accept any certificate of Envoy")
	cmd.Flags().BoolVar(&opts.asJSON, "json", false, "print one JSON object")
	return cmd
}

// doctor examines an attachment.
type doctor struct {
	env      *environment
	opts     doctorOptions
	through  *url.URL
	client   *http.Client
	client2  *http.Client // of HTTP/2
	headers  order.HeaderList
	config   *config.Config
	policies []gate.Policy
	found    []diagnosis

	read probe // a marked read that was answered; without a report: none was
}

func newDoctor(env *environment, opts doctorOptions) (*doctor, error) {
	d := &doctor{env: env, opts: opts}
	var err error
	if d.through, err = url.Parse(opts.through); err != nil {
		return nil, fmt.Errorf("--through: %w", err)
	}
	if (d.through.Scheme != "http" && d.through.Scheme != "https") || d.through.Host == "" || strings.Trim(d.through.Path, "/") != "" || d.through.RawQuery != "" {
		return nil, fmt.Errorf("--through %q is not the address of Envoy's listener, such as http://127.0.0.1:10000", opts.through)
	}
	for _, h := range opts.headers {
		name, value, ok := strings.Cut(h, ":")
		if !ok || !explain.IsToken(name) {
			return nil, fmt.Errorf("-H %q is not 'name: value'", h)
		}
		d.headers = append(d.headers, [2]string{strings.ToLower(name), strings.TrimSpace(value)})
	}
	d.client, d.client2 = newProbeClient(opts.insecure, false), newProbeClient(opts.insecure, true)
	return d, nil
}

// examine runs all checks, as far as they make sense.
func (d *doctor) examine(ctx context.Context) {
	if d.askRunning(ctx) {
		d.examineAttachment(ctx)
	}
	d.examineServers(ctx)
}

func (d *doctor) add(result, check, rule, do, format string, args ...any) {
	d.found = append(d.found, diagnosis{result, check, rule, fmt.Sprintf(format, args...), do})
}

func (d *doctor) ok(check, rule, format string, args ...any) {
	d.add(resultOK, check, rule, "", format, args...)
}

func (d *doctor) fail(check, rule, do, format string, args ...any) {
	d.add(resultFail, check, rule, do, format, args...)
}

func (d *doctor) skip(check, rule, format string, args ...any) {
	d.add(resultSkipped, check, rule, "", format, args...)
}

var errUnhealthy = errors.New("doctor: checks failed (those marked FAIL)")

// finish prints what was found. Its error says that a check has failed.
func (d *doctor) finish() error {
	failed := false
	for _, f := range d.found {
		failed = failed || f.Result == resultFail
	}
	if d.opts.asJSON {
		if err := admin.WriteJSON(d.env.stdout, map[string]any{"ok": !failed, "checks": d.found}); err != nil {
			return err
		}
	} else {
		for _, f := range d.found {
			fmt.Fprintln(d.env.stdout, f)
		}
	}
	if failed {
		return errUnhealthy
	}
	return nil
}

// String returns the line for a check.
func (f diagnosis) String() string {
	where := f.Check
	if f.Rule != "" {
		where = "rule " + f.Rule + ", " + f.Check
	}
	line := resultMarks[f.Result] + "  " + where + ": " + visible(f.Text)
	if f.Do != "" {
		line += ". Do: " + f.Do
	}
	return line
}
