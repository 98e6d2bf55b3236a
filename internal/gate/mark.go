package gate

import (
	"crypto/hmac"
	"crypto/rand"
	"encoding/hex"
	"maps"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/ordergate/ordergate/internal/order"
)

// HeaderDoctor carries a mark, of a request by which `ordergate doctor` proves an attachment. Every
// adapter removes it, as it does any header that only ordergate may send.
const HeaderDoctor = "x-ordergate-doctor"

// MarkedPath is the path of a marked request wherever Envoy may pass it on: no backend serves it.
const MarkedPath = "/.ordergate/doctor"

// UnreadType is the type of a body that no backend is to read: of one that the gate has yet to see, or
// of a marked request.
const UnreadType = "application/vnd.ordergate.body-not-seen"

// Stage is the part of the chain that answers a marked request.
type Stage string

// The stages. A request at StageBackend goes on to the backend, with a path that none serves, and
// its answer is replaced. One at StageGuard does so without what Envoy's filter ordergate.guard looks for.
const (
	StageAuthz   Stage = "authz"
	StageProc    Stage = "proc"
	StageBackend Stage = "backend"
	StageGuard   Stage = "guard"
)

// Mark is what a marked request asks for. It can be used once, at each adapter, within MarkValid.
type Mark struct {
	Stage Stage
	Rule  string        // that the request is meant for; "": none
	Delay time.Duration // for which the adapter keeps Envoy waiting before it answers
	Nonce string
	At    time.Time // when it was made
}

const (
	// MarkValid is how long a mark is valid. Clocks of two instances may differ by as much.
	MarkValid = 10 * time.Second
	// MaxMarkDelay bounds the delay of a mark.
	MaxMarkDelay = time.Minute
	// maxMark bounds the text of a mark, in bytes.
	maxMark = 256
	// maxUsedMarks bounds the marks that an adapter remembers. Only an operator can have more made.
	maxUsedMarks = 10_000
)

// NewMark returns a mark of now, with a random nonce.
func NewMark(stage Stage, rule string, delay time.Duration) Mark {
	var nonce [8]byte
	_, _ = rand.Read(nonce[:]) // it never fails
	return Mark{Stage: stage, Rule: rule, Delay: delay, Nonce: hex.EncodeToString(nonce[:]), At: time.Now()}
}

// Sign returns the text of a mark, for its header.
func (s *Seal) Sign(m Mark) string {
	text := strings.Join([]string{
		string(m.Stage), m.Rule, strconv.FormatInt(m.Delay.Milliseconds(), 10), m.Nonce, strconv.FormatInt(m.At.UnixMilli(), 10),
	}, ".")
	return text + "." + markMAC(s.Key(), text)
}

// markMAC differs from every mac of a request: its method is not empty.
func markMAC(key SealKey, text string) string { return mac(key, "", "doctor\n"+text) }

// readMark returns the mark of a text. It returns false if no ordergate with the same key has signed it.
func (s *Seal) readMark(text string) (m Mark, ok bool) {
	at := strings.LastIndexByte(text, '.')
	if at < 0 || len(text) > maxMark {
		return m, false
	}
	for _, key := range *s.keys.Load() {
		ok = ok || hmac.Equal([]byte(text[at+1:]), []byte(markMAC(key, text[:at])))
	}
	if !ok {
		return m, false
	}
	fields := strings.Split(strings.Clone(text[:at]), ".") // the text may end with an event of Envoy's
	if len(fields) != 5 {
		return m, false
	}
	delay, _ := strconv.ParseInt(fields[2], 10, 64) // ordergate has written it
	made, _ := strconv.ParseInt(fields[4], 10, 64)
	return Mark{
		Stage: Stage(fields[0]), Rule: fields[1], Delay: time.Duration(delay) * time.Millisecond,
		Nonce: fields[3], At: time.UnixMilli(made),
	}, true
}

// What becomes of a mark.
const (
	MarkTaken    = "valid"
	MarkForged   = "forged"
	MarkExpired  = "expired"
	MarkRepeated = "repeated"
)

// Marks judges the marks of the requests of one adapter. It is safe for concurrent use. A nil *Marks
// takes none.
type Marks struct {
	seal  *Seal
	count func(result string)
	now   func() time.Time

	mu   sync.Mutex
	used map[string]time.Time // by nonce: when it expires
}

// NewMarks returns marks that are signed with the key of a seal. It calls count with what becomes
// of each; nil: it does not.
func NewMarks(seal *Seal, count func(result string)) *Marks {
	if count == nil {
		count = func(string) {}
	}
	return &Marks{seal: seal, count: count, now: time.Now, used: make(map[string]time.Time)}
}

// MarkIn returns the text of the mark of a request, "" if there is none. Of several it returns one that no
// ordergate has signed.
func MarkIn(header order.Header) string {
	text, lines := headerLines(header, HeaderDoctor)
	if lines > 1 {
		return ","
	}
	return text
}

// Take returns the mark of a text, and what becomes of it: it is valid if an ordergate of this
// deployment has made it within MarkValid, and it comes here for the first time. Of any other text the
// caller answers the request by [RefusedMark]: it may be one of `ordergate doctor`, which must not act
// at the backend. The result is "" if there is no text.
func (m *Marks) Take(text string) (mark Mark, result string) {
	if m == nil || text == "" {
		return mark, ""
	}
	result = MarkForged
	if signed, ok := m.seal.readMark(text); ok {
		mark, result = signed, m.use(&signed)
	}
	m.count(result)
	return mark, result
}

// RefusedMark is the answer to a request whose mark is not valid.
func RefusedMark(result string) Reply {
	return Reply{
		Status: http.StatusBadRequest, Body: `{"error":"` + HeaderDoctor + ` has no valid mark","ordergate_mark":"` + result + `"}`,
		Others: []Header{{headerCacheControl, "no-store"}},
	}
}

func (m *Marks) use(mark *Mark) (result string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.now()
	if age := now.Sub(mark.At); age < -MarkValid || age >= MarkValid {
		return MarkExpired
	}
	if len(m.used) >= maxUsedMarks {
		maps.DeleteFunc(m.used, func(_ string, until time.Time) bool { return now.After(until) })
	}
	if _, used := m.used[mark.Nonce]; used || len(m.used) >= maxUsedMarks {
		return MarkRepeated
	}
	m.used[mark.Nonce] = mark.At.Add(MarkValid)
	return MarkTaken
}

// HideMarked is Hide for a marked request: the path has the mark.
func (s *Seal) HideMarked(method, target, mark string) string {
	return s.Hide(method, mark+"\n"+target) // neither has a line feed
}

// Unmark returns the target and the mark of a target that HideMarked has hidden, and Reveal has
// restored. Of any other it returns the target.
func Unmark(revealed string) (target, mark string) {
	if mark, target, ok := strings.Cut(revealed, "\n"); ok {
		return target, mark
	}
	return revealed, ""
}
