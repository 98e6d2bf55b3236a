package source

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// positionOf returns the position behind row n of the model, 0 for the beginning.
func positionOf(n int) Position {
	if n == 0 {
		return Position{}
	}
	return Position{Identity: "orders", Cursor: strconv.Itoa(n)}
}

// rowOf is the reverse of positionOf.
func rowOf(p Position) int {
	n, _ := strconv.Atoi(p.Cursor) // "": 0
	return n
}

// span returns the span between two rows of the model.
func span(from, to int) Span { return Span{positionOf(from), positionOf(to)} }

// modelOverlap is in units of time, which are seconds. It is short, so that many passes take
// longer.
const modelOverlap = 5

// model is a table, its writers, and a reader that uses marks. Transactions choose the numbers of
// rows in order, and commit in any order.
type model struct {
	draw   func(what string, from, to int) int
	now    int
	next   int         // the next number
	open   map[int]int // rows that are not committed, with the time of their commit
	rows   map[int]bool
	got    map[int]bool // rows that the reader has
	mark   Mark
	stored []byte       // the mark on disk
	onDisk map[int]bool // rows that the reader had when it wrote the mark
	read   int          // rows read, with repetitions
}

func newModel(draw func(string, int, int) int) *model {
	return &model{draw: draw, next: 1, open: map[int]int{}, rows: map[int]bool{}, got: map[int]bool{}, onDisk: map[int]bool{}, stored: []byte("{}")}
}

func (m *model) time() time.Time { return time.Unix(int64(m.now), 0) }

// writeOthers lets time pass in which others write. longest bounds their transactions.
func (m *model) writeOthers(ticks, longest int) {
	for range m.draw("time", 0, ticks) {
		m.now++
		for range m.draw("rows", 0, 4) {
			if m.draw("rolled back", 0, 9) > 0 {
				m.open[m.next] = m.now + min(longest, m.draw("life", 0, 3*longest/2))
			}
			m.next++
		}
		for n, at := range m.open {
			if at <= m.now {
				delete(m.open, n)
				m.rows[n] = true
			}
		}
		if m.draw("delete", 0, 9) == 0 && len(m.rows) > 0 {
			delete(m.rows, m.draw("which", 1, m.next-1))
		}
	}
}

// first returns the first rows of a span.
func (m *model) first(s Span, limit int) (rows []int) {
	for n := rowOf(s.From) + 1; n <= rowOf(s.To) && len(rows) < limit; n++ {
		if m.rows[n] {
			rows = append(rows, n)
		}
	}
	return rows
}

// last returns the last row, 0 if there is none.
func (m *model) last() int {
	n := m.next - 1
	for n > 0 && !m.rows[n] {
		n--
	}
	return n
}

// store writes the mark and the rows to disk.
func (m *model) store(mark Mark) error {
	text, err := json.Marshal(mark)
	m.stored, m.onDisk = text, maps.Clone(m.got)
	return err
}

// restart loses what was not stored.
func (m *model) restart() error {
	m.mark, m.got = Mark{}, maps.Clone(m.onDisk)
	return json.Unmarshal(m.stored, &m.mark)
}

// readTail does what [scan.readTail] does. It may be interrupted.
func (m *model) readTail(longest int) (done bool, err error) {
	before := maps.Clone(m.rows) // committed before it began
	last := m.last()
	m.writeOthers(1, longest)
	seen := m.time()
	if last < rowOf(m.mark.readUpTo()) {
		m.mark = Mark{}
	}
	m.writeOthers(1, longest)
	clock := m.time()
	m.writeOthers(1, longest)
	if last == 0 {
		return true, nil
	}
	p := m.mark.newPass(clock, modelOverlap*time.Second)
	if row, ok := p.lastBound(); ok && m.last() < rowOf(row) {
		p.dropBounds()
	}
	for i, s := range p.start(seen, clock, positionOf(last)) {
		batch := m.draw("batch", 1, 4)
		for more := true; more; {
			m.writeOthers(1, longest)
			began := m.time()
			rows := m.first(s, batch)
			more = len(rows) == batch
			if len(rows) == 0 {
				break
			}
			for _, n := range rows {
				m.got[n] = true
				m.read++
			}
			to := positionOf(rows[len(rows)-1])
			p.batchRead(i, Span{s.From, to}, began)
			s.From, m.mark = to, p.mark
			switch m.draw("then", 0, 79) {
			case 77:
				err = m.store(m.mark)
			case 78:
				return false, m.restart()
			case 79: // the connection was lost
				return false, nil
			}
			if err != nil {
				return false, err
			}
		}
		p.spanRead(i)
		m.mark = p.mark
	}
	for n := range before {
		if m.rows[n] && !m.got[n] {
			return true, fmt.Errorf("at %d: row %d was there before the pass began and was not read; mark %+v", m.now, n, m.mark)
		}
	}
	return true, nil
}

// run makes the reader catch up repeatedly.
func (m *model) run(passes, longest int) error {
	m.writeOthers(6*modelOverlap, longest) // or no pass would take long
	for range passes {
		if m.draw("again", 0, 19) == 0 {
			m.mark = m.mark.Rescan()
		}
		if _, err := m.readTail(longest); err != nil {
			return err
		}
		if m.draw("keep", 0, 2) == 0 {
			if err := m.store(m.mark); err != nil {
				return err
			}
		}
		m.writeOthers(3*modelOverlap, longest)
	}
	return nil
}

// TestMarkSkipsNoNewRow covers rows that commit out of order, deletions, and losses of the
// connection and of the process.
func TestMarkSkipsNoNewRow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := newModel(func(what string, from, to int) int { return rapid.IntRange(from, to).Draw(t, what) })
		if err := m.run(rapid.IntRange(1, 20).Draw(t, "passes"), modelOverlap); err != nil {
			t.Error(err)
		}
	})
}

// TestMarkModelFindsMissedRows shows that the model finds a row that was skipped, if transactions
// take longer than they may. It also shows that a mark saves reads.
func TestMarkModelFindsMissedRows(t *testing.T) {
	const games = 500
	missed, read, all := 0, 0, 0
	for i := range games {
		random := rand.New(rand.NewPCG(1, uint64(i)))
		draw := func(_ string, from, to int) int { return from + random.IntN(to-from+1) }
		m := newModel(draw)
		if err := m.run(20, modelOverlap); err != nil {
			t.Fatalf("game %d: %v", i, err)
		}
		read, all = read+m.read, all+20*len(m.rows)/2
		if newModel(draw).run(20, 4*modelOverlap) != nil {
			missed++
		}
	}
	if missed < games/10 {
		t.Errorf("%d of %d games with long transactions missed a row", missed, games)
	}
	if read > all*9/10 {
		t.Errorf("%d rows read, where about %d would be without marks", read, all)
	}
}

// step is an event for a mark in TestMark.
type step func(t *testing.T, m *Mark, p **pass)

// TestMark follows a mark through passes.
func TestMark(t *testing.T) {
	at := func(s int) time.Time { return time.Unix(int64(s), 0) }
	begin := func(s int) step {
		return func(_ *testing.T, m *Mark, p **pass) { *p = m.newPass(at(s), 16*time.Second) }
	}
	saw := func(s, last int, want ...Span) step {
		return func(t *testing.T, _ *Mark, p **pass) {
			t.Helper()
			if diff := cmp.Diff(want, (*p).start(at(s), at(s), positionOf(last))); diff != "" {
				t.Errorf("spans, -want +got:\n%s", diff)
			}
		}
	}
	read := func(i, from, to, s int) step {
		return func(_ *testing.T, m *Mark, p **pass) {
			(*p).batchRead(i, span(from, to), at(s))
			*m = (*p).mark
		}
	}
	finished := func(i int) step {
		return func(_ *testing.T, m *Mark, p **pass) {
			(*p).spanRead(i)
			*m = (*p).mark
		}
	}
	want := func(text string) step {
		return func(t *testing.T, m *Mark, _ **pass) {
			t.Helper()
			got := fmt.Sprint(rowOf(m.Floor))
			if m.Skip != nil {
				got += fmt.Sprintf(" skip %d-%d", rowOf(m.Skip.From), rowOf(m.Skip.To))
			}
			if got != text {
				t.Errorf("the mark is %s, want %s", got, text)
			}
		}
	}
	again := func(_ *testing.T, m *Mark, _ **pass) { *m = m.Rescan() }
	restart := func(t *testing.T, m *Mark, _ **pass) {
		text, err := json.Marshal(*m)
		*m = Mark{}
		if err == nil {
			err = json.Unmarshal(text, m)
		}
		if err != nil {
			t.Error(err)
		}
	}
	for _, tc := range []struct {
		name  string
		steps []step
	}{
		{"short reads", []step{
			begin(0), saw(1, 100, span(0, 100)), read(0, 0, 100, 1), finished(0), want("0"),
			begin(16), saw(16, 110, span(0, 110)), read(0, 0, 110, 16), finished(0), want("0"), // 15 s after row 100 was seen
			begin(17), saw(17, 120, span(0, 120)), read(0, 0, 120, 17), want("0"), finished(0), want("100"),
			begin(40), saw(40, 130, span(100, 130)), read(0, 100, 130, 40), finished(0), want("110"), // 120 was seen too soon after it
			begin(99), saw(99, 130, span(110, 130)), read(0, 110, 130, 99), finished(0), want("130"),
			begin(120), saw(120, 130, span(130, 130)), finished(0), want("130"),
		}},
		{"a pass that fails moves nothing", []step{
			begin(0), saw(0, 100, span(0, 100)), read(0, 0, 100, 0), finished(0),
			begin(50), saw(50, 200, span(0, 200)), read(0, 0, 90, 50), want("0"),
			begin(51), saw(51, 200, span(0, 200)), read(0, 0, 200, 51), finished(0), want("100"),
		}},
		{"restarts", []step{
			begin(0), saw(0, 100, span(0, 100)), read(0, 0, 100, 0), finished(0), restart,
			begin(10), saw(10, 110, span(0, 110)), read(0, 0, 110, 10), finished(0), restart, want("0"),
			begin(20), saw(20, 120, span(0, 120)), read(0, 0, 120, 20), finished(0), restart, want("100"),
			begin(40), saw(40, 130, span(100, 130)), read(0, 100, 130, 40), finished(0), want("120"),
		}},
		{"a clock that was set back", []step{
			begin(100), saw(100, 100, span(0, 100)), read(0, 0, 100, 100), finished(0),
			begin(0), saw(0, 110, span(0, 110)), read(0, 0, 110, 0), finished(0),
			begin(20), saw(20, 120, span(0, 120)), read(0, 0, 120, 20), finished(0), want("110"),
		}},
		{"a table that ends in front of what was seen", []step{
			begin(0), saw(0, 100, span(0, 100)), read(0, 0, 100, 0), finished(0),
			begin(20), func(t *testing.T, _ *Mark, p **pass) {
				if row, ok := (*p).nextFloor(); !ok || row != positionOf(100) {
					t.Errorf("the floor is to move to %v, %v", row, ok)
				}
				(*p).dropBounds()
			},
			saw(20, 90, span(0, 90)), read(0, 0, 90, 20), finished(0), want("0"),
			begin(40), saw(40, 120, span(0, 120)), read(0, 0, 120, 40), finished(0), want("90"),
		}},
		{"all of it again", []step{
			begin(0), saw(0, 100, span(0, 100)), read(0, 0, 100, 0), finished(0),
			begin(20), saw(20, 110, span(0, 110)), read(0, 0, 110, 20), finished(0), want("100"),
			again, begin(21), saw(21, 120, span(0, 120)), read(0, 0, 120, 21), finished(0), want("100"),
			again, restart, begin(99), saw(99, 130, span(0, 130)), read(0, 0, 130, 99), finished(0), want("100"),
		}},
		{"a long read", []step{
			begin(0), saw(0, 100, span(0, 100)),
			read(0, 0, 20, 0), read(0, 20, 40, 8), want("0"), read(0, 40, 60, 15), want("0"),
			read(0, 60, 80, 16), want("0 skip 60-80"), read(0, 80, 100, 24), finished(0), want("0 skip 60-100"),
			restart,
			begin(5), saw(5, 150, span(0, 60), span(100, 150)),
			read(0, 0, 50, 6), want("50 skip 60-100"), read(0, 50, 60, 7), finished(0), want("100"),
			read(1, 100, 150, 8), finished(1), want("100"),
		}},
		{"a long read that was interrupted", []step{
			begin(0), saw(0, 100, span(0, 100)), read(0, 0, 20, 0), read(0, 20, 40, 16), want("0 skip 20-40"), restart,
			begin(0), saw(0, 100, span(0, 20), span(40, 100)), read(0, 0, 20, 1), finished(0), want("40"),
			read(1, 40, 70, 2), want("40"), read(1, 70, 90, 16), want("40 skip 70-90"),
		}},
		{"what comes late in a long span in front", []step{
			begin(0), saw(0, 100, span(0, 100)), read(0, 0, 50, 0), read(0, 50, 100, 16), finished(0), want("0 skip 50-100"),
			begin(50), saw(50, 200, span(0, 50), span(100, 200)), read(0, 0, 50, 50), finished(0),
			read(1, 100, 150, 70), want("150"), read(1, 150, 180, 71), finished(1), want("200"), // the rows up to 200 were deleted
		}},
		{"a long read at last", []step{
			begin(0), saw(0, 100, span(0, 100)), read(0, 0, 100, 0), finished(0),
			begin(50), saw(50, 200, span(0, 200)), read(0, 0, 100, 50), read(0, 100, 150, 66), finished(0), want("100 skip 100-200"),
			begin(51), saw(67, 210, span(100, 100), span(200, 210)), finished(0), want("200"), read(1, 200, 210, 67), finished(1),
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var m Mark
			var p *pass
			for _, do := range tc.steps {
				do(t, &m, &p)
			}
		})
	}
}

// TestMarksAreIndependent starts two passes with one mark.
func TestMarksAreIndependent(t *testing.T) {
	var m Mark
	p := m.newPass(time.Unix(0, 0), time.Second)
	p.start(time.Unix(0, 0), time.Unix(0, 0), positionOf(1))
	p.spanRead(0)
	m = p.mark
	a, b := m.newPass(time.Unix(9, 0), time.Second), m.newPass(time.Unix(9, 0), time.Second)
	a.start(time.Unix(9, 0), time.Unix(9, 0), positionOf(2))
	b.start(time.Unix(9, 0), time.Unix(9, 0), positionOf(3))
	if a.mark.Bounds[1].Row != positionOf(2) || len(m.Bounds) != 1 {
		t.Errorf("%+v and %+v of %+v", a.mark, b.mark, m)
	}
}

// TestMarkStaysSmall catches up as often as possible.
func TestMarkStaysSmall(t *testing.T) {
	var m Mark
	for i := range 100_000 {
		now := time.Unix(0, 0).Add(time.Duration(i) * time.Millisecond)
		p := m.newPass(now, time.Second)
		p.start(now, now, positionOf(i+1))
		p.spanRead(0)
		if m = p.mark; len(m.Bounds) > boundsPerOverlap+1 {
			t.Fatalf("%d sightings", len(m.Bounds))
		}
	}
	if behind := 100_000 - rowOf(m.Floor); behind > 1000+1000/boundsPerOverlap+2 {
		t.Errorf("the floor is %d ms behind", behind)
	}
	text, err := json.Marshal(m)
	if err != nil || strings.Count(string(text), `"of"`) != 2 {
		t.Errorf("%s, %v; want the floor and one sighting", text, err)
	}
}
