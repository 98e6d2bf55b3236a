// Package headername compares names of headers as servers do that hand them to a backend as
// variables (CGI, FastCGI, PHP). Begin with [Equal]. Which headers a rule reads is for others.
package headername

// Equal reports whether a server may make the same variable of two header names.
func Equal(name, other string) bool {
	if len(name) != len(other) {
		return false
	}
	for i := range len(name) {
		if FoldByte(name[i]) != FoldByte(other[i]) {
			return false
		}
	}
	return true
}

// FoldByte folds one byte of a header's name as CGI does (RFC 3875, 4.1.18). It ignores
// case. Any byte that is neither a letter nor a digit may become an underscore: nginx
// replaces hyphens, PHP also dots and brackets, lighttpd all of them.
func FoldByte(c byte) byte {
	switch {
	case 'a' <= c && c <= 'z', '0' <= c && c <= '9':
		return c
	case 'A' <= c && c <= 'Z':
		return c | 0x20
	}
	return '-'
}
