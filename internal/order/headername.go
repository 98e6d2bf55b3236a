package order

// ownPrefix is the prefix of the names of ordergate's headers.
const ownPrefix = "x-ordergate-"

// IsOurs reports whether only ordergate may use a header's name, or whether a server may
// turn it into such a name. These are all names that fold to one with the prefix
// "x-ordergate-".
//
// It runs for each header of each request, so three bytes decide about most names.
func IsOurs(name string) bool {
	return len(name) > len(ownPrefix) && name[2]|0x20 == 'o' && name[0]|0x20 == 'x' && foldsTo(name[:len(ownPrefix)], ownPrefix)
}

// foldsTo reports whether a server may make the same variable of two header names.
func foldsTo(name, other string) bool {
	if len(name) != len(other) {
		return false
	}
	for i := range len(name) {
		if foldedByte(name[i]) != foldedByte(other[i]) {
			return false
		}
	}
	return true
}

// foldedByte folds one byte of a header's name as CGI does (RFC 3875, 4.1.18). It ignores
// case. Any byte that is neither a letter nor a digit may become an underscore: nginx
// replaces hyphens, PHP also dots and brackets, lighttpd all of them.
func foldedByte(c byte) byte {
	switch {
	case 'a' <= c && c <= 'z', '0' <= c && c <= '9':
		return c
	case isUpper(c):
		return c | 0x20
	}
	return '-'
}
