package gate

import (
	"strconv"
	"strings"

	"github.com/ordergate/ordergate/internal/order"
)

// maxListed is the largest number of orders whose keys and fences are listed one by one in
// the headers to the backend. Envoy does not carry the list of a thousand UUIDs.
const maxListed = 50

// Key returns the lock key of the call's order, or the keys of its orders joined by commas. Of
// a call without an order it is that of its own key.
// For more than maxListed orders it is the template of the keys, a semicolon and the number
// of orders.
func (c *Call) Key() string {
	switch ids := c.lockRequest.IDs; {
	case c.lockKey != "":
	case !c.hasOrder():
		c.lockKey = c.OnceKey()
	case len(ids) > maxListed:
		c.lockKey = c.policy.Settle.Lock.Key(order.Prefix(ids[0])+"{id}") + ";" + strconv.Itoa(len(ids))
	default:
		keys := make([]string, len(ids))
		for i, id := range ids {
			keys[i] = c.policy.Settle.Lock.Key(id)
		}
		c.lockKey = strings.Join(keys, ",")
	}
	return c.lockKey
}

// FenceText returns the fence of a lease in decimal. For several orders it joins their
// fences by commas, in the order of the keys. For more than maxListed orders it writes each
// fence after the first as the signed difference to the one before; "*n" after a difference
// repeats it n times.
func FenceText(lease Lease) string {
	fences := lease.Fences()
	if len(fences) == 1 {
		return strconv.FormatInt(fences[0], 10)
	}
	text := strconv.AppendInt(nil, fences[0], 10)
	if len(fences) <= maxListed {
		for _, fence := range fences[1:] {
			text = strconv.AppendInt(append(text, ','), fence, 10)
		}
		return string(text)
	}
	for i, times := 1, 0; i < len(fences); i += times {
		difference := fences[i] - fences[i-1]
		for times = 1; i+times < len(fences) && fences[i+times]-fences[i+times-1] == difference; {
			times++
		}
		text = append(text, ',')
		if difference >= 0 {
			text = append(text, '+')
		}
		text = strconv.AppendInt(text, difference, 10)
		if times > 1 {
			text = strconv.AppendInt(append(text, '*'), int64(times), 10)
		}
	}
	return string(text)
}

// headerLines returns the value of a header's last line, and the number of its lines.
func headerLines(header order.Header, name string) (value string, lines int) {
	for n, text := range order.All(header) {
		if n == name {
			value = text
			lines++
		}
	}
	return value, lines
}

// leaseHeaders returns the headers that describe the call's lease to the backend.
func (c *Call) leaseHeaders() []Header {
	return []Header{
		{HeaderKey, c.Key()}, {HeaderFence, FenceText(c.lease)},
		{HeaderLease, c.lease.Owner()}, {HeaderVerdict, c.Decision.Verdict.String()},
	}
}

// Envoy's default limits (max_request_headers_kb, max_headers_count). Envoy would refuse a
// request that grows beyond them here, after its locks were acquired. If a request arrives
// with more than the limit and Envoy's own headers, then its Envoy has a higher limit.
const (
	maxHeaderBytes, maxHeaders     = 60 << 10, 100
	envoyHeaderBytes, envoyHeaders = 4 << 10, 20
)

// leaseHeaderCount is the number of headers that leaseHeaders returns.
const leaseHeaderCount = 4

// maxFenceBytes bounds the text of FenceText for one order, in bytes: a signed number of 64
// bits, and a comma.
const maxFenceBytes = 21

// headerSize is the size of a request's headers, without those of a lease.
type headerSize struct{ bytes, count int }

// fitsEnvoy reports whether Envoy carries the request with the headers of its lease.
func (c *Call) fitsEnvoy(has headerSize) bool {
	ours := len(HeaderKey) + len(HeaderFence) + len(HeaderLease) + len(HeaderVerdict) +
		len(c.Key()) + maxFenceBytes*len(c.lockRequest.IDs) + maxTokenBytes + len(VerdictAcquired.String())
	return has.fits(ours, leaseHeaderCount)
}

// fits reports whether Envoy carries so many bytes and headers more.
func (has headerSize) fits(bytes, headers int) bool {
	return (has.bytes > maxHeaderBytes+envoyHeaderBytes || has.bytes+bytes <= maxHeaderBytes) &&
		(has.count > maxHeaders+envoyHeaders || has.count+headers <= maxHeaders)
}

// RefuseTooLarge refuses a request that Envoy would not carry with a sealed path and a verdict. Envoy
// would answer 500 before ext_proc has it, and clients could feign that none reaches ext_proc.
func (g *Gate) RefuseTooLarge(d *Decision, req *order.Request, path string) {
	if d.Rule < 0 {
		return
	}
	has := headerSize{bytes: len(":path") + len(req.Target), count: 1}
	for name, value := range order.All(req.Header) {
		if name != ":path" {
			has.bytes += len(name) + len(value)
			has.count++
		}
	}
	if !has.fits(len(path)-len(req.Target)+len(HeaderVerdict)+len(VerdictUnknown.String()), 1) {
		g.refuse(&g.policies[d.Rule], order.HeadersTooLarge, d)
		d.GRPC = IsGRPC(req)
		now := g.now()
		g.decided(d, g.originFor(d, req), now, now)
	}
}
