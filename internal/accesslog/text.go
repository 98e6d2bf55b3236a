package accesslog

import (
	"strconv"
	"strings"
	"time"
)

// ViaUpstream is the Details of an answer of the backend.
const ViaUpstream = "via_upstream"

// parseText reads a line of Envoy, nginx or Apache. All have the time in brackets, and behind it the
// request line in quotes. Other text may stand before, such as the prefix of a container's log.
func parseText(line string, format Format, e *Entry) bool {
	end := strings.Index(line, `] "`)
	if end < 0 {
		return false
	}
	begin := strings.LastIndexByte(line[:end], '[')
	if begin < 0 {
		return false
	}
	when, rest := line[begin+1:end], line[end+len(`] "`):]
	isEnvoy := len(when) > 10 && when[10] == 'T'
	at, ok := parseTime(when)
	if !ok || isEnvoy != (format == Envoy) && format != Any {
		return false
	}
	e.Start = at
	if isEnvoy {
		e.Format = Envoy
		return parseEnvoy(rest, e)
	}
	e.Format = Combined
	if format != Any {
		e.Format = format
	}
	e.host(line[:begin])
	return parseCombined(rest, e)
}

// parseEnvoy reads what follows the time: METHOD TARGET PROTOCOL" CODE FLAGS ...
func parseEnvoy(rest string, e *Entry) bool {
	e.Method, rest, _ = strings.Cut(rest, " ")
	e.Target, rest, _ = strings.Cut(rest, " ")
	protocol, rest, ok := strings.Cut(rest, `" `)
	if !ok || strings.ContainsAny(protocol, ` "`) {
		return false
	}
	f := fields(rest)
	if len(f) < 2 {
		return false
	}
	if e.Status, ok = status(f[0]); !ok {
		return false
	}
	flags, first := f[1], 2 // the index of BYTES_RECEIVED
	e.Details = ViaUpstream
	if flags != "-" {
		e.Details = flags
	}
	if len(f) > 12 && !isNumber(f[2]) && isNumber(f[5]) { // Istio's has RESPONSE_CODE_DETAILS and two more
		e.Details, first = f[2], 5
	}
	if len(f) <= first+2 {
		return true
	}
	if ms, err := strconv.ParseInt(f[first+2], 10, 64); err == nil {
		e.Duration = time.Duration(ms) * time.Millisecond
	}
	if len(f) > first+8 {
		if e.Host = f[first+7]; strings.Contains(e.Host, `"`) { // Envoy does not escape those of the agent
			e.Host = f[len(f)-2]
		}
		e.client(f[first+4], f[first+5])
	}
	return true
}

// parseCombined reads what follows the time: METHOD TARGET PROTOCOL" STATUS BYTES "REFERER" "AGENT" ...
func parseCombined(rest string, e *Entry) bool {
	end := quoteEnd(rest)
	if end < 0 {
		return false
	}
	e.Method, e.Target = requestLine(unescape(rest[:end]))
	f := fields(rest[end+1:])
	if len(f) < 1 || e.Target == "" {
		return false
	}
	var ok bool
	if e.Status, ok = status(f[0]); !ok {
		return false
	}
	e.Details = ViaUpstream
	if len(f) > 3 {
		e.client(e.Client, f[3])
		for _, text := range f[4:] {
			if i := strings.LastIndexByte(text, '='); i >= 0 { // rt=0.012
				text = text[i+1:]
			}
			if took, ok := nginxTime(text); ok && e.Format != Apache {
				e.Format, e.Duration = Nginx, took
				break
			}
		}
	}
	if e.Format == Nginx {
		e.ended = e.Start
	}
	return true
}

// status reads a status. Envoy has 0 for a request without an answer.
func status(text string) (int, bool) {
	n, err := strconv.Atoi(text)
	return n, err == nil && (n == 0 || n >= 100 && n <= 999)
}

// nginxTime reads nginx's $request_time, which has exactly three decimals.
func nginxTime(text string) (time.Duration, bool) {
	whole, part, ok := strings.Cut(text, ".")
	if !ok || len(part) != 3 || !isNumber(whole) || !isNumber(part) || len(whole) > 7 {
		return 0, false
	}
	ms, err := strconv.ParseInt(whole+part, 10, 64)
	return time.Duration(ms) * time.Millisecond, err == nil
}

// requestLine splits METHOD TARGET PROTOCOL. Old servers log a target with blanks.
func requestLine(text string) (method, target string) {
	method, target, _ = strings.Cut(text, " ")
	if i := strings.LastIndex(target, " HTTP/"); i >= 0 {
		target = target[:i]
	}
	return method, target
}

// host reads what precedes the time: ADDRESS IDENTITY USER, and before it perhaps the virtual host.
func (e *Entry) host(before string) {
	f := strings.Fields(before)
	if len(f) < 3 {
		return
	}
	e.Client = f[len(f)-3]
	if len(f) != 4 {
		return
	}
	if name, port, ok := strings.Cut(f[0], ":"); !ok || isNumber(port) {
		e.Host = name
	}
}

func (e *Entry) client(address, agent string) {
	address, _, _ = strings.Cut(address, ",")
	if address == "" || address == "-" {
		e.Client = ""
		return
	}
	e.Client = address + " " + agent
}

// fields splits text at blanks, outside of quotes.
func fields(text string) (list []string) {
	list = make([]string, 0, 16)
	for {
		text = strings.TrimLeft(text, " ")
		if text == "" {
			return list
		}
		if text[0] == '"' {
			end := quoteEnd(text[1:])
			if end < 0 {
				return list
			}
			list, text = append(list, text[1:1+end]), text[end+2:]
			continue
		}
		field, rest, _ := strings.Cut(text, " ")
		list, text = append(list, field), rest
	}
}

// quoteEnd returns the index of the first quote that is not escaped, or -1.
func quoteEnd(text string) int {
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '\\':
			i++
		case '"':
			return i
		}
	}
	return -1
}

// unescape undoes what nginx and Apache do to a request line: \xHH, \", \\ and C's escapes.
func unescape(text string) string {
	if strings.IndexByte(text, '\\') < 0 {
		return text
	}
	b := make([]byte, 0, len(text))
	for i := 0; i < len(text); i++ {
		if text[i] != '\\' || i+1 == len(text) {
			b = append(b, text[i])
			continue
		}
		i++
		switch c := text[i]; c {
		case 'x':
			if n, err := strconv.ParseUint(text[i+1:min(i+3, len(text))], 16, 8); err == nil && i+2 < len(text) {
				b = append(b, byte(n))
				i += 2
				continue
			}
			b = append(b, '\\', 'x')
		case 'b', 'n', 'r', 't', 'v':
			b = append(b, map[byte]byte{'b': '\b', 'n': '\n', 'r': '\r', 't': '\t', 'v': '\v'}[c])
		default:
			b = append(b, c)
		}
	}
	return string(b)
}

func isNumber(text string) bool {
	for i := range len(text) {
		if text[i] < '0' || text[i] > '9' {
			return false
		}
	}
	return text != ""
}

const (
	timeOfCommon = "02/Jan/2006:15:04:05 -0700"
	timeNoZone   = "2006-01-02T15:04:05.999999999"
)

// parseTime reads a time with its offset. A time without one is UTC.
func parseTime(text string) (time.Time, bool) {
	layout := time.RFC3339Nano
	switch {
	case len(text) == len(timeOfCommon) && text[2] == '/':
		layout = timeOfCommon
	case len(text) < 19:
		return time.Time{}, false
	case text[10] == ' ':
		text = text[:10] + "T" + strings.TrimSuffix(text[11:], " UTC")
	}
	at, err := time.Parse(layout, text)
	if err == nil {
		return at, true
	}
	if layout == time.RFC3339Nano {
		for _, layout := range []string{timeNoZone, "2006-01-02T15:04:05.999999999-0700", "2006-01-02T15:04:05.999999999 -0700"} {
			if at, err = time.Parse(layout, text); err == nil {
				return at, true
			}
		}
	}
	return time.Time{}, false
}
