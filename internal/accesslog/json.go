package accesslog

import (
	"bytes"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"
)

// Names of members, without their punctuation and in lower case: Envoy, Istio and Envoy Gateway,
// nginx, Traefik and Caddy differ in it.
const (
	nameTime = iota + 1
	nameEnd  // the time at which the request ended
	nameMethod
	nameTarget
	nameOriginal // the target before it was rewritten
	nameRequest  // METHOD TARGET PROTOCOL, or an object
	nameQuery
	nameStatus
	nameDuration
	nameSeconds
	nameHost
	nameFlags
	nameDetails
	nameForwarded
	nameAddress
	nameAgent
)

var names = map[string]int{
	"starttime": nameTime, "time": nameTime, "timestamp": nameTime, "ts": nameTime, "startutc": nameTime,
	"timeiso8601": nameEnd, "timelocal": nameEnd, "msec": nameEnd,
	"method": nameMethod, "requestmethod": nameMethod, "httpmethod": nameMethod,
	"path": nameTarget, "uri": nameTarget, "url": nameTarget, "requesturi": nameTarget, "requestpath": nameTarget,
	"xenvoyoriginalpath": nameOriginal, "xenvoyoriginpath": nameOriginal, "originalpath": nameOriginal,
	"request": nameRequest, "requestline": nameRequest,
	"args": nameQuery, "query": nameQuery, "querystring": nameQuery,
	"status": nameStatus, "responsecode": nameStatus, "statuscode": nameStatus, "downstreamstatus": nameStatus,
	"duration": nameDuration, "durationms": nameDuration, "ms": nameDuration, "requesttime": nameSeconds,
	"authority": nameHost, "host": nameHost, "httphost": nameHost, "requesthost": nameHost, "vhost": nameHost,
	"responseflags": nameFlags, "flags": nameFlags, "responsecodedetails": nameDetails, "details": nameDetails,
	"xforwardedfor": nameForwarded, "httpxforwardedfor": nameForwarded,
	"client": nameAddress, "clienthost": nameAddress, "clientip": nameAddress, "remoteaddr": nameAddress, "remoteip": nameAddress, "downstreamremoteaddress": nameAddress, "downstreamremoteaddresswithoutport": nameAddress,
	"useragent": nameAgent, "httpuseragent": nameAgent,
}

// object is what an object of a JSON log says.
type object struct {
	entry                                   *Entry
	original, query, flags, forwarded, from string
	agent                                   string
}

func parseJSON(line string, e *Entry) bool {
	o := object{entry: e}
	e.Format = JSON
	d := jsontext.NewDecoder(bytes.NewBufferString(line), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	if !o.read(d, 0) {
		return false
	}
	if o.original != "" && o.original != "-" {
		e.Target = o.original
	}
	if o.query != "" && o.query != "-" && !strings.Contains(e.Target, "?") {
		e.Target += "?" + strings.TrimPrefix(o.query, "?")
	}
	switch {
	case e.Details != "" && e.Details != "-":
	case o.flags != "" && o.flags != "-":
		e.Details = o.flags
	default:
		e.Details = ViaUpstream
	}
	if o.forwarded == "" || o.forwarded == "-" {
		o.forwarded = o.from
	}
	e.client(o.forwarded, o.agent)
	return e.Method != "" && e.Target != ""
}

// read reads an object. It enters the objects of a request (Caddy's).
func (o *object) read(d *jsontext.Decoder, depth int) bool {
	if t, err := d.ReadToken(); err != nil || t.Kind() != '{' {
		return false
	}
	for {
		t, err := d.ReadToken()
		if err != nil {
			return false
		}
		if t.Kind() == '}' {
			return true
		}
		key := t.String()
		name := names[squash(key)]
		if kind := d.PeekKind(); kind == '{' && name == nameRequest && depth == 0 {
			if !o.read(d, 1) {
				return false
			}
			continue
		} else if name == 0 || kind == '{' || kind == '[' {
			if d.SkipValue() != nil {
				return false
			}
			continue
		}
		v, err := d.ReadToken()
		if err != nil {
			return false
		}
		if v.Kind() != 'n' {
			o.set(name, key, v.String())
		}
	}
}

func squash(key string) string {
	plain := true
	for i := range len(key) {
		plain = plain && key[i] >= 'a' && key[i] <= 'z'
	}
	if plain {
		return key
	}
	b := make([]byte, 0, len(key))
	for i := range len(key) {
		switch c := key[i]; {
		case c >= 'A' && c <= 'Z':
			b = append(b, c|0x20)
		case c != '_' && c != '-' && c != ':' && c != '@' && c != '.':
			b = append(b, c)
		}
	}
	return string(b)
}

func (o *object) set(name int, key, value string) {
	e := o.entry
	switch name {
	case nameTime, nameEnd:
		at, ok := parseTime(value)
		if !ok {
			at, ok = sinceEpoch(value)
		}
		if ok && name == nameEnd {
			e.ended = at
		} else if ok {
			e.Start = at
		}
	case nameMethod:
		e.Method = value
	case nameTarget:
		if e.Target == "" || strings.Contains(value, "?") {
			e.Target = value
		}
	case nameOriginal:
		o.original = value
	case nameRequest:
		if strings.Contains(value, " /") { // else it is the request's ID
			e.Method, e.Target = requestLine(value)
		}
	case nameQuery:
		o.query = value
	case nameStatus:
		e.Status, _ = strconv.Atoi(value)
	case nameDuration, nameSeconds:
		e.setDuration(name, key, value)
	case nameHost:
		e.Host = value
	case nameFlags:
		o.flags = value
	case nameDetails:
		e.Details = value
	case nameForwarded:
		o.forwarded = value
	case nameAddress:
		o.from = withoutPort(value)
	case nameAgent:
		o.agent = value
	}
}

// setDuration reads a duration: Envoy's has whole milliseconds, Caddy's and nginx's seconds with
// decimals, Traefik's Duration nanoseconds.
func (e *Entry) setDuration(name int, key, value string) {
	n, err := strconv.ParseFloat(strings.TrimSuffix(value, "ms"), 64)
	if err != nil || n < 0 || n > 1e15 {
		return
	}
	unit := time.Millisecond
	switch {
	case name == nameSeconds, strings.Contains(value, "."):
		unit = time.Second
	case key == "Duration":
		unit = time.Nanosecond
	}
	if n *= float64(unit); n < float64(30*24*time.Hour) {
		e.Duration = time.Duration(n)
	}
}

// sinceEpoch reads seconds since 1970, or milliseconds.
func sinceEpoch(text string) (time.Time, bool) {
	n, err := strconv.ParseFloat(text, 64)
	switch {
	case err != nil || n < 1e8 || n > 1e14:
		return time.Time{}, false
	case n > 1e11:
		n /= 1000
	}
	return time.UnixMicro(int64(n * 1e6)).UTC(), true
}

func withoutPort(address string) string {
	if i := strings.LastIndexByte(address, ':'); i > 0 && (strings.Count(address, ":") == 1 || address[i-1] == ']') {
		return address[:i]
	}
	return address
}
