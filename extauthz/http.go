package extauthz

import (
	"maps"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/ordergate/ordergate/internal/gate"
	"github.com/ordergate/ordergate/internal/order"
)

// The paths for proxies. Each path has its own way of naming the original request, and
// accepts no other.
const (
	pathEnvoy       = "/check/envoy"        // the original path and query follow; the method is the original's
	pathNginx       = "/check/nginx"        // X-Original-URI, X-Original-Method and Host
	pathForwardAuth = "/check/forward-auth" // X-Forwarded-Uri, X-Forwarded-Method and X-Forwarded-Host
	pathAnswer      = "/answer/"            // a rule's name and a refusal's name follow
	pathForged      = "/answer/forged"      // not under a rule's name: a slash follows those
	pathProof       = "/answer/doctor-"     // the nonce of a mark follows, or why it is not valid
)

// headerAnswer names to nginx the path of the answer for the client: auth_request accepts
// only 2xx, 401 and 403, without a body.
const headerAnswer = "x-ordergate-answer"

// HTTPHandler returns a handler for the sub-requests of Envoy's ext_authz http_service, of
// nginx's auth_request and of Traefik's forwardAuth. It decides like the checks over gRPC.
// The answer is 200 for a request that passes, and the configured answer for one that is
// refused. At /check/nginx a refusal is 403 with the path of its answer. A sub-request that
// does not name its original exactly once gets 400. A sub-request to any other path gets
// 500, which no proxy can mistake for the answer to an order.
//
// The handler cannot remove headers from the original request. So it refuses a request with
// a header that a server may take for one of ordergate's, with or without a rule
// ([gate.Forged]). The proxy removes those in [gate.Owned].
//
// The handler reads no body, so it does not decide a rule that needs one. It is safe for
// concurrent use. It trusts the sub-request: only proxies may reach it.
func (s *Server) HTTPHandler() http.Handler { return (*httpHandler)(s) }

// httpHandler answers sub-requests with prepared answers.
type httpHandler Server

// staticReplies are the answers that depend on no rule.
type staticReplies struct {
	pass        *httpReply // for a request without a rule
	allowed     [gate.Verdicts]*httpReply
	forged      *httpReply
	forgedNginx *httpReply // names the path of forged
	unnamed     *httpReply
	misdirected *httpReply
}

func newStaticReplies() *staticReplies {
	ambiguous := gate.Header{Name: gate.HeaderVerdict, Value: gate.VerdictAmbiguous.String()}
	replies := &staticReplies{
		pass:        newHTTPReply(http.StatusOK, ""),
		unnamed:     misconfigured(http.StatusBadRequest, "the headers that name the original request have to be there exactly once each, and name a path: have the proxy set them"),
		misdirected: misconfigured(http.StatusInternalServerError, "nothing is decided at this path: send sub-requests to "+pathEnvoy+", "+pathNginx+" or "+pathForwardAuth),
	}
	replies.forged = newHTTPReply(http.StatusBadRequest, `{"error":"a header may be read as one of ordergate's","part":"header"}`,
		ambiguous, gate.Header{Name: "Content-Type", Value: "application/json"})
	replies.forgedNginx = newHTTPReply(http.StatusForbidden, "", ambiguous, gate.Header{Name: headerAnswer, Value: pathForged})
	for v := range gate.Verdict(gate.Verdicts) {
		replies.allowed[v] = newHTTPReply(http.StatusOK, "", gate.Header{Name: gate.HeaderVerdict, Value: v.String()})
	}
	replies.allowed[gate.VerdictNone] = replies.pass
	return replies
}

// ruleReplies are the answers of one gate.
type ruleReplies struct {
	refused []refusals            // by rule
	own     map[string]*httpReply // by path
	byPath  map[string]*httpReply // with those of the previous gate: nginx may just have received their paths
}

// refusals are the answers of one rule. An entry is nil if the rule never gives it.
type refusals struct{ direct, nginx [gate.Refusals]*httpReply }

func newRuleReplies(g *gate.Gate, before *gateReplies) ruleReplies {
	replies := ruleReplies{own: make(map[string]*httpReply), byPath: make(map[string]*httpReply)}
	for _, p := range g.Policies() {
		var r refusals
		for i := range gate.Refusal(gate.Refusals) {
			reply, v, ok := p.Reply(i)
			if !ok {
				continue
			}
			verdict := gate.Header{Name: gate.HeaderVerdict, Value: v.String()}
			path := pathAnswer + url.PathEscape(p.Rule.Name) + "/" + i.String()
			answer := newHTTPReply(reply.Status, reply.Body, append(reply.Headers(), verdict)...)
			direct := *answer
			if direct.status < http.StatusMultipleChoices { // Envoy and Traefik would pass the request
				direct.status = http.StatusForbidden
			}
			r.direct[i], replies.own[path] = &direct, answer
			r.nginx[i] = newHTTPReply(http.StatusForbidden, "", verdict, gate.Header{Name: headerAnswer, Value: path})
		}
		replies.refused = append(replies.refused, r)
	}
	if before != nil {
		maps.Copy(replies.byPath, before.http.own)
	}
	maps.Copy(replies.byPath, replies.own)
	return replies
}

// ServeHTTP implements http.Handler. It uses the request target as it arrived: a ServeMux
// would clean the original path in it.
func (h *httpHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	replies := h.current.Load()
	if answer, ok := replies.http.byPath[r.RequestURI]; ok {
		answer.write(w)
		return
	}
	if nonce, ok := strings.CutPrefix(r.RequestURI, pathProof); ok {
		if answer, ok := h.proofs.LoadAndDelete(nonce); ok {
			answer.(*httpReply).write(w)
			return
		}
		if nonce == gate.MarkForged || nonce == gate.MarkExpired || nonce == gate.MarkRepeated {
			proofReply(gate.RefusedMark(nonce)).write(w)
			return
		}
	}
	switch r.RequestURI {
	case pathForged:
		h.http.forged.write(w)
	case pathNginx:
		by := original{target: "X-Original-Uri", method: "X-Original-Method"}
		if _, named := r.Header[by.target]; !named { // ingress-nginx
			by.target, by.url = "X-Original-Url", true
		}
		h.decide(w, r, replies, by)
	case pathForwardAuth:
		h.decide(w, r, replies, original{target: "X-Forwarded-Uri", method: "X-Forwarded-Method", host: "X-Forwarded-Host"})
	default:
		target, ok := strings.CutPrefix(r.RequestURI, pathEnvoy)
		// "OPTIONS *" has a target without a slash. Any other suffix belongs to a wrong
		// prefix.
		if !ok || !isPath(target) {
			h.http.misdirected.write(w)
			return
		}
		h.respond(w, r, replies, order.Request{Method: r.Method, Host: r.Host, Target: target, Header: newFields(r.Header)})
	}
}

// original names the headers, as net/http spells them, that hold the original request.
// Without a host header, the host is the sub-request's own.
type original struct {
	target, method, host string
	url                  bool // the target is a whole URL, with the host
}

// decide answers a sub-request that names its original in headers.
func (h *httpHandler) decide(w http.ResponseWriter, r *http.Request, replies *gateReplies, by original) {
	target, named := once(r.Header, by.target)
	method, hasMethod := once(r.Header, by.method)
	host, hasHost := r.Host, true
	if by.host != "" {
		host, hasHost = once(r.Header, by.host) // HTTP/1.0 allows an empty one
	}
	if by.url && named {
		_, rest, _ := strings.Cut(target, "://")
		authority, path, found := strings.Cut(rest, "/")
		host, target, named = authority, "/"+path, found
	}
	if !named || !hasMethod || !hasHost || !isPath(target) || method == "" {
		h.http.unnamed.write(w)
		return
	}
	// The proxy's headers are not part of the original request. From a client, they would
	// be an attempt to disguise the request to the backend.
	header := newFields(r.Header, by.target, by.method, by.host)
	h.respond(w, r, replies, order.Request{Method: method, Host: host, Target: target, Header: header})
}

// respond decides. It treats the body as unseen, because nginx and Traefik do not send the
// original's body. A rule that needs the body gets the verdict "unknown".
func (h *httpHandler) respond(w http.ResponseWriter, r *http.Request, replies *gateReplies, req order.Request) {
	if mark, result := h.marks.Take(gate.MarkIn(req.Header)); result != "" {
		h.prove(w, r, replies.gate, &mark, result, req)
		return
	}
	d := replies.gate.Screen(r.Context(), req)
	if d.Refused {
		replies.gate.ReportRefused(h.log, &d, &req)
	} else {
		replies.gate.PassedHTTP(&d)
	}
	switch {
	case !d.Refused && len(gate.Forged(req.Header)) > 0:
		replies.gate.LogUnruled(gate.VerdictAmbiguous, gate.ReasonForged, http.StatusBadRequest, &req)
		if r.RequestURI == pathNginx {
			h.http.forgedNginx.write(w)
		} else {
			h.http.forged.write(w)
		}
	case d.Rule < 0:
		h.http.pass.write(w)
	case !d.Refused:
		h.http.allowed[d.Verdict].write(w)
	case r.RequestURI == pathNginx:
		replies.http.refused[d.Rule].nginx[d.Refusal()].write(w)
	default:
		replies.http.refused[d.Rule].direct[d.Refusal()].write(w)
	}
}

// prove answers a marked request with what it has seen of it, or why its mark is not valid, as a
// refusal.
func (h *httpHandler) prove(w http.ResponseWriter, r *http.Request, g *gate.Gate, mark *gate.Mark, result string, req order.Request) {
	answer, name := proofReply(gate.RefusedMark(result)), result
	if result == gate.MarkTaken {
		report := g.Report(gate.AdapterHTTP, mark, req)
		report.RawLines = true
		answer, name = proofReply(report.Reply()), mark.Nonce
	}
	if r.RequestURI != pathNginx {
		answer.status = max(answer.status, http.StatusForbidden)
		answer.write(w)
		return
	}
	if result == gate.MarkTaken {
		h.proofs.Store(name, answer)
		time.AfterFunc(gate.MarkValid, func() { h.proofs.Delete(name) })
	}
	newHTTPReply(http.StatusForbidden, "", verdictNone, gate.Header{Name: headerAnswer, Value: pathProof + name}).write(w)
}

var verdictNone = gate.Header{Name: gate.HeaderVerdict, Value: gate.VerdictNone.String()}

func proofReply(r gate.Reply) *httpReply {
	return newHTTPReply(r.Status, r.Body, append(r.Headers(), verdictNone)...)
}

// isPath reports whether a target is a path, or the "*" of OPTIONS. Traefik forwards others
// too: "orders/42" of a client's "http:orders/42".
func isPath(target string) bool { return strings.HasPrefix(target, "/") || target == "*" }

// once returns the value of a header that was sent exactly once.
func once(header http.Header, name string) (value string, ok bool) {
	values := header[name]
	if len(values) != 1 {
		return "", false
	}
	return values[0], true
}
