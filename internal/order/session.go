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
