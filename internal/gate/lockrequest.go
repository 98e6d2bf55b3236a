package gate

import (
	"net/netip"

	"github.com/ordergate/ordergate/internal/order"
)

// headerRequestID is the header with Envoy's ID of the request.
const headerRequestID = "x-request-id"

// maxTokenBytes bounds the headers that go into a lock request, in bytes: two owners, or
// any sensible request ID. Longer values are ignored.
const maxTokenBytes = 128

// SetClient sets the caller's address, before Acquire: with a port, as Envoy sends it.
func (c *Call) SetClient(address string) { c.lockRequest.Client = clientOf(address) }

// clientOf returns an address without its port. For IPv6 it returns the /64 network, which
// belongs to one client (RFC 6177). For anything else it returns "".
func clientOf(address string) string {
	from, err := netip.ParseAddrPort(address)
	if err != nil {
		return ""
	}
	ip := from.Addr().Unmap()
	if ip.Is4() {
		return ip.String()
	}
	network, _ := ip.Prefix(64)
	return network.String()
}

// leaseAndRequestID returns the lease that a request presents, the request's ID, and the size of the headers
// that it keeps. A header that was sent twice counts as absent, because it is ambiguous.
func leaseAndRequestID(header order.Header) (presented, id string, size headerSize) {
	leases, ids := 0, 0
	for name, value := range order.All(header) {
		switch name {
		case HeaderLease:
			presented = value
			leases++
		case HeaderKey, HeaderFence, HeaderVerdict:
		case headerRequestID:
			id = value
			ids++
			fallthrough
		default:
			size.bytes += len(name) + len(value)
			size.count++
		}
	}
	if leases != 1 || !isToken(presented) {
		presented = ""
	}
	if ids != 1 || !isToken(id) {
		id = ""
	}
	return presented, id, size
}

// isToken accepts short visible ASCII.
func isToken(text string) bool {
	if len(text) > maxTokenBytes {
		return false
	}
	for i := range len(text) {
		if text[i] <= ' ' || text[i] >= 0x7f {
			return false
		}
	}
	return true
}
