package order

import "strings"

// sessionParameter carries a session in the links of a servlet container (Servlet 6.0, 7.1.3).
const sessionParameter = ";jsessionid="

// withoutSession removes the session from the end of a path. It returns false if there is
// none, or if the path has another semicolon, or the session an unusual character.
func withoutSession(path string) (string, bool) {
	bare, session, ok := strings.Cut(path, sessionParameter)
	if !ok || session == "" || strings.IndexByte(bare, ';') >= 0 {
		return path, false
	}
	for i := range len(session) {
		if c := session[i]; (c < '0' || c > '9') && (c < 'a' || c > 'z') && !isUpper(c) && strings.IndexByte(".-_!+", c) < 0 {
			return path, false
		}
	}
	return bare, true
}

// sessionCookie carries the same session, and Tomcat takes it first.
const sessionCookie = "JSESSIONID"

// readSession records the session in the path as the ID in a cookie that is missing. It returns why
// the request is refused, if it is.
func (r *compiled) readSession(target string, into []idText) Reason {
	if !profiles[r.Backend].session {
		return NoReason
	}
	path, _, _ := strings.Cut(target, "?")
	bare, ok := withoutSession(path)
	if !ok {
		return NoReason
	}
	at := len(bare) + len(sessionParameter)
	for i := range r.IDs {
		id, f := &r.IDs[i], &into[i]
		switch {
		case id.In != InCookie || !strings.EqualFold(id.Name, sessionCookie):
		case f.times == 0:
			*f = idText{text: path[at:], times: 1, offset: at}
		default:
			inCookie, _ := id.Format.Canonical(f.text)
			if inPath, ok := id.Format.Canonical(path[at:]); !ok || inPath != inCookie {
				return DifferentIDs
			}
		}
	}
	return NoReason
}
