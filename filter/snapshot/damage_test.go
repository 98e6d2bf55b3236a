package snapshot

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ordergate/ordergate/filter/bloom"
	"github.com/ordergate/ordergate/filter/exact"
)

// patient is a file that is damaged and loaded.
type patient struct {
	t      *testing.T
	path   string
	data   []byte // as it was written
	header int    // its length
}

func newPatient(t *testing.T, sections []Section) patient {
	t.Helper()
	path := write(t, sections)
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return patient{t, path, data, int(binary.LittleEndian.Uint32(data[len(headerMagic)+4:]))}
}

func (p patient) load(data []byte) error {
	p.t.Helper()
	if err := os.WriteFile(p.path, data, 0o600); err != nil {
		p.t.Fatal(err)
	}
	_, _, err := load(p.t.Context(), p.path, testHeader().Identity, testKey)
	return err
}

// flipped returns the content with some bits of a byte the other way round.
func (p patient) flipped(at int, mask byte) []byte {
	data := slices.Clone(p.data)
	data[at] ^= mask
	return data
}

// refused wants an error of one line that names the file.
func (p patient) refused(what string, err error) {
	p.t.Helper()
	_ = p.damage(what, err)
}

// damage is refused, and returns the error if it is of damage.
func (p patient) damage(what string, err error) *DamageError {
	p.t.Helper()
	var damage *DamageError
	var mismatch *MismatchError
	if !errors.As(err, &damage) && !errors.As(err, &mismatch) {
		p.t.Errorf("%s: error %v, want a DamageError or a MismatchError", what, err)
		return nil
	}
	if text := err.Error(); strings.Contains(text, "\n") || !strings.Contains(text, p.path) {
		p.t.Errorf("%s: error %q", what, text)
	}
	return damage
}

// blocks returns where the blocks begin, by what a DamageError calls them, in
// order, and where the last of them ends.
func (p patient) blocks() (names []string, starts []int) {
	p.t.Helper()
	s, err := Inspect(p.path)
	if err != nil {
		p.t.Fatal(err)
	}
	defer s.Close()
	for i, section := range s.sections {
		for b := range blocksOf(section.Bytes) {
			names = append(names, fmt.Sprintf("section %d, block %d", i, b))
			starts = append(starts, int(s.starts[i]+b*(blockSize+sumSize)))
		}
	}
	return names, append(starts, len(p.data)-trailerSize)
}

func TestEveryByteOfTheHeaderCounts(t *testing.T) {
	p := newPatient(t, []Section{{Label: "20261121", Bloom: newBloom(t, "", 100, 100)}, {Label: "recent", Exact: newExact(t, 3)}})
	if err := p.load(p.data); err != nil {
		t.Fatal(err)
	}
	for at := range p.data {
		if at >= p.header && at < len(p.data)-trailerSize {
			continue // the body
		}
		for _, mask := range []byte{1, 0x80, 0xff} {
			p.refused(fmt.Sprintf("byte %d xor %#x", at, mask), p.load(p.flipped(at, mask)))
		}
	}
}

func TestDamagedBlocksAreNamed(t *testing.T) {
	p := newPatient(t, threeSections(t))
	names, starts := p.blocks()
	if len(names) != 5 {
		t.Fatalf("%d blocks, want 5: %q", len(names), names)
	}
	for i, name := range names {
		from, to := starts[i], starts[i+1]
		for _, at := range []int{from, from + 7, (from + to) / 2, to - sumSize, to - 1, from + rand.IntN(to-from), from + rand.IntN(to-from)} {
			damage := p.damage(name, p.load(p.flipped(at, 1<<rand.IntN(8))))
			if damage == nil || damage.Where != name {
				t.Errorf("byte %d: %v, want %s", at, damage, name)
			}
		}
	}
	// Whole blocks that changed places.
	swapped := slices.Clone(p.data)
	copy(swapped[starts[1]:], p.data[starts[2]:starts[3]])
	copy(swapped[starts[2]:], p.data[starts[1]:starts[2]])
	if damage := p.damage("swapped", p.load(swapped)); damage == nil || !strings.HasPrefix(damage.Where, "section 1, block ") {
		t.Errorf("swapped: %v", damage)
	}
}

func TestCutOff(t *testing.T) {
	p := newPatient(t, threeSections(t))
	_, borders := p.blocks()
	borders = append(borders, 0, len(headerMagic), prefixSize, p.header-sumSize, len(p.data))
	for _, border := range borders {
		for _, length := range []int{border - 1, border, border + 1} {
			if length < 0 || length == len(p.data) {
				continue
			}
			data := append(slices.Clone(p.data), 0)[:length] // one is too long by a byte
			if damage := p.damage(fmt.Sprintf("%d bytes", length), p.load(data)); damage == nil {
				t.Errorf("%d of %d bytes: not taken for damage", length, len(p.data))
			}
		}
	}
	// Two files, one behind the other.
	p.refused("twice", p.load(append(slices.Clone(p.data), p.data...)))
}

// TestCutOffWhileOpen is a file that somebody truncates under a reader.
func TestCutOffWhileOpen(t *testing.T) {
	p := newPatient(t, threeSections(t))
	s, err := Open(p.path, testHeader().Identity)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	_, starts := p.blocks()
	if err := os.Truncate(p.path, int64(starts[3]+5)); err != nil {
		t.Fatal(err)
	}
	for i := range s.Sections() {
		into, err := s.New(i, testKey)
		if err != nil {
			t.Fatal(err)
		}
		err = s.Read(t.Context(), i, into)
		if i == 0 && err != nil {
			t.Errorf("section 0 was whole: %v", err)
		}
		if i > 0 {
			p.refused(fmt.Sprint("section ", i), err)
		}
	}
}

// sealed makes the checksums of header and trailer right, as an attacker would.
func sealed(data []byte) []byte {
	if len(data) < prefixSize+sumSize+trailerSize {
		return data
	}
	length := int(binary.LittleEndian.Uint32(data[len(headerMagic)+4:]))
	if length < prefixSize+sumSize || length > len(data)-trailerSize {
		return data
	}
	data = slices.Clone(data)
	header := data[:length]
	binary.LittleEndian.PutUint32(header[length-sumSize:], sum(header[:length-sumSize]))
	copy(data[len(data)-trailerSize:], encodeTrailer(header, uint64(len(data))))
	return data
}

// TestLyingHeaders have checksums that are right.
func TestLyingHeaders(t *testing.T) {
	p := newPatient(t, nil)
	good := description{
		SectionInfo: SectionInfo{
			Params:         bloom.Params{Capacity: 1000, FalsePositiveRate: 0.001, Layout: bloom.Blocked},
			KeyFingerprint: testHeader().KeyFingerprint, Bytes: 1984,
		},
		bits: 1984 * 8, hashes: 9,
	}
	for _, tc := range []struct {
		name     string
		change   func(d *description)
		where    string // of the damage, "" for a mismatch
		sections int
	}{
		{"more than the file has", func(d *description) { d.Bytes = 5000 }, "section 0", 1},
		{"the largest length", func(d *description) { d.Bytes = math.MaxUint64 }, "section 0", 1},
		{"lengths whose sum wraps around", func(d *description) { d.Bytes = 1900 }, "section 0", 1},
		{"bits that do not fit the bytes", func(d *description) { d.bits = 1 << 40 }, "section 0", 1},
		{"a capacity that needs more", func(d *description) { d.Params.Capacity = 1e9 }, "", 1},
		{"a capacity beyond all", func(d *description) { d.Params.Capacity = math.MaxUint64 }, "section 0", 1},
		{"a rate that is none", func(d *description) { d.Params.FalsePositiveRate = math.NaN() }, "section 0", 1},
		{"a layout that is none", func(d *description) { d.Params.Layout = "round" }, "section 0", 1},
		{"other hashes", func(d *description) { d.hashes = 10 }, "", 1},
		{"an exact set that is none", func(d *description) { d.Exact = true }, "section 0, block 0", 1},
		{"an exact set of nothing", func(d *description) { d.Exact, d.Bytes = true, 0 }, "length", 1},
		{"more sections than there is file", func(*description) {}, "section 1", 1000},
		{"too many sections", func(*description) {}, "header", maxSections + 1},
	} {
		d := good
		tc.change(&d)
		data := encodeHeader(testHeader(), slices.Repeat([]description{d}, tc.sections))
		if len(data) > maxHeader {
			t.Fatalf("%s: the test's header is too long", tc.name)
		}
		data = append(data, make([]byte, 1984+sumSize+trailerSize)...)
		damage := p.damage(tc.name, p.load(sealed(data)))
		if (damage == nil) != (tc.where == "") || damage != nil && damage.Where != tc.where {
			t.Errorf("%s: %v, want damage in %q", tc.name, damage, tc.where)
		}
	}
	// The section as it should be, but for its bits.
	data := append(encodeHeader(testHeader(), []description{good}), make([]byte, 1984+sumSize+trailerSize)...)
	if damage := p.damage("zeros", p.load(sealed(data))); damage == nil || damage.Where != "section 0, block 0" {
		t.Errorf("a body of zeros: %v", damage)
	}
	// An exact set whose block is sound and whose content is not.
	set := description{SectionInfo: SectionInfo{Exact: true, Bytes: 100}}
	data = append(encodeHeader(testHeader(), []description{set}), make([]byte, 100)...)
	data = binary.LittleEndian.AppendUint32(data, blockSum(0, 0, make([]byte, 100)))
	data = append(data, make([]byte, trailerSize)...)
	if damage := p.damage("a bad set", p.load(sealed(data))); damage == nil || damage.Where != "section 0" {
		t.Errorf("a bad set: %v", damage)
	}
	later := slices.Clone(p.data)
	later[len(headerMagic)]++
	if damage := p.damage("a later version", p.load(sealed(later))); damage != nil {
		t.Errorf("a later version: %v, want a mismatch", damage)
	}
}

// FuzzOpen takes any file for what it is, or refuses it. Half of what it is given
// gets checksums that are right, and so gets further.
func FuzzOpen(f *testing.F) {
	small, err := bloom.New(bloom.Params{Capacity: 10, FalsePositiveRate: 0.01, Key: testKey})
	if err != nil {
		f.Fatal(err)
	}
	for _, sections := range [][]Section{nil, {{Label: "a", Bloom: small}}, {{Bloom: small}, {Exact: exact.New()}}} {
		data, err := os.ReadFile(write(f, sections))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data, false)
		f.Add(data, true)
	}
	path := filepath.Join(f.TempDir(), "fuzz.snap")
	f.Fuzz(func(t *testing.T, data []byte, seal bool) {
		if seal {
			data = sealed(data)
		}
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		s, err := Inspect(path)
		if err != nil {
			return
		}
		defer s.Close()
		total := uint64(0)
		for i, info := range s.Sections() {
			total += info.Bytes
			into, err := s.New(i, testKey)
			if err != nil {
				continue
			}
			if into.Bloom != nil && into.Bloom.SizeBytes() != info.Bytes {
				t.Fatalf("section %d has %d bytes and makes %d", i, info.Bytes, into.Bloom.SizeBytes())
			}
			_ = s.Read(t.Context(), i, into) // whatever it says of it
		}
		if total > uint64(len(data)) {
			t.Fatalf("a file of %d bytes has sections of %d", len(data), total)
		}
	})
}
