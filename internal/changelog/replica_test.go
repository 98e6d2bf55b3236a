package changelog

import (
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// tcpServer is a Redis of a testbed.
type tcpServer struct{ addr string }

func (s tcpServer) options() *redis.Options { return &redis.Options{Addr: s.addr} }
func (tcpServer) stop(*testing.T)           {}
func (tcpServer) start(*testing.T)          {}

// TestReplicaIsRefused reads a primary, a replica of it, and the primary again after it lost its
// replica with min-replicas-to-write set. The last two may lack writes that a new primary has
// acknowledged.
func TestReplicaIsRefused(t *testing.T) {
	t.Parallel()
	bed := bedtest.New(t)
	writable := bed.Redis("--min-replicas-to-write", "1", "--min-replicas-max-lag", "2", "--repl-diskless-sync-delay", "0")
	replica := bed.Replica(writable)
	// The test needs an error of the reader, not of the wait.
	opts := Options{PollEvery: time.Millisecond, Timeout: 10 * time.Second}
	writer := runInstance(t, tcpServer{writable.Addr()}, opts)
	eventually(t, "the replica counts", func() bool { return writer.Append(t.Context(), "1") == nil })
	eventually(t, "the primary is read", func() bool { return writer.Wait(t.Context()) == nil })
	client := connect(t, tcpServer{replica.Addr()})
	eventually(t, "the replica has it", func() bool { return client.XLen(t.Context(), logKey).Val() > 0 })

	reader := runInstance(t, tcpServer{replica.Addr()}, opts)
	if err := reader.Wait(t.Context()); !errors.Is(err, ErrUnavailable) || errors.Is(err, ErrBroken) || !redis.IsReadOnlyError(err) {
		t.Errorf("Wait on a replica = %v, want ErrUnavailable for READONLY", err)
	}
	if reader.count() != 0 {
		t.Error("entries of a replica were applied")
	}
	reader.stop()

	// Reads write nothing that goes to a replica, except the time every 50 ms.
	changes := func() int {
		info := writer.client.InfoMap(t.Context(), "persistence").Val()
		n, err := strconv.Atoi(info["Persistence"]["rdb_changes_since_last_save"])
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	began, before, reads := time.Now(), changes(), writer.State().Reads
	eventually(t, "the log is read some more", func() bool { return writer.State().Reads > reads+30 })
	if made := changes() - before; made > int(time.Since(began)/(50*time.Millisecond))+1 {
		t.Errorf("30 reads in %v made %d changes", time.Since(began), made)
	}

	replica.Kill()
	eventually(t, "the primary without replicas is refused", func() bool {
		err := writer.Wait(t.Context())
		return err != nil && strings.Contains(err.Error(), "NOREPLICAS ") // Redis 6.2 puts the script before it
	})
	if err := replica.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it is, with its replica", func() bool { return writer.Wait(t.Context()) == nil })
	if !writer.has("1") {
		t.Error("the entry is missing")
	}
}
