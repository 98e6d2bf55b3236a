package kafka

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/goleak"

	"github.com/ordergate/ordergate/internal/orderid"
	"github.com/ordergate/ordergate/tests/testbed"
	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// topic is a topic of a real server, with a producer.
type topic struct {
	t      *testing.T
	server *testbed.Kafka
	name   string
	client *kgo.Client
}

func newTopic(t *testing.T, server *testbed.Kafka, name string, partitions int32) *topic {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(server.Addr()), kgo.DefaultProduceTopic(name), kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerBatchMaxBytes(20<<20), kgo.MetadataMinAge(20*time.Millisecond), kgo.MetadataMaxAge(200*time.Millisecond))
	bedtest.Check(t, err)
	t.Cleanup(client.Close)
	topic := &topic{t, server, name, client}
	topic.create(partitions)
	return topic
}

func (p *topic) create(partitions int32) {
	p.t.Helper()
	bedtest.Eventually(p.t, "the topic is there", func() bool { // one that is being deleted is in the way
		return p.server.CreateTopic(p.t.Context(), p.name, partitions) == nil
	})
}

func (p *topic) remove() {
	p.t.Helper()
	request := kmsg.NewPtrDeleteTopicsRequest()
	request.TopicNames = []string{p.name}
	of := kmsg.NewDeleteTopicsRequestTopic()
	of.Topic = &p.name
	request.Topics = append(request.Topics, of)
	_, err := request.RequestWith(p.t.Context(), p.client)
	bedtest.Check(p.t, err)
	p.client.PurgeTopicsFromClient(p.name) // the next one of this name is another
}

// grow gives the topic more partitions.
func (p *topic) grow(partitions int32) {
	p.t.Helper()
	request := kmsg.NewPtrCreatePartitionsRequest()
	of := kmsg.NewCreatePartitionsRequestTopic()
	of.Topic, of.Count = p.name, partitions
	request.Topics = append(request.Topics, of)
	_, err := request.RequestWith(p.t.Context(), p.client)
	bedtest.Check(p.t, err)
}

// write writes messages to a partition.
func (p *topic) write(partition int32, messages ...string) {
	p.t.Helper()
	for _, m := range messages {
		bedtest.Eventually(p.t, "it is written", func() bool { // a partition may be new
			err := p.client.ProduceSync(p.t.Context(), &kgo.Record{Partition: partition, Value: []byte(m)}).FirstErr()
			return err == nil
		})
	}
}

// sink is what a reader emits.
type sink struct {
	t      *testing.T
	cancel context.CancelFunc
	done   chan error

	mu       sync.Mutex
	ids      []string
	place    string
	bad      []string
	caughtUp time.Time
}

// read begins to read from a place.
func (p *topic) read(place string, change ...func(*Options)) *sink {
	p.t.Helper()
	ctx, cancel := context.WithCancel(p.t.Context())
	s := &sink{t: p.t, cancel: cancel, done: make(chan error, 1), place: place}
	opts := Options{
		Brokers: []string{p.server.Addr()}, Topic: p.name, Format: JSON, ID: []string{"id"}, Check: orderid.Check[string],
		OnBad: func(position, reason string) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.bad = append(s.bad, position+": "+reason)
		},
		CaughtUp: func(at time.Time) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.caughtUp = at
		},
	}
	for _, c := range change {
		c(&opts)
	}
	f := New(opts)
	go func() {
		s.done <- f.Read(ctx, place, func(_ context.Context, ids []string, place string) error {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.ids, s.place = append(s.ids, ids...), place
			return nil
		})
	}()
	p.t.Cleanup(func() { s.stop() })
	return s
}

// stop ends the reading, and returns the place.
func (s *sink) stop() string {
	s.cancel()
	_ = s.ended()
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.place
}

// ended waits for the end of the reading.
func (s *sink) ended() error {
	s.t.Helper()
	err := bedtest.Receive(s.t, "the end", s.done)
	s.done <- err
	return err
}

// want waits until these IDs were emitted, in any order, and none else.
func (s *sink) want(ids ...string) {
	s.t.Helper()
	slices.Sort(ids)
	var got []string
	defer func() {
		if s.t.Failed() {
			s.t.Logf("got %q, want %q", got, ids)
		}
	}()
	bedtest.Eventually(s.t, "the IDs "+strings.Join(ids, " "), func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		got = slices.Compact(slices.Sorted(slices.Values(s.ids)))
		return slices.Equal(got, ids)
	})
}

func message(id any) string { return fmt.Sprintf(`{"id":%v}`, id) }

// TestRead reads topics of a real server.
func TestRead(t *testing.T) {
	bed := bedtest.New(t)
	server := bed.Kafka("message.max.bytes=20000000") // of each topic, too
	t.Run("from each place", func(t *testing.T) {
		p := newTopic(t, server, "orders", 2)
		p.write(0, message(1), message(2), "{", message(3))
		p.write(1, message(4))
		s := p.read("")
		s.want("1", "2", "3", "4")
		s.mu.Lock()
		if len(s.bad) != 1 || s.bad[0] != "partition 0, offset 2: id is missing: there is no object" {
			t.Errorf("bad: %q", s.bad)
		}
		s.mu.Unlock()
		p.write(1, message(5))
		s.want("1", "2", "3", "4", "5")
		place := s.stop()
		p.write(0, message(6), `{"id":7,"x":"`+strings.Repeat("x", 10<<20)+`"}`)
		p.grow(3)
		p.write(2, message(8))
		s = p.read(place)
		s.want("6", "7", "8")
		begun := time.Now()
		bedtest.Eventually(t, "it has caught up", func() bool {
			s.mu.Lock()
			defer s.mu.Unlock()
			return s.caughtUp.After(begun)
		})
		p.grow(4)
		p.write(3, message(9)) // of a partition that is new while it is read
		s.want("6", "7", "8", "9")
	})
	t.Run("a topic that is replaced", func(t *testing.T) {
		p := newTopic(t, server, "replaced", 1)
		p.write(0, message(1), message(2))
		s := p.read("")
		s.want("1", "2")
		place := s.stop()
		p.remove()
		p.create(1)
		p.write(0, message(3))
		s = p.read(place)
		s.want("3")
		p.remove() // while it is read
		p.create(1)
		p.write(0, message(4))
		bedtest.Eventually(t, "it goes on", func() bool {
			if len(s.done) > 0 { // it has looked while there was none
				s = p.read(s.stop())
			}
			s.mu.Lock()
			defer s.mu.Unlock()
			return slices.Contains(s.ids, "4")
		})
	})
	t.Run("transactions", func(t *testing.T) {
		p := newTopic(t, server, "transactions", 1)
		producer, err := kgo.NewClient(kgo.SeedBrokers(server.Addr()), kgo.DefaultProduceTopic(p.name), kgo.TransactionalID("t"))
		bedtest.Check(t, err)
		defer producer.Close()
		for id, end := range []kgo.TransactionEndTry{kgo.TryCommit, kgo.TryAbort} {
			bedtest.Check(t, producer.BeginTransaction())
			bedtest.Check(t, producer.ProduceSync(t.Context(), kgo.StringRecord(message(id+1))).FirstErr())
			bedtest.Check(t, producer.EndTransaction(t.Context(), end))
		}
		begun := time.Now()
		s := p.read("")
		bedtest.Eventually(t, "it has caught up", func() bool {
			s.mu.Lock()
			defer s.mu.Unlock()
			return s.caughtUp.After(begun)
		})
		s.want("1")
	})
	t.Run("logins", func(t *testing.T) {
		p := newTopic(t, server, "logins", 1)
		p.write(0, message(1))
		trust, err := bed.Certificates().ClientConfig()
		bedtest.Check(t, err)
		trust.Certificates = nil
		for _, mechanism := range []string{"plain", "scram-sha-256", "scram-sha-512"} {
			as := func(password string) func(*Options) {
				return func(o *Options) {
					o.Brokers, o.TLS, o.Mechanism = []string{server.SecureAddr()}, trust, mechanism
					o.Username, o.Password = testbed.KafkaUser, func() string { return password }
				}
			}
			p.read("", as(testbed.KafkaPassword)).want("1")
			if err := p.read("", as("another")).ended(); !errors.Is(err, kerr.SaslAuthenticationFailed) {
				t.Errorf("%s: with another password: %v", mechanism, err)
			}
		}
		for want, config := range map[string]*tls.Config{
			"is this a plaintext connection speaking to a tls endpoint?": nil,
			"certificate signed by unknown authority":                    {MinVersion: tls.VersionTLS12},
			"is SASL missing?": trust,
		} {
			err := p.read("", func(o *Options) { o.Brokers, o.TLS = []string{server.SecureAddr()}, config }).ended()
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("got %v, want %q", err, want)
			}
		}
	})
	t.Run("no topic", func(t *testing.T) {
		p := &topic{t: t, server: server, name: "none"}
		if err := p.read("").ended(); err == nil || !strings.Contains(err.Error(), "looking for topic none: UNKNOWN_TOPIC_OR_PARTITION") {
			t.Errorf("got %v", err)
		}
	})
	t.Run("a server that is away", func(t *testing.T) {
		p := newTopic(t, server, "away", 1)
		p.write(0, message(1))
		s := p.read("")
		s.want("1")
		server.Kill()
		if s.ended() == nil {
			t.Error("no error")
		}
		bedtest.Check(t, server.Restart(t.Context()))
		p.write(0, message(2))
		s = p.read(s.place)
		s.want("2")
	})
}
