package envoymodule

import (
	"unsafe"

	"github.com/ordergate/ordergate/internal/gate"
)

// Envoy is Envoy's side of one stream. Only the worker may use it. None of its methods
// makes Envoy call the stream.
type Envoy interface {
	Headers(of Message) Headers
	Set(of Message, name, value string) // replaces the first one; others stay
	Remove(of Message, name string)     // all of that name
	Describe(*gate.Metadata)            // sets dynamic metadata
	Chunks(of Message) []Text           // of a body: the newest piece
	Details() string                    // response code details so far, "" if none
	Attempts() (n int, ok bool)         // to reach the backend; false: Envoy has no number
	Client() string                     // address and port, "" if unknown
	Waker() Waker                       // a new one
}

// Waker asks Envoy's worker to call [Stream.On] with Woken, once for each Wake. It is safe
// for concurrent use until Free. Envoy drops a pending Wake when its stream ends.
type Waker interface {
	Wake()
	Free()
}

// Message is the request or the response of a stream, or the trailers of the response.
type Message int8

// The messages.
const (
	Request Message = iota
	Response
	ResponseTrailer // only its headers
)

// Text points into Envoy's memory. It is valid until the worker continues with the stream.
type Text struct {
	data   *byte
	length uintptr
}

func (t Text) string() string { return unsafe.String(t.data, t.length) }

// appendTo appends texts to a body.
func appendTo(body []byte, chunks []Text) []byte {
	for _, chunk := range chunks {
		body = append(body, chunk.string()...)
	}
	return body
}

// Header is one line of a message's headers. The layout is that of Envoy's ABI.
type Header struct{ Name, Value Text }

// Step is what Envoy does next.
type Step struct {
	Do            Action
	Verdict       gate.Verdict // to set on a request that is forwarded; VerdictNone: no header
	WatchNotFound uint32       // with PassRequest: pass it to Adapter.NotFound after 404 or 410; 0: do not
	Reply         *Reply       // with Refuse
}

// Action is the action of a [Step].
type Action int8

// The actions.
const (
	Nothing      Action = iota
	PassRequest         // to the next filter, with the rest of it
	PassResponse        // likewise
	Read                // stop the message, and send its body to the stream
	Wait                // stop the message until a later step
	Refuse              // answer in place of the backend
)

// Reply is an answer in place of the backend.
type Reply struct {
	*gate.Answer
	Details string         // response code details
	Native  unsafe.Pointer // the result of Options.Native
	// Temporary says that the reply is for one request. It has no Native.
	Temporary bool
}

// Event is an event of a stream after its request headers.
type Event int8

// The events. RequestBody and RequestTrailers occur only while the request is read or
// waits, or after it was forwarded.
const (
	RequestBody Event = iota
	RequestTrailers
	ResponseHeaders
	ResponseBody
	ResponseTrailers
	Woken // after Waker.Wake
	Complete
	requestHeaders // only for the log, see Adapter.Request
)
