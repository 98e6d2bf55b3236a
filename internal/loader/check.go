package loader

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ordergate/ordergate/config"
	"github.com/ordergate/ordergate/internal/changelog"
	"github.com/ordergate/ordergate/internal/rules"
	"github.com/ordergate/ordergate/internal/source"
	"github.com/ordergate/ordergate/internal/source/binlog"
	"github.com/ordergate/ordergate/internal/source/follow"
	"github.com/ordergate/ordergate/internal/spelling"
	"github.com/ordergate/ordergate/internal/wait"
)

// checkTimeout bounds each step of a check: reading a change log, or a query to a database.
const checkTimeout = 10 * time.Second

// CheckLog reads the change log of a filter until its end or for some seconds, and returns why
// it cannot be read. It joins no log as a member.
func CheckLog(ctx context.Context, client redis.UniversalClient, name string) error {
	log, err := changelog.New(client, name, func(string) {}, changelog.Options{})
	if err != nil {
		return err
	}
	reading, stop := context.WithTimeout(ctx, checkTimeout)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = log.Run(reading) // the state has its error
	}()
	defer func() { stop(); <-done }()
	for reading.Err() == nil {
		switch state := log.State(); {
		case errors.Is(state.Err, changelog.ErrBlind), errors.Is(state.Err, changelog.ErrBroken), errors.Is(state.Err, changelog.ErrUnavailable):
			return state.Err
		case state.Phase != changelog.Loading:
			return nil
		}
		_ = wait.For(reading, 10*time.Millisecond)
	}
	return nil // it is long and readable
}

// SampleTable reads a few rows of a table, and follows it for a moment if it is to be followed. It
// returns why it cannot.
func SampleTable(ctx context.Context, name string, c config.Source, parts []string) (source.Sample, error) {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	table, err := newTableSource(name, c, parts, nil, slog.New(slog.DiscardHandler))
	if err != nil {
		return source.Sample{}, err
	}
	sample, err := table.table.Sample(ctx)
	if err == nil && c.Follow == config.FollowBinlog {
		err = followOnce(ctx, c)
	}
	return sample, err
}

// Alike calls do with what the columns of a table take for the same.
func Alike(ctx context.Context, name string, c config.Source, parts []string, do func(columns []spelling.Column) error) error {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	table, err := newTableSource(name, c, parts, nil, slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	return table.table.Alike(ctx, do)
}

// errSampled ends the reading of a long file.
var errSampled = errors.New("enough was read")

// SampleFile reads a file for some seconds, as a load of the filter does, and returns the first
// IDs and the last one that it has read. It returns why a load would fail.
func SampleFile(ctx context.Context, c *config.Config, filter, name string) (s source.Sample, err error) {
	formats, err := rules.FormatsOf(c, filter)
	if err != nil {
		return s, err
	}
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	s.Column = "the first column"
	began, number, last := time.Now(), 0, ""
	add := func(id string) {
		s.Rows = append(s.Rows, source.SampleRow{Where: fmt.Sprintf("ID number %d", number), ID: id})
	}
	report, err := source.CSV(c.Sources[name].Path, source.Options{Check: rules.Check(formats)}).Read(ctx, func(id string) error {
		number, last = number+1, id
		if number <= 3 {
			add(id)
		} else if number%10_000 == 0 && time.Since(began) > checkTimeout/2 {
			return errSampled
		}
		return nil
	})
	if number > 3 {
		add(last)
	}
	switch {
	case err != nil && !errors.Is(err, errSampled):
		return s, err
	case report.Skipped > 0:
		return s, fmt.Errorf("%d lines are no order IDs by any rule's format, the first is %s; correct or remove them", report.Skipped, report.First[0])
	}
	return s, nil
}

// errFollowed ends a follower that has begun.
var errFollowed = errors.New("it has begun")

// followOnce follows a table until the database has reported the position of its log.
func followOnce(ctx context.Context, c config.Source) error {
	f, err := binlog.New(binlog.Options{Options: follow.Options{
		DSN: string(c.DSN), Table: c.Table, IDColumn: c.IDColumn, PartColumns: slices.Sorted(maps.Values(c.PartColumns)), Advance: 10 * time.Millisecond,
	}}) // without its server_id: a replica of that name may run
	if err != nil {
		return err
	}
	err = f.Follow(ctx, "", func(context.Context, []string, string) error { return errFollowed }, func(time.Time) {})
	if errors.Is(err, errFollowed) || errors.Is(err, context.DeadlineExceeded) { // the table could be read
		return nil
	}
	return err
}
