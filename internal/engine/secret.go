package engine

import (
	"crypto/sha256"

	"github.com/ordergate/ordergate/config"
)

// filterKey returns the key of a filter's hashes.
func filterKey(secret config.Secret) (key [16]byte) {
	sum := sha256.Sum256(append([]byte("ordergate filter key v1\x00"), secret...))
	copy(key[:], sum[:])
	return key
}
