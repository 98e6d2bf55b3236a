package logical

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/ordergate/ordergate/internal/source/follow"
)

// buffered is how many messages may wait to be applied. Each has one row at most.
const buffered = 256

// stream is a connection on which the server sends changes. One goroutine receives messages,
// another sends replies.
type stream struct {
	messages chan message
	failed   chan error // one error, after the last message

	oid  uint32 // of the table
	conn net.Conn
	wg   sync.WaitGroup
	done chan struct{}
	stop func() bool
}

// message is a keepalive or a change.
type message struct {
	keepalive *pglogrepl.PrimaryKeepaliveMessage
	change    pglogrepl.Message
}

// openStream asks the server to send the changes after a checkpoint. If the server was started since,
// it moves the checkpoint back to the slot's own position: the server may have been restored, and have
// other changes between the two. The caller closes the stream.
func (f *Follower) openStream(ctx context.Context, s *setup, at *checkpoint, sl slot) (*stream, error) {
	limited, cancel := context.WithTimeout(ctx, 2*timeout)
	defer cancel()
	conn, err := pgconn.ConnectConfig(limited, f.replication())
	if err != nil {
		return nil, f.explainStream(err)
	}
	err = sameServer(limited, conn, s)
	if err == nil {
		at.Timeline, err = joinHistory(limited, conn, *at)
	}
	if err == nil {
		if at.Server != s.server {
			at.Server, at.LSN = s.server, sl.Confirmed
		}
		err = pglogrepl.StartReplication(limited, conn, f.opts.Slot, pglogrepl.LSN(at.LSN), pglogrepl.StartReplicationOptions{
			// Version 1 sends a transaction as a whole, once it is committed.
			PluginArgs: []string{"proto_version '1'", `publication_names '"` + f.opts.Publication + `"'`},
		})
	}
	var hijacked *pgconn.HijackedConn
	if err == nil {
		hijacked, err = conn.Hijack()
	}
	if err != nil {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = conn.Close(closing) // it is unusable
		return nil, f.explainStream(err)
	}
	st := &stream{
		messages: make(chan message, buffered), failed: make(chan error, 1), done: make(chan struct{}),
		oid: s.oid, conn: hijacked.Conn,
	}
	st.stop = context.AfterFunc(ctx, st.hangUp)
	st.wg.Go(func() { st.failed <- f.explainStream(st.receive(hijacked.Frontend)) })
	return st, nil
}

// sameServer returns an error if both connections do not lead to one server: a name may stand for
// several.
func sameServer(ctx context.Context, conn *pgconn.PgConn, s *setup) error {
	results, err := conn.Exec(ctx, "SELECT "+serverName).ReadAll()
	if err != nil {
		return err
	}
	if len(results) != 1 || len(results[0].Rows) != 1 || string(results[0].Rows[0][0]) != s.server {
		return errors.New("another server answers than did before")
	}
	return nil
}

// receive passes messages on until the connection ends.
func (s *stream) receive(from *pgproto3.Frontend) (err error) {
	defer func() {
		if recover() != nil { // the decoder does not check lengths
			err = follow.Permanent(fmt.Errorf("%w: a message has a form that is not known", follow.ErrUnsure))
		}
	}()
	for {
		msg, err := from.Receive()
		if err != nil {
			return fmt.Errorf("reading changes: %w", err)
		}
		switch msg := msg.(type) {
		case *pgproto3.CopyData:
			m, ok, err := s.parse(msg.Data)
			if err != nil {
				return follow.Permanent(fmt.Errorf("%w: %w", follow.ErrUnsure, err))
			}
			if !ok {
				continue
			}
			select {
			case s.messages <- m:
			case <-s.done:
				return net.ErrClosed
			}
		case *pgproto3.ErrorResponse:
			return pgconn.ErrorResponseToPgError(msg)
		case *pgproto3.CopyDone:
			return errors.New("the server has ended the changes")
		}
	}
}

// parse returns a message, or false for one that does not matter. The connection reuses the data.
func (s *stream) parse(data []byte) (m message, ok bool, err error) {
	switch data[0] {
	case pglogrepl.PrimaryKeepaliveMessageByteID:
		keepalive, err := pglogrepl.ParsePrimaryKeepaliveMessage(data[1:])
		return message{keepalive: &keepalive}, true, err
	case pglogrepl.XLogDataByteID:
		log, err := pglogrepl.ParseXLogData(data[1:])
		if err != nil {
			return m, false, err
		}
		switch kind := pglogrepl.MessageType(log.WALData[0]); kind {
		case pglogrepl.MessageTypeBegin, pglogrepl.MessageTypeCommit:
		case pglogrepl.MessageTypeRelation, pglogrepl.MessageTypeInsert, pglogrepl.MessageTypeUpdate:
			// The publication may contain other tables.
			if binary.BigEndian.Uint32(log.WALData[1:]) != s.oid {
				return m, false, nil
			}
		default:
			return m, false, nil
		}
		change, err := pglogrepl.Parse(slices.Clone(log.WALData))
		return message{change: change}, true, err
	}
	return m, false, nil
}

// sendStatus sends the position up to which the server may remove changes. It can request the
// server's progress.
func (s *stream) sendStatus(at lsn, requestReply bool) error {
	data := make([]byte, 0, 34)
	data = append(data, pglogrepl.StandbyStatusUpdateByteID)
	for range 3 { // written, flushed, applied
		data = binary.BigEndian.AppendUint64(data, uint64(at))
	}
	data = binary.BigEndian.AppendUint64(data, uint64(time.Since(postgresEpoch).Microseconds()))
	reply := byte(0)
	if requestReply {
		reply = 1
	}
	encoded, err := (&pgproto3.CopyData{Data: append(data, reply)}).Encode(nil)
	if err != nil {
		return err
	}
	if err := s.conn.SetWriteDeadline(time.Now().Add(timeout)); err != nil {
		return err
	}
	_, err = s.conn.Write(encoded)
	return err
}

// postgresEpoch is the zero of the protocol's times.
var postgresEpoch = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

// hangUp ends the connection at once.
func (s *stream) hangUp() { s.conn.Close() }

func (s *stream) close() {
	s.stop()
	close(s.done)
	s.hangUp()
	s.wg.Wait()
}
