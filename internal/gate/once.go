package gate

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/ordergate/ordergate/internal/order"
)

// Once has the answer of a finished call stored, and given again to later calls for the same.
// The script that releases a lock stores the answer, and the script that acquires it looks for
// one. So a call either gets the lock, or finds the answer of an earlier call.
type Once struct {
	// Key finds the lock by parts of the request. Nil: it is the order's lock, of [Settle].
	Key  *OnceKey
	Name string        // of the stored answers beside the lock
	Keep time.Duration // of a stored answer; with Forget, of the mark that withholds those of earlier calls

	// Meanwhile gives a stored answer only to equal requests that came before it was stored, and
	// waited, or at most For later. For any other, the answer says nothing: it may be about another
	// order.
	Meanwhile bool
	For       time.Duration

	Stores  func(status int) bool // whether an answer of this status is stored
	MaxBody int                   // the largest stored body, in bytes
	Headers []string              // that are stored with it, in lower case

	// Fingerprint refuses a call whose method, host, target or body is not that of the stored answer's
	// call: see repeatableTarget and repeatableBody.
	Fingerprint bool
	// Scope are request headers, in lower case. A call in which one is not that of the stored
	// answer's call is a [VerdictDuplicate]. Without Key; that has a scope of its own.
	Scope []string
	// Forget names the stored answers that a call deletes whose status is one of Stores: it undoes
	// what they report. Such a call looks for no answer and stores none. [AllAnswers] comes first.
	Forget []string

	Duplicate   Reply // the order was settled by another rule, or together with other orders
	Mismatch    Reply // Fingerprint refuses the call
	InUse       Reply // the first call with this key has not ended
	Missing     Reply // the request has no key, or no usable one
	Unavailable Reply // Redis does not answer; only without Settle
}

// OnceResult is what became of a call under a [Once].
type OnceResult int8

// The results.
const (
	OnceStored    OnceResult = iota // the answer is stored
	OnceReplayed                    // a stored answer was given
	OnceForgotten                   // stored answers were deleted
	OnceStatus                      // the answer's status is not one that is stored
	OnceTooLarge                    // the answer's body is larger than the limit: what was done is stored
	OnceUnfit                       // the answer depends on more than the request, or has trailers: the same
	OnceFailed                      // Redis did not store the answer in time
	OnceDuplicate                   // the order was settled in another way
	OnceMismatch                    // the key was used for another request
	OnceInUse                       // the first call with the key has not ended
	onceResults
)

// OnceResults is the number of results, for tables indexed by one.
const OnceResults = int(onceResults)

var onceResultNames = [OnceResults]string{
	"stored", "replayed", "forgotten", "status", "too_large", "unfit", "failed", "duplicate", "mismatch", "in_use",
}

// String returns the name that metrics use.
func (r OnceResult) String() string { return onceResultNames[r] }

// StoredAnswer is the error of a [Locker] that found a stored answer in place of a lock.
type StoredAnswer struct {
	Text string
	// Withheld means that the answer cannot be given: it is suspended, or not all of the requested
	// locks have one.
	Withheld bool
	All      []string // of several locks: the texts of all of them. Text is one of them
	byKey    bool     // it is beside the lock of the call's key
}

// Error implements error. It does not quote the answer.
func (*StoredAnswer) Error() string { return "the answer of an earlier call is stored" }

// ErrInUse means that the first call with the same key has not ended.
var ErrInUse = errors.New("the first call with this key has not ended")

// AllAnswers stands for the stored answers of all names.
const AllAnswers = "*"

// Headers of a stored answer.
const (
	HeaderSettledAt = "x-ordergate-settled-at" // the time at which the answer was stored, RFC 3339
	headerAge       = "age"                    // seconds since then (RFC 9111, 5.1)
)

// answerRecord is what Redis stores of an answer: a line of JSON, and the body. Without a status it
// is brief: it shows only what was done.
type answerRecord struct {
	answerBrief
	Fences  []int64     `json:"fences,omitempty"` // of a key: the number of the answer for each of its orders
	At      int64       `json:"at"`               // ms since 1970
	Status  int         `json:"status,omitempty"`
	Head    bool        `json:"head,omitempty"` // it answers HEAD, and has no body
	Headers [][2]string `json:"headers,omitempty"`
	Trace   string      `json:"trace,omitempty"` // traceparent of the request, if the trace is sampled
	// Vary has hashes of the request's headers by which the answer varies.
	Vary map[string]string `json:"vary,omitempty"`
}

// answerBrief is what a record says of the request.
type answerBrief struct {
	Rule    string `json:"rule"`
	Orders  string `json:"orders,omitempty"`  // fingerprint of several orders; "" for one
	Request string `json:"request,omitempty"` // fingerprint of the request; "": none is needed
	Caller  string `json:"caller,omitempty"`  // hash of the scope of the order, and of the host; "": it has none
	Subject string `json:"subject,omitempty"` // of a key: hash of the host and the order of the request
}

func (r *answerRecord) text(body []byte) string {
	line, _ := json.Marshal(r) // it never fails for this type
	return string(append(append(line, '\n'), body...))
}

// readAnswer reads the text of a record.
func readAnswer(text string) (r answerRecord, body string, err error) {
	line, body, _ := strings.Cut(text, "\n")
	if err := json.Unmarshal([]byte(line), &r); err != nil || r.Rule == "" || !r.isValid() {
		return answerRecord{}, "", errors.New("what is stored is no answer")
	}
	return r, body, nil
}

// isValid reports whether a proxy can send the answer. Redis may have it from another writer.
func (r *answerRecord) isValid() bool {
	if r.Status != 0 && (r.Status < 200 || r.Status > 599) {
		return false
	}
	const token = "abcdefghijklmnopqrstuvwxyz0123456789!#$%&'*+-.^_`|~"         // RFC 9110, 5.6.2, in lower case
	isControl := func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f } // RFC 9110, 5.5
	return !slices.ContainsFunc(r.Headers, func(h [2]string) bool {
		return h[0] == "" || strings.Trim(h[0], token) != "" || strings.ContainsFunc(h[1], isControl)
	})
}

// AnswerSummary describes a stored answer, for an operator.
type AnswerSummary struct {
	Rule   string
	Status int // 0: it shows only what was done
	At     time.Time
}

// SummarizeAnswer describes the text of a stored answer, without its body and headers.
func SummarizeAnswer(text string) (AnswerSummary, error) {
	r, _, err := readAnswer(text)
	return AnswerSummary{r.Rule, r.Status, time.UnixMilli(r.At).UTC()}, err
}

// answer returns the stored answer for a client.
func (r *answerRecord) answer(body string, now time.Time) *Answer {
	at := time.UnixMilli(r.At)
	a := &Answer{Verdict: VerdictReplayed, Status: r.Status, Body: body, Headers: make([]Header, 0, len(r.Headers)+4)}
	for _, h := range r.Headers {
		a.Headers = append(a.Headers, Header{h[0], h[1]})
	}
	if !slices.ContainsFunc(r.Headers, func(h [2]string) bool { return h[0] == "cache-control" }) {
		a.Headers = append(a.Headers, Header{"cache-control", "no-store"}) // also of a GET that acts
	}
	age := max(0, now.Sub(at)) // another instance's clock may be ahead
	a.Headers = append(a.Headers,
		Header{HeaderVerdict, VerdictReplayed.String()},
		Header{HeaderSettledAt, at.UTC().Format(time.RFC3339)},
		Header{headerAge, strconv.FormatInt(int64(age/time.Second), 10)})
	return a
}

// hashOf returns a short text for a list of texts, different for every other list (SHA-256, of
// which it has 128 bits).
func hashOf(texts ...string) string {
	h := sha256.New()
	var size [8]byte
	for _, text := range texts {
		binary.BigEndian.PutUint64(size[:], uint64(len(text)))
		h.Write(size[:])
		h.Write([]byte(text))
	}
	return base64.RawURLEncoding.EncodeToString(h.Sum(nil)[:16])
}

// onceCall is what a call knows of its stored answers, and its own answer so far.
type onceCall struct {
	order *Once  // of the order's lock; nil: none
	key   *Once  // of the key's lock; nil: none, or the request has no key
	keyID string // names the key's lock

	brief   answerBrief
	varying varying
	head    bool // the method is HEAD

	headers [][2]string // that either stores
	body    []byte
	size    int
	length  int      // of the body, by its Content-Length; -1: not given
	vary    []string // by which headers of the request it varies
	unfit   string   // why the answer cannot be stored; "": it can
	encoded bool     // the answer has a Content-Encoding

	grant   Grant
	decided bool         // what is stored, at the end of the answer
	changes []onceChange // what is stored and forgotten
}

// onceChange is what the release of a lock does with stored answers.
type onceChange struct {
	once        *Once
	result      OnceResult // OnceForgotten, or of what is stored
	text, brief string
}

// prepareOnce reads what the request says about stored answers. The reason is why it is
// refused.
func (c *Call) prepareOnce(m *order.Match, req *order.Request) order.Reason {
	p := c.policy
	if p.Once == nil && (p.Settle == nil || p.Settle.Once == nil) {
		return order.NoReason
	}
	o := onceCall{length: -1, brief: answerBrief{Rule: p.Rule.Name}}
	if p.Once != nil {
		id, why := p.Once.Key.of(p.Rule.Name, req)
		if why != order.NoReason {
			return why
		}
		if id != "" && m.Prefix != "" { // two tenants may choose one key
			id = hashOf(id, m.Prefix)
		}
		if id != "" {
			o.key, o.keyID = p.Once, id
			o.brief.Subject = hashOf(strings.ToLower(req.Host), m.ID)
		}
	}
	if p.Settle != nil && m.Result == order.Named {
		o.order = p.Settle.Once
	}
	if o.order != nil {
		o.brief.Caller = callerOf(o.order.Scope, req)
		if o.order.Meanwhile { // the lock is the same for a forged signature
			o.brief.Caller = hashOf(p.Rule.Tokens(req)...)
		}
	}
	if o.order == nil && o.key == nil {
		return order.NoReason
	}
	if len(m.Batch) > 1 {
		o.brief.Orders = hashOf(m.Batch...)
	}
	if o.order != nil && o.order.Fingerprint || o.key != nil && o.key.Fingerprint {
		o.brief.Request = hashOf(req.Method, strings.ToLower(req.Host), repeatableTarget(req.Target), repeatableBody(req))
	}
	o.varying, o.head = varyingOf(req), req.Method == http.MethodHead
	c.once = &o
	return order.NoReason
}

// readsBody reports whether the request's body decides which stored answer is the call's.
func (p *Policy) readsBody() bool {
	return p.Settle != nil && p.Settle.Once != nil && p.Settle.Once.Fingerprint ||
		p.Once != nil && (p.Once.Fingerprint || slices.Contains(p.Once.Key.Parts, ""))
}

// both calls do for each Once of the call.
func (o *onceCall) both(do func(*Once)) {
	for _, once := range []*Once{o.order, o.key} {
		if once != nil {
			do(once)
		}
	}
}

// begin notes the headers of the call's answer.
func (o *onceCall) begin(r *Response) {
	if r.Status == http.StatusPartialContent {
		o.unfit = "it is a part of something"
	}
	if r.Header == nil {
		o.unfit = "Envoy does not show its headers"
		return
	}
	var vary, encoding string
	announced := false // trailers. A client may leave before, when it has all bytes of Content-Length
	for name, value := range order.All(r.Header) {
		switch name {
		case "vary":
			vary += "," + value
		case "content-encoding":
			encoding, o.encoded = value, o.encoded || isEncoding(value)
		case "content-length":
			if n, err := strconv.Atoi(value); err == nil {
				o.length = n
			}
		case "trailer":
			announced = true
		case corsHeaders[0]:
			if value != "*" {
				o.vary = append(o.vary, "origin") // also where the backend does not say so
			}
		case "content-type":
			if strings.HasPrefix(strings.ToLower(value), grpcContentType) { // gRPC-Web, too
				o.unfit = "it is gRPC's"
			}
		}
		kept := false
		o.both(func(once *Once) { kept = kept || once.storesHeader(name) })
		if kept && !utf8.ValidString(value) {
			o.unfit = "its header " + name + " is not UTF-8"
		}
		if kept {
			o.headers = append(o.headers, [2]string{strings.Clone(name), strings.Clone(value)})
		}
	}
	if announced {
		o.unfit = "it announces trailers"
	}
	// The request was forwarded without Accept-Encoding, so an answer that says that it varies
	// by it, and is not encoded, fits every client.
	for part := range strings.SplitSeq(vary, ",") {
		switch part = strings.ToLower(strings.TrimSpace(part)); {
		case part == "", part == "accept-encoding" && encoding == "":
		case slices.Contains(varyingNames[:], part):
			o.vary = append(o.vary, part)
		default:
			o.unfit = fmt.Sprintf("it varies by the request's header %q (Vary)", part)
		}
	}
}

// corsHeaders are headers without which a browser shows an answer to no script of another origin. They
// are stored with each answer.
var corsHeaders = [...]string{"access-control-allow-origin", "access-control-allow-credentials", "access-control-expose-headers"}

// addBody notes a piece of the answer's body, to be stored. It reports whether that is the last one: a client
// takes an answer for complete when it has as many bytes as its Content-Length says, whether
// or not Envoy has reported the end.
func (c *Call) addBody(chunk []byte) (last bool) {
	o := c.once
	o.size += len(chunk)
	largest := 0
	o.both(func(once *Once) { largest = max(largest, once.MaxBody) })
	if c.readings.readBody() {
		largest = max(largest, minReadBody)
	}
	if o.size > largest {
		o.body = nil
	} else {
		o.body = append(o.body, chunk...)
	}
	return o.length > 0 && o.size >= o.length
}

// minReadBody is how many bytes of an answer are read if they decide what it means, also if fewer
// can be stored. It is the default of max_body.
const minReadBody = 64 << 10

// storable returns whether the answer is stored by one of the two, and a reason for the log if it is
// not. A failure by the rule's answer is no reason: any client can cause one. Of an answer that is
// too large or unfit, what was done is stored: the client of a later call could choose that. It could
// choose a redirect, too. Below 400, of a status that the rule's answer names, each answer is stored
// that is no failure, and of each other status that is not one of statuses, what was done.
func (c *Call) storable(once *Once) (OnceResult, string) {
	o, answers := c.once, c.policy.Answers
	means, whole := c.meaning()
	then := "the same call will reach the backend"
	if len(once.Forget) > 0 && !c.failed() {
		then = "the stored answer of the settlement stays suspended"
	}
	switch {
	case c.grpcFailed():
		return OnceStatus, "its grpc-status is not 0: the same call will reach the backend"
	case means.failed():
		return OnceStatus, ""
	case answers.saysDone() && !c.grpcAnswer && whole && means != MeansDone:
		return OnceStatus, "the rule's answer does not say that it is done: " + then
	case !once.Stores(c.status) && (c.status >= http.StatusBadRequest || len(once.Forget) > 0):
		return OnceStatus, fmt.Sprintf("its status %d is not one of statuses: %s", c.status, then)
	case len(once.Forget) > 0:
		return OnceForgotten, ""
	case !once.Stores(c.status) && !answers.names(c.status):
		return OnceUnfit, fmt.Sprintf("its status %d is not one of statuses, and the rule's answer does not name it as a failure: "+
			"the same call will be refused", c.status)
	case o.unfit != "":
		return OnceUnfit, o.unfit + ": the same call will be refused"
	case o.size > once.MaxBody:
		return OnceTooLarge, fmt.Sprintf("its body has more than %d bytes (max_body): the same call will be refused", once.MaxBody)
	}
	return OnceStored, ""
}

// failed reports whether the answer to a call shows that nothing was done: the backend refused it, and
// the rule's answer does not say that it is done.
func (c *Call) failed() bool {
	means, _ := c.meaning()
	return c.grpcFailed() || means.failed() || means != MeansDone && c.status >= 400 && c.status < 500
}

func (c *Call) grpcFailed() bool { return c.grpcAnswer && c.grpcStatus != "0" }

// meaning returns what the answer means. Whole: all of its body was read. If it is too large for that,
// or encoded, the meaning is not certain.
func (c *Call) meaning() (means Meaning, whole bool) {
	o := c.once
	whole = len(o.body) == o.size && !o.encoded
	return c.readings.means(o.body, whole), whole
}

// undoes returns which answers the call deletes.
func (once *Once) undoes() []string {
	if once.Forget[0] == AllAnswers { // also of names that only another instance knows
		return once.Forget[:1]
	}
	return once.Forget
}

// storesHeader reports whether a header of an answer is stored with it.
func (once *Once) storesHeader(name string) bool {
	return name == "content-encoding" || slices.Contains(corsHeaders[:], name) || slices.Contains(once.Headers, name)
}

// onceReply returns the answer to a call that a stored answer refuses.
func (p *Policy) onceReply(v Verdict) (Reply, bool) {
	var once []*Once
	if p.Once != nil {
		once = append(once, p.Once)
	}
	if p.Settle != nil && p.Settle.Once != nil && len(p.Settle.Once.Forget) == 0 {
		once = append(once, p.Settle.Once)
	}
	if len(once) == 0 {
		return Reply{}, false
	}
	switch v {
	case VerdictDuplicate:
		return withProblem(once[len(once)-1].Duplicate, "this was done before, and its answer cannot be given again"), true
	case VerdictMismatch:
		return withProblem(once[0].Mismatch, "an answer is stored for another request with the same key or order"), true
	case VerdictInUse:
		return withProblem(once[0].InUse, ErrInUse.Error()), once[0].Key != nil
	}
	return Reply{}, false
}

// docsOnce explains the refusals under a [Once].
const docsOnce = "https://github.com/ordergate/ordergate/blob/main/docs/once.md"

// withProblem gives a reply without a body one that names the problem (RFC 9457).
func withProblem(r Reply, title string) Reply {
	if r.Body == "" {
		r.Body = fmt.Sprintf(`{"type":%q,"title":%q,"status":%d}`, docsOnce, title, r.Status)
		r.Problem = true
	}
	return r
}
