package lockmw

import (
	"strings"

	extproc "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/ordergate/ordergate/internal/order"
)

// handleResponseOnly serves a stream that does not begin with a request. Its filter sends
// only answers, or an upgrade failed. No lock is involved, so it lets the answer pass. In
// observability mode Envoy waits for no reply, and gets none: then the stream ends when
// this function returns, not seconds later.
func (s *Server) handleResponseOnly(stream extproc.ExternalProcessor_ProcessServer, first *extproc.ProcessingRequest) error {
	if headers := first.GetResponseHeaders(); headers != nil {
		if req, ok := requestOf(first); ok {
			g := s.current.Load().gate
			if rule := g.Answered(req, response(headers, first)); rule != "" && s.opts.Seal != nil {
				s.checkAuthz(g, rule)
			}
		}
	}
	if first.GetObservabilityMode() {
		return nil
	}
	return stream.Send(continueReply(first))
}

// requestOf returns the request of a message, from its attributes. It returns false if
// Envoy does not send them.
func requestOf(msg *extproc.ProcessingRequest) (req order.Request, ok bool) {
	fields := msg.GetAttributes()[attributesKey].GetFields()
	req.Method = fields["request.method"].GetStringValue()
	req.Host = fields["request.host"].GetStringValue()
	req.Target = fields["request.path"].GetStringValue() // query included
	req.Header = headerAttributes(fields)
	return req, req.Method != "" && req.Target != ""
}

// headerAttributes returns the request headers among the attributes, such as
// request.headers['x-order-id'].
func headerAttributes(fields map[string]*structpb.Value) (found order.HeaderList) {
	for name, value := range fields {
		name, isHeader := strings.CutPrefix(name, "request.headers[")
		if !isHeader || len(name) < len(`''`)+len("]") {
			continue
		}
		found = append(found, [2]string{strings.Trim(strings.TrimSuffix(name, "]"), `'"`), value.GetStringValue()})
	}
	return found
}
