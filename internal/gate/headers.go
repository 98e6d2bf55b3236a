package gate

import (
	"strconv"
	"strings"
)

// maxListed is how many orders have their keys and fences listed one by one in the headers
// to the backend. A thousand UUIDs listed so would be more than Envoy carries.
const maxListed = 50

// Key returns the lock key of the call's order, or those of its orders, joined by commas. Of
// more than mostListed orders it is the template of the keys, a semicolon and their number.
func (c *Call) Key() string {
	if c.lockKey == "" {
		c.lockKey = keyText(c.policy.Settle.Lock, c.lockRequest.IDs)
	}
	return c.lockKey
}

func keyText(lock Locker, ids []string) string {
	if len(ids) > maxListed {
		return lock.Key("{id}") + ";" + strconv.Itoa(len(ids))
	}
	keys := make([]string, len(ids))
	for i, id := range ids {
		keys[i] = lock.Key(id)
	}
	return strings.Join(keys, ",")
}

// FenceText returns the fence of a lease in decimal, or the fences, joined by commas in the
// order of the keys, when it stands for several orders. Of more than mostListed orders each
// but the first is told by its difference to the one before, with its sign; "*n" behind a
// difference stands for n of them.
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

// LeaseHeaders returns what the backend is told of the call's lease.
func (c *Call) LeaseHeaders(lease Lease) [leaseHeaderCount]Header {
	return [leaseHeaderCount]Header{
		{HeaderKey, c.Key()}, {HeaderFence, FenceText(lease)},
		{HeaderLease, lease.Owner()}, {HeaderVerdict, c.Decision.Verdict.String()},
	}
}

// Envoy carries no more by default (max_request_headers_kb, max_headers_count). It would
// refuse a request that grew larger here when its locks are held already. One that comes
// larger, by more than Envoy itself adds, is from an Envoy that carries more.
const (
	maxHeaderBytes, maxHeaders     = 60 << 10, 100
	envoyHeaderBytes, envoyHeaders = 4 << 10, 20
)

// leaseHeaderCount is the number of LeaseHeaders.
const leaseHeaderCount = 4

// maxFenceBytes bounds what FenceText has for one order, in bytes: a number of 64 bits with
// its sign, and a comma.
const maxFenceBytes = 21

// headerSize is that of a request's headers, those of a lease left out.
type headerSize struct{ bytes, count int }

// fitsEnvoy reports whether Envoy carries a request with the headers of its lease.
func (c *Call) fitsEnvoy(has headerSize) bool {
	ours := len(HeaderKey) + len(HeaderFence) + len(HeaderLease) + len(HeaderVerdict) +
		len(c.Key()) + maxFenceBytes*len(c.lockRequest.IDs) + maxTokenBytes + len(VerdictAcquired.String())
	return (has.bytes > maxHeaderBytes+envoyHeaderBytes || has.bytes+ours <= maxHeaderBytes) &&
		(has.count > maxHeaders+envoyHeaders || has.count+leaseHeaderCount <= maxHeaders)
}
