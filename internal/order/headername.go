package order

import "github.com/ordergate/ordergate/internal/headername"

// ownPrefix is the prefix of the names of ordergate's headers.
const ownPrefix = "x-ordergate-"

// IsOurs reports whether only ordergate may use a header's name, or whether a server may
// turn it into such a name. These are all names that fold to one with the prefix
// "x-ordergate-".
//
// It runs for each header of each request, so three bytes decide about most names.
func IsOurs(name string) bool {
	return len(name) > len(ownPrefix) && name[2]|0x20 == 'o' && name[0]|0x20 == 'x' && headername.Equal(name[:len(ownPrefix)], ownPrefix)
}
