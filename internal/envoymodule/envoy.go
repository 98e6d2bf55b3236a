package envoymodule

import (
	"unsafe"

	"github.com/ordergate/ordergate/internal/gate"
)

// Envoy is what Envoy has of one stream. It is the worker's, like the stream itself, and
// none of its methods has Envoy call the stream.
type Envoy interface {
	Headers(of Message) Headers
	Set(of Message, name, value string) // in the place of the first; the others stay
	Remove(of Message, name string)     // all of them
	Chunks(of Message) []Text           // of a body: what has just come
	Details() string                    // the response code details so far, "" if there are none
	Attempts() (n int, ok bool)         // to reach the backend; false: Envoy has no number
	Client() string                     // its address and port, "" if Envoy has none
	Waker() Waker                       // a new one
}

// Waker has Envoy's worker call [Stream.Wake], once for each Wake. It is safe for
// concurrent use until it is freed. A Wake that Envoy has not come to when its stream
// ends comes to nothing.
type Waker interface {
	Wake()
	Free()
}

// Message is one of the two that a stream has.
type Message int8

// The messages.
const (
	Request Message = iota
	Response
)

// Text is in Envoy's memory, and valid as long as the worker has not gone on with the
// stream.
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

// Step is what Envoy is to do next.
type Step struct {
	Do            Action
	Verdict       gate.Verdict // to be set on a request that passes; none: nothing is
	WatchNotFound bool         // with PassRequest: see Adapter.NotFound
	Reply         *Reply       // with Refuse
}

// Action is what a [Step] is about.
type Action int8

// The actions.
const (
	Nothing      Action = iota
	PassRequest         // on to the next filter, and the rest of it
	PassResponse        // likewise
	Read                // keep the message back, and show its body
	Wait                // keep the message back until Wake says otherwise
	Refuse              // answer in the backend's stead
)

// Reply is an answer in the backend's stead.
type Reply struct {
	Status  uint32
	Headers [][2]string
	Body    string
	Details string         // response code details
	Native  unsafe.Pointer // what Options.Native made of it
}

// Event is something that happens to a stream after its request headers.
type Event int8

// The events. RequestBody and RequestTrailers come only while the request is read or
// waits, or has passed.
const (
	RequestBody Event = iota
	RequestTrailers
	ResponseHeaders
	ResponseBody
	ResponseTrailers
	Woken // by a Waker
	Complete
	requestHeaders // see Adapter.Request
)
