package config

import (
	"cmp"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// Once has the answers of finished calls stored, and given again to later calls for the same.
// It stands in a rule, in settle or in create. Without By it is for the order that the rule
// settles.
//
// With Forget, [Config.EnsureDefaults] adds the names of the file behind [OnceAll], and sets Keep to
// how long earlier calls store no answers.
type Once struct {
	// By are the parts of a key: "idempotency-key", "body", or {header: name}. Calls with the
	// same key are the same call. Default in create: idempotency-key.
	By OnceParts `mapstructure:"by" change:"answers"`
	// Scope are headers that tell callers apart. Equal keys of requests that differ in one are
	// different keys. Of an order, a caller that differs in one is refused, and does not get the
	// answer; default authorization and cookie. []: for all callers.
	Scope    OnceParts `mapstructure:"scope" change:"answers,set"`
	Required bool      `mapstructure:"required"` // a request without one of the parts is refused; default false: it has no key

	// Fingerprint refuses a call that differs from that of the stored answer, in its method,
	// target or body: "body", or "none". Default body with an idempotency-key, otherwise none.
	Fingerprint string `mapstructure:"fingerprint" oneof:"body none"`
	// Keep is how long the answer is stored, 1s to 8760h (a year); default 24h.
	Keep time.Duration `mapstructure:"keep"`
	// For is another name of keep, with By. With settle.by it is how long after the answer an equal
	// request is a repeat: 0s to 1h, default 5s.
	For time.Duration `mapstructure:"for"`

	// Statuses are those of the answers that are stored, or of the calls that forget: "2xx" or
	// "404". Default 2xx; with By also 4xx-final: all but 401, 403, 406 to 409, 425 and 429.
	Statuses []OnceStatus `mapstructure:"statuses" form:"status" empty:"give one, such as 2xx"`
	// MaxBody bounds the stored body, in bytes; default 65536. Of a larger answer only what was
	// done is stored.
	MaxBody int      `mapstructure:"max_body" min:"0" max:"1048576"`
	Headers []string `mapstructure:"headers" form:"stored_header"` // headers that are stored, in any case; default content-type and location

	// Name is that of the stored answers of an order. Rules that do the same in different ways
	// have the same name: an order that one of them has settled is refused by the others.
	// Default the rule's name. Only without By.
	Name string `mapstructure:"name" form:"name" change:"answers"`
	// Forget has a call that undoes a settlement delete the stored answers of its order: true
	// for all names, or a list of names of rules with the same lock. Excludes all else.
	Forget OnceNames `mapstructure:"forget"`

	// Wait is that for the first call with a key to end, with By; default one try.
	Wait Wait `mapstructure:"wait"`
	// Lease is that of the lock; default one and a half times Hold.
	Lease time.Duration `mapstructure:"lease" min:"1s" max:"1h"`
	// Hold is that after an unknown outcome; default 90s, or two thirds of a given Lease.
	Hold time.Duration `mapstructure:"hold" min:"1s" max:"24h"`

	Duplicate   Reply `mapstructure:"duplicate"`   // the answer if the order was settled by another rule of this name, or with other orders; default 409
	Mismatch    Reply `mapstructure:"mismatch"`    // the answer if fingerprint refuses; default 422
	InUse       Reply `mapstructure:"in_use"`      // the answer while the first call with the key has not ended; default 409, Retry-After 1s
	Missing     Reply `mapstructure:"missing"`     // the answer without a key, or to a malformed one; default 400
	Unavailable Reply `mapstructure:"unavailable"` // the answer while Redis does not answer, in a rule without settle; default 503, Retry-After 1s
}

// OnceParts are parts of a key: [OnceIdempotencyKey], [OnceBody], or [OnceHeader] with a name in
// lower case.
type OnceParts []string

// Parts of a key.
const (
	OnceIdempotencyKey = "idempotency-key"
	OnceBody           = "body"
	OnceHeader         = "header:"
)

// OnceStatus is a status of an answer, such as 404, or all of a kind: 2xx.
type OnceStatus string

// OnceNames are names of stored answers, or [OnceAll].
type OnceNames []string

// OnceAll stands for all names.
const OnceAll = "*"

// Ways to compare a call with that of a stored answer.
const (
	FingerprintBody = "body"
	FingerprintNone = "none"
)

// OnceLock is the name under which package locking finds the lock of a rule's keys.
const OnceLock = "once"

// OnceAnswer is the name of the answer beside such a lock.
const OnceAnswer = "answer"

// OnceKeyPrefix begins the Redis keys of such locks. The rule's name and a hash of the key
// follow.
const OnceKeyPrefix = "ordergate:once:"

// onceMeanwhile is how much longer than For the answer of a settlement with settle.by is stored. A
// call that waited for this one to end asks for it within a few seconds.
const onceMeanwhile = time.Minute

// onceFor is the default of For with settle.by. The last of many requests at once arrives within it,
// and a person needs longer for another order.
const onceFor = 5 * time.Second

const maxOnceKeep = 8760 * time.Hour

// ByOrder returns the rule's stored answers of orders, and their path in the rule; nil: none.
func (r *Rule) ByOrder() (*Once, string) {
	switch {
	case r.Settle != nil && r.Settle.Once != nil:
		return r.Settle.Once, "settle.once"
	case r.Once != nil && len(r.Once.By) == 0:
		return r.Once, "once"
	}
	return nil, ""
}

// ByKey returns the rule's stored answers by a key in the request, and their path in the rule;
// nil: none.
func (r *Rule) ByKey() (*Once, string) {
	switch {
	case r.Once != nil && len(r.Once.By) > 0:
		return r.Once, "once"
	case r.Create != nil && r.Create.Once != nil:
		return r.Create.Once, "create.once"
	}
	return nil, ""
}

func (r *Rule) requiresKey() bool {
	o, _ := r.ByKey()
	return o != nil && o.Required
}

// OrderLock returns the name of the lock of the rule's orders; "": none.
func (r *Rule) OrderLock() string {
	switch {
	case r.Settle != nil:
		return r.Settle.Lock
	case r.Create != nil:
		return r.Create.Lock
	}
	return ""
}

// MaxHold returns how long a call of the rule may last.
func (r *Rule) MaxHold() time.Duration {
	if r.Settle != nil {
		return r.Settle.MaxHold
	}
	return defaultMaxHold
}

const defaultMaxHold = 10 * time.Minute

// LockOf returns a lock by its name, for a rule. [OnceLock] is that of the rule's keys.
func (c *Config) LockOf(r *Rule, name string) Lock {
	if name == OnceLock {
		return r.KeyLock()
	}
	return c.Locks[name]
}

// KeyLock returns the lock of the rule's keys. The rule must have keys.
func (r *Rule) KeyLock() Lock {
	o, _ := r.ByKey()
	return Lock{
		Kind: LockExclusive, Format: FormatRedisson, Key: OnceKeyPrefix + r.Name + ":{id}",
		Lease: o.Lease, Wait: o.Wait, MaxWaitersPerKey: 100, OnUnknownOutcome: UnknownPolicy{Hold: o.Hold},
	}
}

// StoresStatus reports whether an answer of this status is stored.
func (o *Once) StoresStatus(status int) bool {
	return slices.ContainsFunc(o.Statuses, func(of OnceStatus) bool { return of.Has(status) })
}

// Has reports whether a status is this one, or of this kind.
func (s OnceStatus) Has(status int) bool {
	if s == notRetried {
		return status >= 400 && status < 500 && !slices.Contains(retriedStatuses, status)
	}
	class, isClass := strings.CutSuffix(string(s), "xx")
	return isClass && fmt.Sprint(status/100) == class || string(s) == fmt.Sprint(status)
}

// notRetried stands for the 4xx after which a client does not repeat the same request. After
// 401, 403 and 407 it logs in, and repeats it with the same key. After 406 the outcome is unknown.
const notRetried = "4xx-final"

var retriedStatuses = []int{
	http.StatusUnauthorized, http.StatusForbidden, http.StatusNotAcceptable, http.StatusProxyAuthRequired,
	http.StatusRequestTimeout, http.StatusConflict, http.StatusTooEarly, http.StatusTooManyRequests,
}

func (o *Once) ensureDefaults(doc *document, path string, r *Rule, byKey bool) {
	given := doc.mappings[path]
	if !byKey && doc.given(path+".forget") && len(o.Forget) > 0 {
		fill(given, "statuses", &o.Statuses, []OnceStatus{"2xx"})
		return
	}
	if !byKey {
		fill(given, "scope", &o.Scope, OnceParts{OnceHeader + "authorization", OnceHeader + "cookie"})
	}
	o.Keep = cmp.Or(o.Keep, o.For)
	if r.IsBy() && !byKey {
		fill(given, "for", &o.For, onceFor)
		fill(given, "fingerprint", &o.Fingerprint, FingerprintBody)
		o.Keep, o.Scope = o.For+onceMeanwhile, OnceParts{}
	}
	statuses, fingerprint := []OnceStatus{"2xx"}, FingerprintNone
	if byKey {
		statuses = append(statuses, notRetried)
	}
	if slices.Contains(o.By, OnceIdempotencyKey) {
		fingerprint = FingerprintBody
	}
	fill(given, "fingerprint", &o.Fingerprint, fingerprint)
	fill(given, "keep", &o.Keep, 24*time.Hour)
	fill(given, "statuses", &o.Statuses, statuses)
	fill(given, "max_body", &o.MaxBody, 64<<10)
	fill(given, "headers", &o.Headers, []string{"content-type", "location"})
	o.Duplicate.ensureDefaults(doc, path+".duplicate", Reply{Status: http.StatusConflict})
	o.Mismatch.ensureDefaults(doc, path+".mismatch", Reply{Status: http.StatusUnprocessableEntity})
	if !byKey {
		fill(given, "name", &o.Name, r.Name)
		return
	}
	o.Wait.ensureDefaults(doc, path+".wait", 1)
	hold := 90 * time.Second
	if o.Lease > 0 {
		hold = max(time.Second, min(hold, o.Lease/3*2))
	}
	fill(given, "hold", &o.Hold, hold)
	fill(given, "lease", &o.Lease, min(time.Hour, (o.Hold+o.Hold/2+time.Second-1).Truncate(time.Second)))
	o.InUse.ensureDefaults(doc, path+".in_use", Reply{Status: http.StatusConflict, RetryAfter: time.Second})
	o.Missing.ensureDefaults(doc, path+".missing", Reply{Status: http.StatusBadRequest})
	o.Unavailable.ensureDefaults(doc, path+".unavailable", Reply{
		Status: http.StatusServiceUnavailable, Body: `{"error":"the request cannot be taken now, try again"}`, RetryAfter: time.Second,
	})
}

// completeForget gives each rule that forgets all stored answers their names too, and each that forgets
// any the time for which earlier calls store none.
func (c *Config) completeForget() {
	for i := range c.Rules {
		o, _ := c.Rules[i].ByOrder()
		if o == nil || len(o.Forget) == 0 {
			continue
		}
		var names OnceNames
		o.Keep = minMark
		for j := range c.Rules {
			if c.Rules[j].OrderLock() != c.Rules[i].OrderLock() {
				continue
			}
			if key, _ := c.Rules[j].ByKey(); key != nil { // its answers may be for these orders
				o.Keep = max(o.Keep, key.Keep)
			}
			if other, _ := c.Rules[j].ByOrder(); other != nil && other.Name != "" {
				o.Keep = max(o.Keep, other.Keep)
				if !slices.Contains(names, other.Name) {
					names = append(names, other.Name)
				}
			}
		}
		if slices.Equal(o.Forget, OnceNames{OnceAll}) {
			o.Forget = append(o.Forget, names...)
		}
	}
}

// minMark is how long earlier calls store no answers after a call that forgets them, at least: another
// instance may keep answers for longer than those of this file.
const minMark = 24 * time.Hour

func (v *validator) onceRules(path string, r *Rule) {
	order, orderAt := r.ByOrder()
	key, keyAt := r.ByKey()
	if r.Once != nil && r.Settle != nil && r.Settle.Once != nil && len(r.Once.By) == 0 {
		v.reject(path+".once", "has no by, and settle.once is for the order already: give it by, or remove one of the two")
	}
	if r.Once != nil && len(r.Once.By) > 0 && r.Create != nil && r.Create.Once != nil {
		v.reject(path+".create.once", "is given as once of the rule already: remove one of the two")
	}
	if r.Settle != nil && r.Settle.Once != nil && len(r.Settle.Once.By) > 0 {
		v.reject(path+".settle.once.by", "is for once of the rule: settle.once is for the order")
	}
	if order != nil {
		v.onceByOrder(join(path, orderAt), order, r)
	}
	if key != nil {
		v.onceByKey(join(path, keyAt), key)
	}
}

func (v *validator) onceByOrder(path string, o *Once, r *Rule) {
	lock, defined := v.config.Locks[r.OrderLock()]
	switch {
	case r.Settle == nil:
		v.rejectMissing(path, []string{"by"}, "by is missing: give by: idempotency-key, or parts such as [header: x-user, body]")
		return
	case defined && (lock.Kind == LockRead || lock.Kind == LockSemaphore || lock.Kind == LockQuorum):
		v.reject(path, "is for a lock of kind %s, %s or %s: %s is of kind %s", LockExclusive, LockFair, LockWrite, quote(r.Settle.Lock), lock.Kind)
	}
	keys := []string{"required", "wait", "lease", "hold", "in_use", "missing", "unavailable", "for"}
	if r.IsBy() {
		keys = keys[:len(keys)-1]
	}
	v.without(path, o, "is for once with by: remove it", keys...)
	if r.IsBy() {
		between(v, path+".for", o.For, 0, time.Hour)
		v.notGiven(path, "is for orders: with settle.by, the answer is for repeats, and once.for is how long", keysOfOrders...)
	}
	if v.given(path+".forget") || len(o.Forget) > 0 {
		v.forget(path, o, r)
		return
	}
	v.onceParts(path, "scope", o.Scope)
	v.once(path, o)
}

func (v *validator) forget(path string, o *Once, r *Rule) {
	if r.Lookup == nil && (len(o.Forget) == 0 || slices.Equal(o.Forget, OnceNames{OnceAll})) && v.given(path+".forget") {
		v.reject(path+".forget", "no rule with lock %s stores answers: there is nothing to forget", quote(r.OrderLock()))
	}
	v.notGiven(path, "excludes forget: a call that undoes stores no answer",
		"keep", "scope", "max_body", "headers", "name", "fingerprint", "duplicate", "mismatch")
	for i, name := range o.Forget {
		known := name == OnceAll
		for j := range v.config.Rules {
			other, _ := v.config.Rules[j].ByOrder()
			if other == nil || other.Name != name || v.config.Rules[j].OrderLock() != r.OrderLock() {
				continue
			}
			known = true
			if r.Mode.String() == ModeObserve && v.config.Rules[j].Mode.String() != ModeObserve {
				v.reject(path+".forget", "a rule in mode observe deletes them at its end, so that clients of rule %s may get the answers of settlements that are undone: enforce this rule, too", quote(v.config.Rules[j].Name))
			}
		}
		if !known {
			v.reject(fmt.Sprintf("%s.forget[%d]", path, i), "%s is not the name of stored answers of lock %s", quote(name), quote(r.OrderLock()))
		}
	}
}

func (v *validator) onceByKey(path string, o *Once) {
	v.without(path, o, "is for once of an order, without by: remove it", "name", "forget")
	v.onceParts(path, "by", o.By)
	if slices.Equal(o.By, OnceParts{OnceBody}) && !v.given(path+".scope") {
		v.reject(path+".by", "has the body alone, so a caller may get the answer of another: add {header: name}, or give scope ([]: all callers are one)")
	}
	v.onceParts(path, "scope", o.Scope)
	if v.given(path+".for") && v.given(path+".keep") {
		v.reject(path+".for", "is another name of keep: remove one of the two")
	}
	v.once(path, o)
}

// onceParts checks the parts of a key, or of its scope.
func (v *validator) onceParts(path, key string, parts OnceParts) {
	for i, part := range parts {
		at := fmt.Sprintf("%s.%s[%d]", path, key, i)
		name, isHeader := strings.CutPrefix(part, OnceHeader)
		switch {
		case slices.Contains(parts[:i], part):
			v.reject(at, "%s is given twice: give each part once", quote(part))
		case strings.TrimPrefix(part, OnceHeader) == OnceIdempotencyKey && key == "scope":
			v.reject(at, "%s is for by: give a header that tells callers apart, such as {header: x-tenant}", OnceIdempotencyKey)
		case isHeader && !headerName.MatchString(name):
			v.reject(at, "%s is not the name of a header", quote(name))
		case isHeader && name == OnceIdempotencyKey:
			v.reject(at, "{header: %s} has a form of its own: write %s", name, OnceIdempotencyKey)
		case isHeader:
			v.keyHeader(at, name)
		case key == "scope" && part != "authorization":
			v.reject(at, "%s is not a header: write {header: name}", quote(part))
		case key == "by" && part != OnceIdempotencyKey && part != OnceBody:
			v.reject(at, "%s is not one of %s, %s, {header: name}", quote(part), OnceIdempotencyKey, OnceBody)
		}
	}
}

func (v *validator) once(path string, o *Once) {
	keep := path + ".keep"
	if v.given(path + ".for") {
		keep = path + ".for"
	}
	between(v, keep, o.Keep, time.Second, maxOnceKeep)
}

var (
	oncePartsType  = reflect.TypeFor[OnceParts]()
	onceNamesType  = reflect.TypeFor[OnceNames]()
	onceStatusType = reflect.TypeFor[OnceStatus]()
)

func (r *reader) onceParts(n *yaml.Node, path string) (any, bool) {
	parts := make([]string, 0)
	for at, item := range r.items(n, path) {
		switch {
		case item.Kind == yaml.ScalarNode && item.ShortTag() == "!!str":
			parts = append(parts, strings.ToLower(item.Value))
		case item.Kind == yaml.MappingNode && len(item.Content) == 2 && item.Content[0].Value == "header" && resolve(item.Content[1]).Kind == yaml.ScalarNode:
			parts = append(parts, OnceHeader+strings.ToLower(resolve(item.Content[1]).Value))
		default:
			r.report(at, fmt.Sprintf("is %s: write %s, %s, or {header: name}", describe(item), OnceIdempotencyKey, OnceBody))
			return nil, r.discard(path)
		}
	}
	if len(parts) == 0 && !strings.HasSuffix(path, ".scope") {
		r.report(path, "is empty: give a part, such as "+OnceIdempotencyKey+", or remove it")
		return nil, r.discard(path)
	}
	return parts, true
}

func (r *reader) onceNames(n *yaml.Node, path string) (any, bool) {
	switch {
	case n.Kind == yaml.ScalarNode && n.ShortTag() == "!!bool" && n.Value == "true":
		return []string{OnceAll}, true
	case n.Kind == yaml.SequenceNode && len(n.Content) > 0:
		return r.list(n, reflect.TypeFor[string](), path), true
	}
	return r.wrong(n, path, "true, or a list of names")
}
