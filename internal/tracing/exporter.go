package tracing

import (
	"context"
	"log/slog"
	"os"
	"strconv"
	"sync/atomic"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/ordergate/ordergate/internal/recurring"
	"github.com/ordergate/ordergate/internal/runbook"
)

// exporter sends spans, and counts those that are lost.
type exporter struct {
	sdktrace.SpanExporter
	room    atomic.Int64 // for spans that wait or are being sent
	dropped atomic.Uint64
	failing *recurring.Problem
	ending  context.Context // ended by close
	end     context.CancelFunc
}

func newExporter(to sdktrace.SpanExporter, log *slog.Logger) *exporter {
	e := &exporter{SpanExporter: to, failing: recurring.New(log, slog.LevelWarn, "traces cannot be sent", "traces are sent again",
		runbook.SpansDropped.Do("repair what error names; spans are dropped until then"))}
	e.ending, e.end = context.WithCancel(context.Background())
	return e
}

// ExportSpans implements sdktrace.SpanExporter. It returns no error, which the SDK would only log.
func (e *exporter) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(e.ending, cancel)()
	if err := e.SpanExporter.ExportSpans(ctx, spans); err != nil {
		e.dropped.Add(uint64(len(spans)))
		e.failing.Note("error", err)
	}
	e.room.Add(int64(len(spans)))
	return nil
}

// close ends what is being sent.
func (e *exporter) close() {
	e.end()
	e.failing.Drop()
}

// processor returns a processor that sends spans in the background.
func (e *exporter) processor() sdktrace.SpanProcessor {
	queue := size("OTEL_BSP_MAX_QUEUE_SIZE", sdktrace.DefaultMaxQueueSize)
	batch := min(size("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", sdktrace.DefaultMaxExportBatchSize), queue)
	e.room.Store(int64(queue))
	return &bounded{sdktrace.NewBatchSpanProcessor(e, sdktrace.WithMaxQueueSize(queue), sdktrace.WithMaxExportBatchSize(batch)), e}
}

// maxSize bounds a size, in spans. The SDK allocates the queue at the start.
const maxSize = 1 << 20

// size returns the value of a variable. The SDK would panic if it is negative.
func size(variable string, otherwise int) int {
	if n, err := strconv.Atoi(os.Getenv(variable)); err == nil && n > 0 {
		return min(n, maxSize)
	}
	return otherwise
}

// bounded is the SDK's processor, which drops what does not fit into its queue without a count. So it
// gets no more than fits.
type bounded struct {
	sdktrace.SpanProcessor
	exporter *exporter
}

// OnEnd implements sdktrace.SpanProcessor.
func (b *bounded) OnEnd(s sdktrace.ReadOnlySpan) {
	switch e := b.exporter; {
	case !s.SpanContext().IsSampled():
	case e.room.Add(-1) < 0:
		e.room.Add(1)
		e.dropped.Add(1)
	default:
		b.SpanProcessor.OnEnd(s)
	}
}
