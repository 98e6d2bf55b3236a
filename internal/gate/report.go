package gate

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/ordergate/ordergate/internal/order"
)

// Report is the answer to a marked request: what an adapter has seen of it. `ordergate doctor` reads
// it. Its JSON always has all keys.
type Report struct {
	Nonce    string    `json:"ordergate_doctor"` // of the mark
	Adapter  string    `json:"adapter"`          // one of those below
	Sealed   bool      `json:"sealed"`           // the request has passed ext_authz before; in ext_authz: ext_proc
	AuthzOff bool      `json:"authz_off"`        // in ext_proc: ext_authz is off for the request
	Method   string    `json:"method"`
	Host     string    `json:"host"`
	Target   string    `json:"target"`
	Rule     string    `json:"rule"`   // under which the request falls; "": none
	Named    bool      `json:"named"`  // its order, if the rule needs one, is readable
	Reason   string    `json:"reason"` // why it is not
	Headers  []string  `json:"headers"`
	Time     time.Time `json:"time"`
	RawLines bool      `json:"raw_lines"` // each line of a header came as it was sent

	Body       *int        `json:"body"`       // bytes that Envoy has shown; null: it has shown none
	Trailers   bool        `json:"trailers"`   // Envoy has shown that the request ends in trailers
	BodyMode   string      `json:"body_mode"`  // request_body_mode of the configuration; "": unknown
	Attributes []string    `json:"attributes"` // of the request
	Answer     *AnswerSeen `json:"answer"`     // of the backend; null: none was waited for
}

// AnswerSeen is what an adapter has seen of the answer to a marked request.
type AnswerSeen struct {
	Status   int    `json:"status"`
	Details  string `json:"details"`  // response.code_details
	Attempts int    `json:"attempts"` // upstream.request_attempt_count; -1: unknown
	Ended    bool   `json:"ended"`    // Envoy has shown its end
}

// The adapters of a [Report].
const (
	AdapterAuthz  = "ext_authz"
	AdapterProc   = "ext_proc"
	AdapterModule = "module"
	AdapterHTTP   = "http"
)

// Report returns what an adapter has seen of a marked request. It has no other effect.
func (g *Gate) Report(adapter string, mark *Mark, req order.Request) *Report {
	r := &Report{
		Nonce: mark.Nonce, Adapter: adapter, Method: strings.Clone(req.Method), Host: strings.Clone(req.Host), Target: strings.Clone(req.Target),
		Headers: []string{}, Attributes: []string{}, Time: g.now().UTC(),
	}
	for name := range order.All(req.Header) {
		if name != HeaderDoctor && len(name) > 0 && name[0] != ':' {
			r.Headers = append(r.Headers, strings.Clone(name))
		}
	}
	slices.Sort(r.Headers)
	if m := g.Match(req); m.Rule >= 0 && (!m.Screening || isUnreadable(&m)) {
		r.Rule = g.policies[m.Rule].Rule.Name
		r.Named = !isUnreadable(&m) && m.Result != order.NeedsBody
		r.Reason = m.Reason.String()
	}
	return r
}

// Reply returns the report as an answer.
func (r *Report) Reply() Reply {
	body, _ := json.Marshal(r) // it never fails
	return Reply{Status: http.StatusOK, Body: string(body)}
}
