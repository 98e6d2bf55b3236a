package changelog

import (
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ordergate/ordergate/internal/testbed/bedtest"
)

// tcpServer is a Redis of a testbed.
type tcpServer struct{ addr string }

func (s tcpServer) options() *redis.Options { return &redis.Options{Addr: s.addr} }
func (tcpServer) stop(*testing.T)           {}
func (tcpServer) start(*testing.T)          {}

// TestOnlyTheMasterProvesAnything reads a master, a replica of it, and the master
// again when it has lost its replica and was told to mind that. The last two may
// lack what a new master has acknowledged.
func TestOnlyTheMasterProvesAnything(t *testing.T) {
	t.Parallel()
	bed := bedtest.New(t)
	master := bed.Redis("--min-replicas-to-write", "1", "--min-replicas-max-lag", "2", "--repl-diskless-sync-delay", "0")
	replica := bed.Replica(master)
	// A failure of the reader, rather than of the wait, is what is looked for.
	opts := Options{PollEvery: time.Millisecond, Limit: 10 * time.Second}
	writer := runInstance(t, tcpServer{master.Addr()}, opts)
	eventually(t, "the replica counts", func() bool { return writer.Append(t.Context(), "1") == nil })
	eventually(t, "the master is read", func() bool { return writer.Wait(t.Context()) == nil })
	client := connect(t, tcpServer{replica.Addr()})
	eventually(t, "the replica has it", func() bool { return client.XLen(t.Context(), logKey).Val() > 0 })

	reader := runInstance(t, tcpServer{replica.Addr()}, opts)
	if err := reader.Wait(t.Context()); !errors.Is(err, ErrUnavailable) || errors.Is(err, ErrBroken) || !redis.HasErrorPrefix(err, "READONLY") {
		t.Errorf("Wait on a replica = %v, want ErrUnavailable for READONLY", err)
	}
	if reader.count() != 0 {
		t.Error("entries of a replica were applied")
	}
	reader.stop()

	// Reads change nothing that a replica would have to be sent.
	changes := func() string {
		info := writer.client.InfoMap(t.Context(), "persistence").Val()
		return info["Persistence"]["rdb_changes_since_last_save"]
	}
	before, reads := changes(), writer.State().Reads
	eventually(t, "the log is read some more", func() bool { return writer.State().Reads > reads+10 })
	if after := changes(); after != before || before == "" {
		t.Errorf("ten reads made %q changes of %q", after, before)
	}

	replica.Kill()
	eventually(t, "the lonely master is not believed", func() bool {
		return redis.HasErrorPrefix(writer.Wait(t.Context()), "NOREPLICAS")
	})
	if err := replica.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it is, with its replica", func() bool { return writer.Wait(t.Context()) == nil })
	if !writer.has("1") {
		t.Error("the entry is missing")
	}
}
