package extauthz

import (
	"sync"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/ordergate/ordergate/internal/gate"
)

// fieldDynamicMetadata is the number of that field of CheckResponse.
const fieldDynamicMetadata = 4

// described is a reply with metadata. It is the pool of its last part's buffer, so gRPC gives it back
// once that part is sent. Then the next check uses it.
type described struct {
	reply    reply
	parts    [3]mem.Buffer // of reply: those of a shared one, and metadata
	metadata []byte
}

var replies = sync.Pool{New: func() any { return &described{metadata: make([]byte, 0, 2<<10)} }} // gRPC reuses none below 1 KiB

// Get implements mem.BufferPool. gRPC does not call it.
func (*described) Get(size int) *[]byte { b := make([]byte, size); return &b }

// Put implements mem.BufferPool. The buffer is that of d.
func (d *described) Put(*[]byte) {
	d.parts = [len(d.parts)]mem.Buffer{}
	replies.Put(d)
}

// describe returns the reply with the metadata of its decision: see withPath.
func (r *reply) describe(g *gate.Gate, d *gate.Decision) *reply {
	m, ok := g.Metadata(d)
	if !ok {
		return r
	}
	into := replies.Get().(*described)
	b := protowire.AppendTag(into.metadata[:0], fieldDynamicMetadata, protowire.BytesType)
	b = m.AppendStruct(protowire.AppendVarint(b, uint64(m.Size())))
	into.metadata = b
	into.reply.encoded = append(append(into.parts[:0], r.encoded...), mem.NewBuffer(&into.metadata, into))
	return &into.reply
}
