package config

import ()

// limit checks the limit of a rule with settle.
func (v *validator) limit(path string, r Rule) {
	l, at := r.Settle.Limit, path+".settle.limit"
	if l == nil {
		return
	}
	if l.Lock != "" {
		lock, defined := v.config.Locks[l.Lock]
		switch {
		case defined && lock.Kind != LockSemaphore && !v.unusable("locks."+l.Lock):
			v.reject(at+".lock", "%s is of kind %s: a limit takes one of kind %s", quote(l.Lock), lock.Kind, LockSemaphore)
		case l.Lock == r.Settle.Lock:
			v.reject(at+".lock", "%s is the lock of the order: a limit takes another", quote(l.Lock))
		}
	}
}
