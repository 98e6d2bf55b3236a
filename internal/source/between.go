package source

import (
	"math/rand/v2"
	"strconv"
	"strings"
	"time"
)

// timeLayouts are the texts of times in cursors of MySQL and PostgreSQL.
var timeLayouts = []string{"2006-01-02", "2006-01-02 15:04:05.999999", "2006-01-02 15:04:05.999999-07"}

const (
	hexDigits = "0123456789abcdef"
	// alphanumerics are in the order of their bytes.
	alphanumerics = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
)

// between returns a random value of a cursor of a type, of the same form as the first and the last
// one and about between them; false: it has none, or does not know the form.
func between(typ, first, last string) (string, bool) {
	if a, err := strconv.ParseInt(first, 10, 64); err == nil {
		b, err := strconv.ParseInt(last, 10, 64)
		if err != nil || b <= a || b-a < 0 {
			return "", false
		}
		return strconv.FormatInt(a+rand.Int64N(b-a), 10), true
	}
	for _, layout := range timeLayouts {
		a, errA := time.Parse(layout, first)
		b, errB := time.Parse(layout, last)
		if errA == nil && errB == nil && b.After(a) {
			return a.Add(time.Duration(rand.Int64N(int64(b.Sub(a))))).Format(layout), true
		}
	}
	at := 0 // where they differ
	for at < min(len(first), len(last)) && first[at] == last[at] {
		at++
	}
	switch {
	case at == len(first) || at == len(last):
		return "", false
	case len(first) == len(last) && isHex(first) && isHex(last):
		return hexBetween(first, last, at)
	case strings.Contains(typ, "char") || typ == "text":
		c, ok := charBetween(alphanumerics, first[at], last[at])
		return first[:at] + c, ok
	}
	return "", false
}

// isHex reports whether a text is that of a UUID or of binary data.
func isHex(s string) bool { return strings.Trim(strings.ToLower(s), hexDigits+"-") == "" }

// hexBetween keeps the dashes of a UUID.
func hexBetween(first, last string, at int) (string, bool) {
	digits := hexDigits
	if strings.ToUpper(first+last) == first+last {
		digits = strings.ToUpper(hexDigits)
	}
	c, ok := charBetween(digits, first[at], last[at])
	rest := []byte(first[:at] + c)
	for i := at + 1; ok && i < len(first); i++ {
		if first[i] == '-' {
			rest = append(rest, '-')
			continue
		}
		rest = append(rest, digits[rand.IntN(len(digits))])
	}
	return string(rest), ok
}

// charBetween returns one of the characters from a to b.
func charBetween(chars string, a, b byte) (string, bool) {
	var fits []byte
	for _, c := range []byte(chars) {
		if a <= c && c <= b {
			fits = append(fits, c)
		}
	}
	if fits == nil {
		return "", false
	}
	return string(fits[rand.IntN(len(fits))]), true
}
