package command

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/ordergate/ordergate/filter/snapshot"
	"github.com/ordergate/ordergate/internal/admin"
	"github.com/ordergate/ordergate/internal/changelog"
)

// snapshotFile describes a snapshot file. It contains no secret.
type snapshotFile struct {
	Path              string          `json:"path"`
	Filter            string          `json:"filter"`
	Kind              string          `json:"kind"`
	Capacity          uint64          `json:"capacity"` // as configured
	FalsePositiveRate float64         `json:"false_positive_rate"`
	Layout            *string         `json:"layout"` // null: an exact set
	KeyFingerprint    string          `json:"key_fingerprint"`
	Sources           *string         `json:"sources"`  // their fingerprint; null: not known
	Position          *changelog.Mark `json:"position"` // null: no change log
	Created           time.Time       `json:"created"`
	Bytes             uint64          `json:"bytes"`
	IDs               uint64          `json:"ids"`
	Parts             []snapshotPart  `json:"parts"`
}

// snapshotPart is a layer of one of the filter's parts.
type snapshotPart struct {
	Label    string  `json:"label"` // the part (a day, for example) and the layer
	IDs      uint64  `json:"ids"`
	Bytes    uint64  `json:"bytes"`
	Capacity *uint64 `json:"capacity"` // null: an exact set
}

func filterInspectCommand(env *environment, asJSON *bool) *cobra.Command {
	return &cobra.Command{
		Use:   "inspect FILE",
		Short: "Read all of a snapshot, and show its contents",
		Args:  oneArgument("file"),
		RunE: func(cmd *cobra.Command, args []string) error {
			f, err := inspectSnapshot(cmd.Context(), args[0])
			if err != nil {
				return fmt.Errorf("filter snapshot inspect: %w", err)
			}
			if *asJSON {
				return admin.WriteJSON(env.stdout, f)
			}
			return f.print(env.stdout)
		},
	}
}

// inspectSnapshot describes a file after it verified all checksums. It fails for a damaged
// file.
func inspectSnapshot(ctx context.Context, path string) (*snapshotFile, error) {
	file, err := snapshot.Inspect(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	if err := file.Verify(ctx); err != nil {
		return nil, err
	}
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	h := file.Header()
	f := &snapshotFile{
		Path: path, Filter: h.Name, Kind: h.Kind, Capacity: h.Capacity, FalsePositiveRate: h.FalsePositiveRate,
		KeyFingerprint: hex.EncodeToString(h.KeyFingerprint[:]), Created: h.Created, Bytes: uint64(info.Size()), Parts: []snapshotPart{},
	}
	if h.Layout != "" {
		f.Layout = new(string(h.Layout))
	}
	if h.Sources != "" {
		f.Sources = &h.Sources
	}
	var at changelog.Mark
	if json.Unmarshal(h.Position, &at) == nil {
		f.Position = &at
	}
	for _, s := range file.Sections() {
		part := snapshotPart{Label: s.Label, IDs: s.Count, Bytes: s.Bytes}
		if !s.Exact {
			part.Capacity = &s.Params.Capacity
		}
		f.IDs += s.Count
		f.Parts = append(f.Parts, part)
	}
	return f, nil
}

func (f *snapshotFile) print(w io.Writer) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	line := func(name, format string, args ...any) {
		fmt.Fprintf(table, "%s\t%s\n", name, fmt.Sprintf(format, args...))
	}
	line("filter", "%s", visible(f.Filter))
	line("kind", "%s", visible(f.Kind))
	if f.Layout != nil {
		line("layout", "%s", visible(*f.Layout))
	}
	line("capacity", "%d", f.Capacity)
	line("false positive rate", "%g", f.FalsePositiveRate)
	line("key fingerprint", "%s", f.KeyFingerprint)
	line("written", "%s", f.Created.Format(time.RFC3339))
	line("ids", "%d", f.IDs)
	line("bytes", "%d, all checksums are right", f.Bytes)
	if f.Position != nil {
		line("change log", "up to entry %d of log %s", f.Position.Seq, visible(f.Position.LogID))
	}
	if f.Sources != nil {
		line("sources", "%s", visible(*f.Sources))
	} else {
		line("sources", "will be read again")
	}
	for _, p := range f.Parts {
		room := ""
		if p.Capacity != nil {
			room = fmt.Sprintf(" of %d", *p.Capacity)
		}
		line("part "+visible(p.Label), "%d IDs%s in %d bytes", p.IDs, room, p.Bytes)
	}
	return table.Flush()
}
