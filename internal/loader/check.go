package loader

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"os"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ordergate/ordergate/config"
	"github.com/ordergate/ordergate/internal/changelog"
	"github.com/ordergate/ordergate/internal/source/binlog"
	"github.com/ordergate/ordergate/internal/source/follow"
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

// CheckSource returns why a file or a table cannot be read, or a table cannot be followed,
// with its place in the source's section.
func CheckSource(ctx context.Context, name string, c config.Source) (place string, err error) {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	if !c.Live() {
		file, err := os.Open(c.Path)
		if err != nil {
			return ".path", err
		}
		_ = file.Close()
		return "", nil
	}
	table, err := newTableSource(name, c, slices.Sorted(maps.Keys(c.PartColumns)), nil, slog.New(slog.DiscardHandler))
	if err == nil {
		_, err = table.table.Check(ctx)
	}
	if err == nil && c.Follow == config.FollowBinlog {
		err = followOnce(ctx, c)
	}
	return "", err
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
