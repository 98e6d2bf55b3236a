package order

import (
	"slices"
	"strings"
)

// sessionParameter carries a session in the links of a servlet container (Servlet 6.0, 7.1.3).
const sessionParameter = ";jsessionid="

// servletCookie is the cookie of such a session.
const servletCookie = "JSESSIONID"

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

// SessionInPath returns the session behind the path of a request; "": there is none, or a cookie's
// counts.
func (req *Request) SessionInPath() string {
	session := sessionInPath(req.Target)
	for name, value := range All(req.Header) {
		if name != "cookie" || session == "" {
			continue
		}
		for list := cookies(value); ; {
			name, _, ok := list.next()
			if !ok {
				break
			}
			if strings.EqualFold(name, servletCookie) {
				return ""
			}
		}
	}
	return session
}

func sessionInPath(target string) string {
	path, _, _ := strings.Cut(target, "?")
	_, session, _ := strings.Cut(path, sessionParameter)
	return session
}

// isServletSession reports whether the place is the cookie of a servlet container's session. It
// carries the same session as a link, and Tomcat takes it first.
func (id *ID) isServletSession() bool {
	return id.In == InCookie && strings.EqualFold(id.Name, servletCookie)
}

// readSession records the session that follows the path as the ID in a cookie that is missing. It
// returns why the request is refused, if it is.
func (r *compiled) readSession(path, target string, into []idText) Reason {
	session := sessionInPath(target)
	if session == "" || !profiles[r.Backend].session {
		return NoReason
	}
	for i := range r.IDs {
		id, f := &r.IDs[i], &into[i]
		switch {
		case !id.isServletSession():
		case f.times == 0:
			*f = idText{text: session, times: 1, offset: len(path) + len(sessionParameter)}
		default:
			inCookie, _ := id.Format.Canonical(f.text)
			if inPath, ok := id.Format.Canonical(session); !ok || inPath != inCookie {
				return DifferentIDs
			}
		}
	}
	return NoReason
}

// Tokens returns the texts of the rule's IDs that are in headers and cookies, in lower case.
func (r *Rule) Tokens(req *Request) (texts []string) {
	for name, value := range All(req.Header) {
		for _, id := range r.places() {
			switch {
			case id.In == InHeader && name == id.Name:
				texts = append(texts, lower(value))
			case id.In == InCookie && name == "cookie":
				_ = eachParameter(cookies(value), func(cookie, text string) Reason {
					if cookie == id.Name {
						texts = append(texts, lower(text))
					}
					return NoReason
				})
			}
		}
	}
	return texts
}

// places returns where the rule finds the order's ID and its parts.
func (r *Rule) places() []ID {
	all := slices.Clip(r.IDs)
	for i := range r.Parts {
		all = append(all, r.Parts[i].ID)
	}
	return all
}
