package command

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ordergate/ordergate/internal/admin"
)

// Limits of the flags. Those of IDs and rate equal the configuration's.
const (
	maxIDs  = 100_000_000_000
	minRate = 1e-9
	maxRate = 0.5
	// maxShards is the number of slots of a Redis Cluster.
	maxShards = 16_384
	// maxCopies bounds --processes and --replicas.
	maxCopies = 1_000_000
)

func filterSizeCommand(env *environment, asJSON *bool) *cobra.Command {
	var flags sizeFlags
	cmd := &cobra.Command{
		Use:   "size",
		Short: "Show the memory that a filter of each kind takes, and recommend one; needs no Redis",
		Example: "  ordergate filter size --ids 200_000_000 --rate 0.001\n" +
			"  ordergate filter size --filter orders --sample ids.csv",
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			q, err := flags.request(cmd.Context(), env, cmd.Flags().Changed)
			if err != nil {
				return err
			}
			s := q.sizes()
			if s.Recommended == nil {
				return usageError{fmt.Errorf("filter size: no kind fits: %s", q.whyNoneFits(s))}
			}
			if *asJSON {
				return admin.WriteJSON(env.stdout, s)
			}
			return s.print(env.stdout)
		},
	}
	f := cmd.Flags()
	f.StringVar(&flags.filter, "filter", "", "take missing values from this filter of the configuration; default the only one, if --ids is missing")
	f.StringVar(&flags.ids, "ids", "", "how many IDs, as 200_000_000 or 2e8")
	f.StringVar(&flags.rate, "rate", "", "share of absent IDs that may pass (default 0.001)")
	f.IntVar(&flags.shards, "shards", 0, "shards of a filter in Redis; default the fewest that suffice")
	f.StringVar(&flags.sample, "sample", "", "a file of random IDs, or of all, one a line; - for standard input: shows whether an exact filter fits")
	f.StringVar(&flags.limit, "memory-limit", "1GB", "how much memory a filter may take in each process")
	f.IntVar(&flags.processes, "processes", 1, "how many ordergates there are")
	f.IntVar(&flags.replicas, "replicas", 0, "how many replicas each Redis master has")
	return cmd
}

// sizeFlags holds the flags before they are parsed.
type sizeFlags struct {
	filter, ids, rate, sample, limit string

	shards, processes, replicas int
}

// sizeRequest holds the parsed parameters of a filter.
type sizeRequest struct {
	ids       uint64
	rate      float64
	shards    int  // 0: as few as possible
	segments  bool // the configured filter has segments; the sizes do not count them
	sample    *sampleReport
	limit     uint64 // on memory in a process, in bytes
	processes int
	replicas  int
}

// request checks the flags and takes missing values from the configuration.
func (f *sizeFlags) request(ctx context.Context, env *environment, given func(string) bool) (*sizeRequest, error) {
	wrong := func(format string, args ...any) (*sizeRequest, error) {
		return nil, usageError{fmt.Errorf("filter size: "+format, args...)}
	}
	q := &sizeRequest{rate: 0.001, processes: f.processes, replicas: f.replicas}
	if !given("ids") || given("filter") || given("config") {
		if err := f.configured(q, env); err != nil {
			return nil, err
		}
	}
	var err error
	if given("ids") {
		if q.ids, err = parseCount(f.ids); err != nil || q.ids < 1 || q.ids > maxIDs {
			return wrong("--ids %q is not a whole number such as 200_000_000 or 2e8, from 1 to 1e11", f.ids)
		}
	}
	if given("rate") {
		// This form of the condition also refuses NaN.
		if q.rate, err = parseNumber(f.rate); err != nil || !(q.rate >= minRate && q.rate <= maxRate) {
			return wrong("--rate %q is not a share such as 0.001, from 1e-9 to 0.5", f.rate)
		}
	}
	if given("shards") {
		if q.shards = f.shards; q.shards < 1 || q.shards > maxShards {
			return wrong("--shards %d: want 1 to %d", f.shards, maxShards)
		}
	}
	if q.limit, err = parseBytes(f.limit); err != nil || q.limit == 0 {
		return wrong("--memory-limit %q is not a size such as 512MB, 1GB or 1.5GiB", f.limit)
	}
	if f.processes < 1 || f.processes > maxCopies {
		return wrong("--processes %d: want 1 to %d", f.processes, maxCopies)
	}
	if f.replicas < 0 || f.replicas > maxCopies {
		return wrong("--replicas %d: want 0 to %d", f.replicas, maxCopies)
	}
	if given("sample") {
		if q.sample, err = readSample(ctx, f.sample, q.ids, q.rate); err != nil {
			return wrong("--sample %w", err)
		}
	}
	return q, nil
}

// configured copies the parameters of a configured filter to q.
func (f *sizeFlags) configured(q *sizeRequest, env *environment) error {
	c, err := env.loadPart("filters")
	var wrong usageError
	if errors.As(err, &wrong) && errors.Is(wrong.error, fs.ErrNotExist) && f.filter == "" {
		return usageError{fmt.Errorf("filter size: how many IDs? (--ids, or a configuration): %w", err)}
	}
	if err != nil {
		return err
	}
	names := slices.Sorted(maps.Keys(c.Filters))
	name := f.filter
	if name == "" && len(names) == 1 {
		name = names[0]
	}
	filter, known := c.Filters[name]
	switch {
	case known:
	case len(names) == 0:
		return usageError{fmt.Errorf("filter size: %s has no filter: give --ids", env.file)}
	case name == "":
		return usageError{fmt.Errorf("filter size: %s has several filters, say which with --filter: %s", env.file, strings.Join(names, ", "))}
	default:
		return usageError{fmt.Errorf("filter size: --filter %q is not in %s, which has %s", name, env.file, strings.Join(names, ", "))}
	}
	q.ids, q.rate = filter.Capacity, filter.FalsePositiveRate
	q.segments = filter.Segments != nil
	if filter.Shards > 1 { // 1 is the default
		q.shards = filter.Shards
	}
	return nil
}

// whyNoneFits returns the reason why each kind does not fit.
func (q *sizeRequest) whyNoneFits(s *sizing) string {
	var reasons []string
	for _, k := range s.Kinds {
		switch {
		case k.Problem != nil:
			reasons = append(reasons, k.Kind+": "+*k.Problem)
		case k.ProcessBytes > q.limit:
			reasons = append(reasons, fmt.Sprintf("%s: %s in a process are past --memory-limit", k.name(), admin.SizeText(k.ProcessBytes)))
		}
	}
	return strings.Join(reasons, "; ")
}
