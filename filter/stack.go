package filter

import (
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"
)

// maker makes empty bits for so many IDs. The error budget of a layer is half that
// of the one before it, so that however many there are, the filter passes less
// than twice the absent IDs that its first layer does (Almeida, Baquero, Preguiça
// and Hutchison, "Scalable Bloom Filters", 2007).
type layerMaker func(layer int, capacity uint64) (bits, error)

// stack is a set that grows without a pause: layers, of which the last takes new
// IDs and all are asked.
type scalable struct {
	name      string
	makeLayer layerMaker
	layers    atomic.Pointer[[]bits] // oldest first; replaced, not changed
	mu        sync.Mutex             // held by grow
}

// mostLayers is far more than are needed: the 32nd is a thousand times the first
// at growth by a quarter.
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
	// Another layer may come at this moment. This one is still asked.
	return s, layers[last].Add(id)
}

func (s *scalable) query(id string) Answer {
	layers := *s.layers.Load()
	for i := len(layers) - 1; i >= 0; i-- { // the newest are asked for most
		if layers[i].MayContain(id) {
			return Maybe
		}
	}
	return Absent
}

// grow adds a layer, so that all together have room for so many times as much, but of at
// most so many IDs, unless the last is filled less than to the share at. With most of 0 it
// returns ErrAtMax instead.
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

// ids returns how many IDs it holds, less those few that were taken for known.
func (s *scalable) count() (n uint64) {
	for _, l := range *s.layers.Load() {
		n += l.Count()
	}
	return n
}

// room returns how many IDs it was made for.
func (s *scalable) capacity() (n uint64) {
	for _, l := range *s.layers.Load() {
		n += l.Capacity()
	}
	return n
}

// full reports whether the last layer, which takes what is added, holds at least
// the share at of what it was made for. It goes by the IDs counted.
func (s *scalable) isFull(at float64) bool {
	layers := *s.layers.Load()
	last := layers[len(layers)-1]
	return float64(last.Count()) >= at*float64(last.Capacity())
}

// filled is full by the bits that are set as well: half of them are at capacity.
// It reads memory, and is right also where IDs were not counted.
func (s *scalable) isFullByBits(at float64) bool {
	layers := *s.layers.Load()
	return s.isFull(at) || layers[len(layers)-1].FillRatio() >= at/2
}

func (s *scalable) parts() []*scalable { return []*scalable{s} }

// rate returns the chance that an ID which was never added passes: that any layer
// lets it pass.
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
