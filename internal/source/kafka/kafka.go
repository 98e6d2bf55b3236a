// Package kafka reads the IDs of orders from the messages of a Kafka topic.
//
// Start with [New] and [Feed.Read]. A topic adds orders, and is never proof that there are no others: its
// messages may have been deleted, and Canal and Debezium are known to lose rows
// (github.com/alibaba/canal/issues/425 and 4637). So a filter that has a topic also has a table or a file.
//
// message.go reads a message. There is no consumer group: the caller keeps the place, beside what it has
// stored, so that both are lost together or not at all.
package kafka

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"github.com/ordergate/ordergate/internal/runbook"
	"github.com/ordergate/ordergate/internal/source/follow"
)

// Options are the settings of a [Feed].
type Options struct {
	Brokers   []string // host:port, at least one
	Topic     string
	Format    Format
	Table     string   // of which rows are read, or schema.table; "": of all
	ID        []string // the path of the ID in a row, or in a message of format JSON
	Parts     [][]string
	Check     func(id string) (reason string) // why a text is no order ID, "" if it is one
	TLS       *tls.Config                     // nil: none
	Username  string                          // "": no login
	Password  func() string                   // as it is now; called for each connection
	Mechanism string                          // plain, scram-sha-256 or scram-sha-512

	// OnBad receives the position and the reason of a message without a usable ID, which is skipped.
	OnBad func(position, reason string)
	// CaughtUp is called when everything was emitted that the topic had at a time. It must not block.
	CaughtUp func(at time.Time)
	Logger   *slog.Logger
}

// Emit receives IDs, at most [follow.MaxChunk], and the place to continue from once they are safely
// stored. [Feed.Read] ends with its error.
type Emit func(ctx context.Context, ids []string, place string) error

// topicID is the ID of a topic: another one of the same name has another.
type topicID = [16]byte

// place is where a feed continues. Offsets has the next offset of each partition.
type place struct {
	Topic   topicID         `json:"topic"`
	Offsets map[int32]int64 `json:"offsets"`
}

const (
	// lookEvery is how often a feed asks for the end of the topic, and for new partitions.
	lookEvery = time.Second
	// lookTimeout bounds one such request with its retries.
	lookTimeout = 5 * time.Second
	// maxWait is how long a server waits for messages before it answers that there are none.
	maxWait = 500 * time.Millisecond
)

// errReplaced is the reason why a feed begins anew.
var errReplaced = errors.New("the topic was replaced by another one of its name")

// Feed reads a topic. Its method must not be called by several goroutines at once.
type Feed struct{ opts Options }

// New returns a feed with these options. It does not connect.
func New(opts Options) *Feed {
	opts.Logger = cmp.Or(opts.Logger, slog.New(slog.DiscardHandler))
	return &Feed{opts}
}

// Read emits the IDs in the topic from a place on, until ctx ends or an error. Without a place, and for
// partitions that the place lacks, it begins at the oldest message. So it does if the topic is another
// one than that of the place, or no longer has the offset: an ID may be emitted twice, and none is
// skipped.
func (f *Feed) Read(ctx context.Context, from string, emit Emit) error {
	for {
		err := f.read(ctx, from, emit)
		if !errors.Is(err, errReplaced) {
			return err
		}
		f.opts.Logger.Warn("the topic of a source is read from its beginning", "reason", err,
			runbook.Topics.Do("nothing: ordergate misses no message of the new topic"))
		from = ""
	}
}

func (f *Feed) read(ctx context.Context, from string, emit Emit) error {
	client, err := kgo.NewClient(append(f.clientOptions(),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchMaxWait(maxWait),
		// Of a topic that is deleted, an error ends the reading.
		kgo.KeepRetryableFetchErrors(), kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.KeepControlRecords())...)
	if err != nil {
		return fmt.Errorf("connecting to Kafka: %w", err)
	}
	defer client.Close()
	r := &reader{feed: f, client: client, emit: emit, started: make(map[int32]bool)}
	var before place
	if json.Unmarshal([]byte(from), &before) != nil {
		before = place{}
	}
	if r.at.Topic, err = r.look(ctx); err != nil {
		return err
	}
	if before.Topic != (topicID{}) && before.Topic != r.at.Topic {
		return errReplaced
	}
	if r.at.Offsets = before.Offsets; r.at.Offsets == nil {
		r.at.Offsets = make(map[int32]int64)
	}
	return r.run(ctx)
}

func (f *Feed) clientOptions() []kgo.Opt {
	opts := []kgo.Opt{kgo.SeedBrokers(f.opts.Brokers...), kgo.ClientID("ordergate"), kgo.RetryTimeout(lookTimeout)}
	if f.opts.TLS != nil {
		opts = append(opts, kgo.DialTLSConfig(f.opts.TLS))
	}
	if f.opts.Username != "" {
		opts = append(opts, kgo.SASL(f.login()))
	}
	return opts
}

func (f *Feed) login() sasl.Mechanism {
	auth := func(context.Context) (scram.Auth, error) {
		return scram.Auth{User: f.opts.Username, Pass: f.opts.Password()}, nil
	}
	switch f.opts.Mechanism {
	case "scram-sha-256":
		return scram.Sha256(auth)
	case "scram-sha-512":
		return scram.Sha512(auth)
	}
	return plain.Plain(func(context.Context) (plain.Auth, error) {
		return plain.Auth{User: f.opts.Username, Pass: f.opts.Password()}, nil
	})
}

// reader is one connection of a [Feed].
type reader struct {
	feed    *Feed
	client  *kgo.Client
	emit    Emit
	at      place           // behind what was emitted
	begins  map[int32]int64 // the oldest offsets of the partitions, at the last look
	ends    map[int32]int64 // behind the newest
	started map[int32]bool  // partitions that are read
}

// run reads messages, and looks now and then where the topic ends.
func (r *reader) run(ctx context.Context) error {
	looked := time.Time{}
	for {
		if time.Since(looked) >= lookEvery {
			now := time.Now()
			topic, err := r.look(ctx)
			switch {
			case err != nil:
				return err
			case topic != r.at.Topic:
				return errReplaced
			}
			r.start()
			looked = now
		}
		r.reportEnd(looked)
		poll, cancel := context.WithDeadline(ctx, looked.Add(lookEvery))
		fetches := r.client.PollFetches(poll)
		cancel()
		if ctx.Err() != nil {
			return ctx.Err()
		}
		for _, e := range fetches.Errors() {
			if loss := new(kgo.ErrDataLoss); errors.As(e.Err, &loss) {
				r.feed.opts.Logger.Warn("a partition of a topic has lost messages, and is read from its oldest one", "partition", e.Partition, "error", e.Err,
					runbook.Topics.Do("look at Kafka: orders in these messages are known only by another source"))
			} else if !errors.Is(e.Err, context.DeadlineExceeded) && !kerr.IsRetriable(e.Err) {
				return fmt.Errorf("reading topic %s, partition %d: %w", r.feed.opts.Topic, e.Partition, e.Err)
			}
		}
		if err := r.pass(ctx, fetches); err != nil {
			return err
		}
	}
}

// start begins to read partitions that are new.
func (r *reader) start() {
	added := make(map[int32]kgo.Offset)
	for partition := range r.ends {
		if r.started[partition] {
			continue
		}
		r.started[partition] = true
		added[partition] = kgo.NewOffset().AtStart()
		if next, known := r.at.Offsets[partition]; known {
			added[partition] = kgo.NewOffset().At(next)
		}
	}
	if len(added) > 0 {
		r.client.AddConsumePartitions(map[string]map[int32]kgo.Offset{r.feed.opts.Topic: added})
	}
}

// pass emits the IDs of messages.
func (r *reader) pass(ctx context.Context, fetches kgo.Fetches) error {
	ids, next := make([]string, 0, follow.MaxChunk), maps.Clone(r.at.Offsets)
	flush := func() error {
		text, _ := json.Marshal(place{r.at.Topic, next}) // numbers
		if err := r.emit(ctx, ids, string(text)); err != nil {
			return err
		}
		ids, r.at.Offsets = ids[:0], maps.Clone(next)
		return nil
	}
	for message := range fetches.RecordsAll() {
		var found []string
		reason := ""
		if !message.Attrs.IsControl() { // the mark of a transaction's end
			found, reason = r.feed.opts.idsIn(message.Value)
		}
		if reason != "" {
			r.feed.opts.OnBad(fmt.Sprintf("partition %d, offset %d", message.Partition, message.Offset), reason)
		}
		for len(found) > 0 {
			n := min(len(found), follow.MaxChunk-len(ids))
			ids, found = append(ids, found[:n]...), found[n:]
			if len(found) > 0 { // the place stays before the message until all of it is emitted
				if err := flush(); err != nil {
					return err
				}
			}
		}
		if next[message.Partition] = message.Offset + 1; len(ids) == follow.MaxChunk {
			if err := flush(); err != nil {
				return err
			}
		}
	}
	if fetches.NumRecords() == 0 {
		return nil
	}
	return flush()
}

// reportEnd reports that everything was emitted that the topic had at a time.
func (r *reader) reportEnd(at time.Time) {
	for partition, end := range r.ends {
		if end > max(r.at.Offsets[partition], r.begins[partition]) {
			return
		}
	}
	r.feed.opts.CaughtUp(at)
}

// look returns the ID of the topic, and notes where its partitions begin and end.
func (r *reader) look(ctx context.Context) (topicID, error) {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	name := r.feed.opts.Topic
	request := kmsg.NewPtrMetadataRequest()
	asked := kmsg.NewMetadataRequestTopic()
	asked.Topic = &name
	request.Topics = append(request.Topics, asked)
	reply, err := request.RequestWith(ctx, r.client)
	switch {
	case err != nil:
		return topicID{}, fmt.Errorf("reaching Kafka: %w", err)
	case len(reply.Topics) != 1:
		return topicID{}, fmt.Errorf("looking for topic %s: %d topics", name, len(reply.Topics))
	}
	topic := reply.Topics[0]
	if err = kerr.ErrorForCode(topic.ErrorCode); err != nil {
		return topicID{}, fmt.Errorf("looking for topic %s: %w", name, err)
	}
	if r.begins, err = r.offsets(ctx, &topic, oldest); err == nil {
		r.ends, err = r.offsets(ctx, &topic, newest)
	}
	if err != nil {
		return topicID{}, fmt.Errorf("looking for the offsets of topic %s: %w", name, err)
	}
	return topic.TopicID, nil
}

// Times that stand for the offset of the oldest message, and for that behind the newest one of a
// transaction that has ended.
const (
	newest = -1
	oldest = -2
)

// offsets returns those of a topic's partitions at a time.
func (r *reader) offsets(ctx context.Context, topic *kmsg.MetadataResponseTopic, at int64) (map[int32]int64, error) {
	request := kmsg.NewPtrListOffsetsRequest()
	request.IsolationLevel = 1 // read committed
	of := kmsg.NewListOffsetsRequestTopic()
	of.Topic = r.feed.opts.Topic
	for _, p := range topic.Partitions {
		partition := kmsg.NewListOffsetsRequestTopicPartition()
		partition.Partition, partition.Timestamp = p.Partition, at
		of.Partitions = append(of.Partitions, partition)
	}
	request.Topics = append(request.Topics, of)
	found := make(map[int32]int64, len(topic.Partitions))
	for _, shard := range r.client.RequestSharded(ctx, request) {
		if shard.Err != nil {
			return nil, shard.Err
		}
		for _, t := range shard.Resp.(*kmsg.ListOffsetsResponse).Topics {
			for _, p := range t.Partitions {
				if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
					return nil, fmt.Errorf("partition %d: %w", p.Partition, err)
				}
				found[p.Partition] = p.Offset
			}
		}
	}
	return found, nil
}
