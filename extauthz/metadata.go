package extauthz

import (
	"math"
	"sync"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/ordergate/ordergate/internal/gate"
)

// Field numbers of CheckResponse and of google.protobuf.Struct and Value.
const (
	fieldDynamicMetadata = 4 // CheckResponse -> Struct
	fieldFields          = 1 // Struct: map entries {1: key, 2: value}
	fieldText            = 3 // Value
	fieldNumber          = 2
)

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

// describe returns the reply with the metadata of its decision: see withPath. It encodes them by
// itself, as every check that a rule decides has some, and must not allocate.
func (r *reply) describe(g *gate.Gate, d *gate.Decision) *reply {
	m, ok := g.Metadata(d)
	if !ok {
		return r
	}
	size := 0
	for f := range m.Fields() {
		size += sizeOfBytes(sizeOfEntry(&f))
	}
	into := replies.Get().(*described)
	b := protowire.AppendTag(into.metadata[:0], fieldDynamicMetadata, protowire.BytesType)
	b = protowire.AppendVarint(b, uint64(size))
	for f := range m.Fields() {
		b = protowire.AppendTag(b, fieldFields, protowire.BytesType)
		b = protowire.AppendVarint(b, uint64(sizeOfEntry(&f)))
		b = protowire.AppendTag(b, fieldKey, protowire.BytesType)
		b = protowire.AppendString(b, f.Name)
		b = protowire.AppendTag(b, fieldValue, protowire.BytesType)
		b = protowire.AppendVarint(b, uint64(sizeOfValue(&f)))
		if f.Text != "" {
			b = protowire.AppendTag(b, fieldText, protowire.BytesType)
			b = protowire.AppendString(b, f.Text)
		} else {
			b = protowire.AppendTag(b, fieldNumber, protowire.Fixed64Type)
			b = protowire.AppendFixed64(b, math.Float64bits(f.Number))
		}
	}
	into.metadata = b
	into.reply.encoded = append(append(into.parts[:0], r.encoded...), mem.NewBuffer(&into.metadata, into))
	return &into.reply
}

// sizeOfBytes is the size of a field of n bytes with a number below 16.
func sizeOfBytes(n int) int { return 1 + protowire.SizeBytes(n) }

func sizeOfEntry(f *gate.MetadataField) int {
	return sizeOfBytes(len(f.Name)) + sizeOfBytes(sizeOfValue(f))
}

func sizeOfValue(f *gate.MetadataField) int {
	if f.Text == "" {
		return 1 + protowire.SizeFixed64()
	}
	return sizeOfBytes(len(f.Text))
}
