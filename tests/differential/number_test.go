package differential

import (
	"fmt"
	"math/big"
	"math/rand/v2"
	"strings"
)

// numberMutations spell the number otherwise, wherever it stands.
func numberMutations() []mutation {
	var all []mutation
	for _, s := range []struct {
		name  string
		spell func(d *draft, n string) string
	}{
		{"leading zeros", func(d *draft, n string) string { return strings.Repeat("0", 1+d.rand.IntN(20)) + n }},
		{"plus sign", func(_ *draft, n string) string { return "+" + n }},
		{"plus sign and zeros", func(_ *draft, n string) string { return "+00" + n }},
		{"digits of another script", func(d *draft, n string) string { return otherDigits(d.rand, n, true) }},
		{"some digits of another script", func(d *draft, n string) string { return otherDigits(d.rand, n, false) }},
		{"space before", func(d *draft, n string) string { return pick(d.rand, spaces...) + n }},
		{"space after", func(d *draft, n string) string { return n + pick(d.rand, spaces...) }},
		{"space within", func(d *draft, n string) string { return n[:1] + pick(d.rand, spaces...) + n[1:] }},
		{"decimal point", func(d *draft, n string) string { return n + pick(d.rand, ".", ".0", ".00", ".9") }},
		{"exponent", func(d *draft, n string) string {
			return pick(d.rand, n+"e0", n+"E0", n[:1]+"."+n[1:]+fmt.Sprintf("e%d", len(n)-1), n+"00e-2")
		}},
		{"type suffix", func(d *draft, n string) string { return n + pick(d.rand, "L", "l", "d", "f", "n", "u") }},
		{"hexadecimal", func(d *draft, _ string) string { return fmt.Sprintf(pick(d.rand, "0x%x", "0X%X", "#%x"), d.order) }},
		{"octal or binary", func(d *draft, _ string) string { return fmt.Sprintf(pick(d.rand, "0%o", "0o%o", "0b%b"), d.order) }},
		{"underscore", func(d *draft, n string) string { return pick(d.rand, n+"_", "_"+n, n[:1]+"_"+n[1:]) }},
		{"garbage after", func(d *draft, n string) string {
			return n + pick(d.rand, "abc", "'", ")", "-1", "/*", "\x00", "\x00x", "<", "&", "*", "%", ";", ":1", "?x", "#", "|", "\\")
		}},
		{"garbage before", func(d *draft, n string) string { return pick(d.rand, "a", "'", "(", "$", "=", "\x00", "--", "~") + n }},
		{"list", func(d *draft, n string) string {
			return fmt.Sprintf(pick(d.rand, "%[1]s,%[2]s", "%[2]s,%[1]s", "%[1]s, %[2]s", ",%[1]s", "%[1]s,", "%[1]s;%[2]s", "%[1]s|%[2]s", "%[1]s %[2]s"), n, d.other())
		}},
		{"brackets", func(d *draft, n string) string {
			return fmt.Sprintf(pick(d.rand, "[%s]", "(%s)", "{%s}", "<%s>"), n)
		}},
		{"quotes", func(d *draft, n string) string { return fmt.Sprintf(pick(d.rand, `"%s"`, `'%s'`, "`%s`"), n) }},
		{"wrapped around", func(d *draft, _ string) string {
			power := new(big.Int).Lsh(big.NewInt(int64(1+d.rand.IntN(3))), pick(d.rand, uint(32), 63, 64, 128))
			if d.rand.IntN(4) == 0 {
				power.Neg(power)
			}
			return power.Add(power, big.NewInt(d.order)).String()
		}},
		{"wrapped around 32 bits", func(d *draft, _ string) string { return fmt.Sprint(int64(1+d.rand.IntN(3))<<32 + d.order) }},
		{"rounded by doubles", func(d *draft, _ string) string { return fmt.Sprint(int64(1)<<53 + 1 + 2*d.rand.Int64N(1_000_000)) }},
		{"overlong UTF-8", func(d *draft, n string) string { return overlong(n, 2+d.rand.IntN(2)) }},
		{"thousands separator", func(d *draft, n string) string { return n[:len(n)-1] + pick(d.rand, ",", ".", "'", " ") + n[len(n)-1:] }},
		{"character reference", func(_ *draft, n string) string { return fmt.Sprintf("&#%d;%s", n[0], n[1:]) }},
		{"negative", func(_ *draft, n string) string { return "-" + n }},
	} {
		all = append(all, mutation{name: "number: " + s.name, stage: spelling, apply: func(d *draft) { d.id = s.spell(d, d.id) }})
	}
	escaped := from(inPath, inQuery, inForm)
	return append(all,
		mutation{"number: raw bytes", spelling, escaped, func(d *draft) { d.escape = escapeNone }},
		mutation{"number: escaped digits", spelling, escaped, func(d *draft) { d.escape = escapeSome(d.rand, "%%%02X") }},
		mutation{"number: escaped twice", spelling, escaped, func(d *draft) { d.escape = escapeSome(d.rand, "%%25%02X") }},
		mutation{"number: escaped three times", spelling, escaped, func(d *draft) { d.escape = escapeSome(d.rand, "%%2525%02X") }},
		mutation{"number: %u escapes", spelling, escaped, func(d *draft) { d.escape = escapeSome(d.rand, "%%u00%02X") }},
		mutation{"number: bad escape", spelling, escaped, func(d *draft) {
			bad := pick(d.rand, "%zz", "%", "%4", "%%", "%-1", "%G0")
			before := d.rand.IntN(2) == 0
			d.escape = func(s string) string {
				if before {
					return bad + escapeAll(s)
				}
				return escapeAll(s) + bad
			}
		}},
	)
}

// spaces are what one library or another trims.
var spaces = []string{
	" ", "  ", "\t", "\n", "\r", "\r\n", "\v", "\f", "\x00", "\x01", "\x1c", "\x1f", "\x7f", "+",
	"\u0085", "\u00a0", "\u1680", "\u2003", "\u2007", "\u2028", "\u200b", "\u202f", "\u3000", "\ufeff",
}

// otherDigits spells a number in the digits of another script: all of them, or
// at least one.
func otherDigits(r *rand.Rand, n string, all bool) string {
	// The zeros of some of Unicode's blocks of decimal digits (category Nd), the
	// last two beyond what a Java char holds.
	zero := pick(r, '\u0660', '\u06f0', '\u07c0', '\u0966', '\u09e6', '\u0be6', '\u0e50', '\u0f20', '\u1040', '\u17e0', '\u1810', '\ua8d0', '\uff10', '\U000104a0', '\U0001d7ce')
	sure := r.IntN(len(n))
	var b strings.Builder
	for i, c := range n {
		if '0' <= c && c <= '9' && (all || i == sure || r.IntN(2) == 0) {
			c += zero - '0'
		}
		b.WriteRune(c)
	}
	return b.String()
}

// overlong spells ASCII in UTF-8 sequences of a length that is not allowed.
func overlong(s string, length int) string {
	var b strings.Builder
	for _, c := range []byte(s) {
		if length == 3 {
			b.WriteByte(0xe0)
			b.WriteByte(0x80 | c>>6)
		} else {
			b.WriteByte(0xc0 | c>>6)
		}
		b.WriteByte(0x80 | c&0x3f)
	}
	return b.String()
}

// escapeSome escapes with a format of its own at least the first byte, and what
// must be.
func escapeSome(r *rand.Rand, format string) func(string) string {
	return func(s string) string {
		var b strings.Builder
		for i := range len(s) {
			if i == 0 || r.IntN(2) == 0 {
				text := fmt.Sprintf(format, s[i])
				if r.IntN(2) == 0 {
					text = strings.ToLower(text)
				}
				b.WriteString(text)
			} else {
				b.WriteString(escapeAll(s[i : i+1]))
			}
		}
		return b.String()
	}
}
