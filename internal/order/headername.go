package order

// ownPrefix is what the names of ordergate's headers begin with.
const ownPrefix = "x-ordergate-"

// IsOurs reports whether a header's name is one that only ordergate may use, or one that a
// server makes such a name of: each that folds to one with the prefix "x-ordergate-",
// whatever follows it.
//
// It runs for each header of each request, so most names are told apart by three bytes.
func IsOurs(name string) bool {
	return len(name) > len(ownPrefix) && name[2]|0x20 == 'o' && name[0]|0x20 == 'x' && foldsTo(name[:len(ownPrefix)], ownPrefix)
}

// foldsTo reports whether a server may make the same variable of two headers' names.
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

// foldedByte folds one byte of a header's name as CGI does (RFC 3875, 4.1.18), byte for
// byte: case does not count, and whatever is neither a letter nor a digit may become an
// underscore. nginx does that to hyphens, PHP to dots and brackets besides, lighttpd to all.
func foldedByte(c byte) byte {
	switch {
	case 'a' <= c && c <= 'z', '0' <= c && c <= '9':
		return c
	case isUpper(c):
		return c | 0x20
	}
	return '-'
}
