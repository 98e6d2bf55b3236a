package redisbf

import (
	"encoding/binary"
	"encoding/hex"
	"math/bits"
	"unsafe"

	"github.com/dchest/siphash"
)

// hasher turns IDs into what is stored. Each use has a key of its own, derived from
// the secret: that an ID is in some shard must reveal nothing of its bits there.
type hasher struct {
	ids, shards, marks sipKey
	n                  uint64 // of shards
}

type sipKey struct{ k0, k1 uint64 }

func newHasher(opts Options) hasher {
	secret := sipKey{binary.LittleEndian.Uint64(opts.Secret[:8]), binary.LittleEndian.Uint64(opts.Secret[8:])}
	derive := func(use string) sipKey {
		k0, k1 := secret.sum(use)
		return sipKey{k0, k1}
	}
	return hasher{
		ids: derive("ordergate id"), shards: derive("ordergate shard"), marks: derive("ordergate mark"),
		n: uint64(opts.Shards),
	}
}

func (k sipKey) sum(s string) (a, b uint64) {
	// A conversion to []byte would copy, because the compiler cannot know that the
	// assembly behind Hash128 only reads.
	return siphash.Hash128(k.k0, k.k1, unsafe.Slice(unsafe.StringData(s), len(s)))
}

// shard returns the part that an ID is in.
func (h *hasher) shard(id string) int {
	if h.n == 1 {
		return 0
	}
	a, _ := h.shards.sum(id)
	p, _ := bits.Mul64(a, h.n)
	return int(p)
}

// digest returns 16 bytes that stand for the ID.
func (h *hasher) digest(id string) string {
	a, b := h.ids.sum(id)
	var d [16]byte
	binary.LittleEndian.PutUint64(d[:8], a)
	binary.LittleEndian.PutUint64(d[8:], b)
	return string(d[:])
}

// mark returns a number that stands for a text, and that cannot be computed without the
// secret. It is never 0, which is what a missing key reads as.
func (h *hasher) mark(text string) int64 {
	a, _ := h.marks.sum(text)
	return int64(a | 1)
}

// markItem returns a string of printable characters that stands for a text.
func (h *hasher) markItem(text string) string {
	a, b := h.marks.sum(text)
	var d [16]byte
	binary.BigEndian.PutUint64(d[:8], a)
	binary.BigEndian.PutUint64(d[8:], b)
	return "ordergate:" + hex.EncodeToString(d[:])
}

// fingerprint distinguishes secrets and reveals nothing of them.
func (h *hasher) fingerprint() string {
	a, _ := h.marks.sum("fingerprint")
	return hex.EncodeToString(binary.BigEndian.AppendUint64(nil, a)[:4])
}
