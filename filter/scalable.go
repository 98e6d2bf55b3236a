package filter

import (
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/ordergate/ordergate/internal/presence"
)

// layerMaker creates empty bits for a number of IDs. Each layer has half the error budget of
// the one before. So a filter of any number of layers passes less than twice the absent IDs of
// its first layer (Almeida, Baquero, Preguiça and Hutchison, "Scalable Bloom Filters", 2007).
type layerMaker func(layer int, capacity uint64) (bits, error)

// scalable is a scalable filter: it grows by layers, without a pause. The last layer takes new
// IDs, and lookups read all layers.
type scalable struct {
	name      string
	makeLayer layerMaker
	layers    atomic.Pointer[[]bits] // oldest first; replaced, not changed
	mu        sync.Mutex             // held by addLayer
}

// maxLayers is far more than needed: with growth by a quarter the 32nd is a thousand times the
// first.
const maxLayers = 32

func newScalable(name string, capacity uint64, layer layerMaker) (*scalable, error) {
	first, err := layer(0, capacity)
	if err != nil {
		return nil, err
	}
	s := &scalable{name: name, makeLayer: layer}
	s.layers.Store(&[]bits{first})
	return s, nil
}

func (s *scalable) add(id string) (in *scalable, changed bool) {
	layers := *s.layers.Load()
	last := len(layers) - 1
	for _, l := range layers[:last] {
		if l.MayContain(id) {
			return s, false
		}
	}
	// Another layer may be added now. This one is still read.
	return s, layers[last].Add(id)
}

func (s *scalable) query(id string) presence.Answer {
	layers := *s.layers.Load()
	for i := len(layers) - 1; i >= 0; i-- { // most lookups are for the newest
		if layers[i].MayContain(id) {
			return presence.Maybe
		}
	}
	return presence.Absent
}

// addLayer adds a layer that multiplies the capacity by a factor, but adds at most most IDs. It
// does nothing if the last layer is filled less than to the share at. With most of 0 it returns
// ErrAtMax instead.
func (s *scalable) addLayer(by, at float64, most uint64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case !s.isFull(at):
		return nil
	case most == 0:
		return ErrAtMax
	}
	layers := *s.layers.Load()
	if len(layers) >= maxLayers {
		return fmt.Errorf("it has %d layers already: set its capacity higher", len(layers))
	}
	more := min(max(uint64(math.Ceil(float64(s.capacity())*(by-1))), 1), most)
	next, err := s.makeLayer(len(layers), more)
	if err != nil {
		return err
	}
	grown := append(slices.Clone(layers), next)
	s.layers.Store(&grown)
	return nil
}

// count returns the number of IDs, without the few that were false positives when added.
func (s *scalable) count() (n uint64) {
	for _, l := range *s.layers.Load() {
		n += l.Count()
	}
	return n
}

// capacity returns the number of IDs that it is made for.
func (s *scalable) capacity() (n uint64) {
	for _, l := range *s.layers.Load() {
		n += l.Capacity()
	}
	return n
}

// isFull reports whether the last layer, which takes new IDs, is filled to the share at of its
// capacity, by the counted IDs.
func (s *scalable) isFull(at float64) bool {
	layers := *s.layers.Load()
	last := layers[len(layers)-1]
	return float64(last.Count()) >= at*float64(last.Capacity())
}

// isFullByBits is isFull that also checks the set bits: at capacity half are set. It reads all
// of the memory, and is correct even if IDs were not counted.
func (s *scalable) isFullByBits(at float64) bool {
	layers := *s.layers.Load()
	return s.isFull(at) || layers[len(layers)-1].FillRatio() >= at/2
}

func (s *scalable) parts() []*scalable { return []*scalable{s} }

// rate returns the chance that an absent ID passes: that any layer passes it.
func (s *scalable) rate() float64 {
	stopped := 1.0
	for _, l := range *s.layers.Load() {
		stopped *= 1 - l.EstimatedFalsePositiveRate()
	}
	return 1 - stopped
}

func (s *scalable) sizeBytes() (n uint64) {
	for _, l := range *s.layers.Load() {
		n += l.SizeBytes()
	}
	return n
}
