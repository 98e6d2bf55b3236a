package command

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ordergate/ordergate/internal/admin"
	"github.com/ordergate/ordergate/internal/explain"
	"github.com/ordergate/ordergate/internal/loader"
)

func explainCommand(env *environment) *cobra.Command {
	var headers []string
	var data string
	var asJSON, live bool
	cmd := &cobra.Command{
		Use:     "explain 'METHOD TARGET'",
		Short:   "Explain the decision on a request",
		Example: "  ordergate explain 'POST /orders/42/settle' -H 'content-type: application/json' -d '{}'",
		Args:    cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usageError{fmt.Errorf("explain: want one request line, got %d arguments: quote it, as in 'POST /orders/42/settle'", len(args))}
			}
			q, err := explain.New(args[0], headers)
			if err != nil {
				return usageError{fmt.Errorf("explain: %w", err)}
			}
			if !strings.HasPrefix(q.Target, "/") && !strings.Contains(q.Target, "://") && q.Target != "*" {
				return usageError{fmt.Errorf("explain: the target %q does not begin with /", q.Target)}
			}
			if q.Body, err = readData(cmd.InOrStdin(), data); err != nil {
				return usageError{fmt.Errorf("explain: reading -d: %w", err)}
			}
			uses := []string{"answer", "backend", "front_controllers", "locks", "rules"}
			if live {
				uses = append(uses, "redis")
			}
			c, err := env.loadPart(uses...)
			if err != nil {
				return err
			}
			e, err := q.Explain(cmd.Context(), c)
			if err != nil {
				return usageError{fmt.Errorf("%s: %w", env.file, err)}
			}
			if live {
				if err := e.ReadRedis(cmd.Context(), c); err != nil {
					return err
				}
				if e.Table, err = lookUpTable(cmd.Context(), env, e); err != nil {
					return err
				}
			}
			if asJSON {
				return admin.WriteJSON(env.stdout, e)
			}
			return e.Print(env.stdout)
		},
	}
	cmd.Flags().StringArrayVarP(&headers, "header", "H", nil, "a header as 'name: value', any number of times; host is the authority")
	cmd.Flags().StringVarP(&data, "data", "d", "", "the body as it is, @FILE, or @- for stdin; it brings no content-type")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	cmd.Flags().BoolVar(&live, "live", false, "ask Redis whether the order's lock is held, its answer is stored and its conditions hold, and the table of a create whether it has the order; changes nothing")
	return cmd
}

// maxData bounds the bytes read of a body. It exceeds the largest max_body, 1 MiB, so the
// cut changes no verdict.
const maxData = 1<<20 + 1

func readData(stdin io.Reader, data string) ([]byte, error) {
	path, isFile := strings.CutPrefix(data, "@")
	switch {
	case !isFile:
		return []byte(data), nil
	case path != "-":
		f, err := os.Open(path)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		stdin = f
	}
	return io.ReadAll(io.LimitReader(stdin, maxData))
}

// lookUpTable looks the order of a create up, as the server does for an order that the filter does
// not take for new. It returns nil if the server would look nothing up. It blocks for the timeout
// of the rule's dedup at most.
func lookUpTable(ctx context.Context, env *environment, e *explain.Explanation) (*explain.TableState, error) {
	if e.Confirms() == "" || e.ID == nil {
		return nil, nil
	}
	c, err := env.loadPart("filters", "rules", "sources")
	if err != nil {
		return nil, err
	}
	state := &explain.TableState{Source: e.Confirms()}
	for i := range c.Rules {
		if c.Rules[i].Name != *e.Rule {
			continue
		}
		confirmer, err := loader.NewConfirmer(c, &c.Rules[i], slog.New(slog.DiscardHandler))
		if err != nil {
			return nil, err
		}
		defer confirmer.Close()
		exists, err := confirmer.Exists(ctx, *e.ID)
		if err != nil {
			state.Error = new(err.Error())
		} else {
			state.Exists = &exists
		}
	}
	return state, nil
}

// visible is admin.Visible.
func visible(text string) string { return admin.Visible(text) }

// nilIf is admin.NilIf.
func nilIf[T comparable](none, value T) *T { return admin.NilIf(none, value) }
