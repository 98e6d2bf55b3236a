package binlog

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/go-mysql-org/go-mysql/client"
	gomysql "github.com/go-mysql-org/go-mysql/mysql"
	"github.com/go-mysql-org/go-mysql/replication"

	"github.com/ordergate/ordergate/internal/source/dsn"
)

// buffered is how many events may wait to be applied: enough to keep the connection busy, few
// enough to bound the memory. A server splits rows into events of 8 KiB
// (binlog_row_event_max_size), unless a row is longer.
const buffered = 64

// stream is a connection on which the server sends its log. It does not reconnect: only its caller
// knows the checkpoint to continue from.
type stream struct {
	events chan *replication.BinlogEvent
	failed chan error // one error, after the last event

	ctx    context.Context
	cancel context.CancelFunc
	syncer *replication.BinlogSyncer
	wg     sync.WaitGroup

	mu     sync.Mutex // guards conn and closed
	conn   net.Conn
	closed bool
}

// openStream asks the server to send its log from a checkpoint on. The caller closes the stream.
func (f *Follower) openStream(ctx context.Context, s server, at checkpoint, l *layout) (*stream, error) {
	st := &stream{
		events: make(chan *replication.BinlogEvent, buffered),
		failed: make(chan error, 1),
	}
	st.ctx, st.cancel = context.WithCancel(ctx)
	st.syncer = replication.NewBinlogSyncer(replication.BinlogSyncerConfig{
		ServerID:  f.serverID(),
		Flavor:    s.flavor,
		Host:      f.config.Addr,
		User:      f.config.User,
		Password:  dsn.MySQLPassword(f.config, f.opts.RereadDSN),
		Localhost: "ordergate", // shown by SHOW REPLICA HOSTS
		TLSConfig: f.tls(s.encrypted),
		Logger:    slog.New(slog.DiscardHandler), // it logs at info what the tailer logs at debug
		Dialer: func(context.Context, string, string) (net.Conn, error) {
			return st.dial(f)
		},
		Option:                  func(c *client.Conn) error { return sameServer(c, s) },
		HeartbeatPeriod:         heartbeat,
		ReadTimeout:             readTimeout,
		DisableRetrySync:        true,
		DiscardGTIDSet:          true,
		RowsEventDecodeFunc:     l.decode,
		SynchronousEventHandler: st,
	})
	// A server that hangs must not delay the end of the context.
	stop := context.AfterFunc(ctx, st.hangUp)
	streamer, err := st.start(at, s.name)
	if err == nil && !stop() {
		err = context.Cause(ctx)
	}
	if err != nil {
		st.close()
		return nil, explainStream(err)
	}
	st.wg.Go(func() {
		_, err := streamer.GetEvent(st.ctx)
		st.failed <- err
	})
	return st, nil
}

func (s *stream) start(at checkpoint, server string) (*replication.BinlogStreamer, error) {
	if at.Server == server && at.File != "" {
		return s.syncer.StartSync(gomysql.Position{Name: at.File, Pos: uint32(at.Pos)})
	}
	return s.syncer.StartSyncGTID(at.GTIDs.set.Clone())
}

// sameServer returns an error if both connections do not lead to one server: a name may stand for
// several.
func sameServer(c *client.Conn, s server) error {
	result, err := c.Execute("SELECT " + serverNameSQL(s.flavor))
	if err != nil {
		return err
	}
	defer result.Close()
	name, err := result.GetString(0, 0)
	if err != nil {
		return err
	}
	if name != s.name {
		return fmt.Errorf("server %s answers, after %s did", name, s.name)
	}
	return nil
}

// HandleEvent implements replication.EventHandler.
func (s *stream) HandleEvent(e *replication.BinlogEvent) error {
	select {
	case s.events <- e:
		return nil
	case <-s.ctx.Done():
		return context.Cause(s.ctx)
	}
}

// dial connects, unless the stream is closed. At its end, the library would connect once more to
// have the server end the connection.
func (s *stream) dial(f *Follower) (net.Conn, error) {
	conn, err := f.dial(s.ctx)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		conn.Close()
		return nil, net.ErrClosed
	}
	s.conn = conn
	return deadlineConn{conn}, nil
}

// deadlineConn accepts a read deadline after it was closed. Otherwise the library's Close would not
// wait for its own reader.
type deadlineConn struct{ net.Conn }

func (p deadlineConn) SetReadDeadline(t time.Time) error {
	_ = p.Conn.SetReadDeadline(t)
	return nil
}

// hangUp ends the connection at once.
func (s *stream) hangUp() {
	s.cancel()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	if s.conn != nil {
		s.conn.Close()
	}
}

func (s *stream) close() {
	s.hangUp()
	s.syncer.Close()
	s.wg.Wait()
}

// noTableID is the table's number in an event that only ends a statement.
const noTableID = 0xffffff

// matches reports whether a table is this one.
func (t tableName) matches(e *replication.TableMapEvent) bool {
	return e != nil && string(e.Table) == t.name && string(e.Schema) == t.schema
}
