package gate

import (
	"net/netip"
	"strings"

	"github.com/ordergate/ordergate/internal/order"
)

// headerRequestID is the name that Envoy gives to each request.
const headerRequestID = "x-request-id"

// maxTokenBytes bounds the headers that a lock is asked with, in bytes: two owners, or
// any sensible request ID. What is longer is ignored.
const maxTokenBytes = 128

// newLockRequest takes what a lock is asked for out of a request, and of its memory. Size is that of
// the headers that the request keeps.
func newLockRequest(p *Policy, m order.Match, header order.Header) (request LockRequest, size headerSize) {
	request.Purpose = p.Rule.Name
	presented, id, size := leaseAndRequestID(header)
	if !p.Observe { // nobody is shown a lease of its
		request.PresentedLease = strings.Clone(presented)
	}
	if id != "" {
		request.Purpose += " " + id
	}
	request.IDs = cloneIDs(m)
	return request, size
}

// SetClient tells whose call it is, before Acquire: an address with a port, as Envoy has it.
func (c *Call) SetClient(address string) { c.lockRequest.Client = clientOf(address) }

// clientOf returns an address without its port. Of IPv6 it is the network of 64 bits, which
// one client has for itself (RFC 6177). Others have none.
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

// leaseAndRequestID returns the lease that a request presents, and its ID. One that is sent
// twice counts as none: nobody knows which of the two the sender meant.
func leaseAndRequestID(header order.Header) (presented, id string, size headerSize) {
	leases, ids := 0, 0
	for cursor := 0; header != nil; {
		name, value, next := header.Next(cursor)
		if next < 0 {
			break
		}
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
		cursor = next
	}
	if leases != 1 || !isToken(presented) {
		presented = ""
	}
	if ids != 1 || !isToken(id) {
		id = ""
	}
	return presented, id, size
}

// isToken admits short visible ASCII.
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
