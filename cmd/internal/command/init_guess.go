package command

import (
	"strings"

	"github.com/ordergate/ordergate/internal/lazyregexp"
)

// kindOfPage is what a page may do with an order.
type kindOfPage int8

const (
	lookups kindOfPage = iota
	creates
	settlements
	unclear // it may create or settle, and the log shows no order in it
)

// maxProposed bounds the requests that init proposes for one rule's action.
const maxProposed = 5

// Words in the last part of a target, which say what a page does.
var (
	pays  = lazyregexp.New(`(?i)pay|settle|confirm|capture|refund|cancel|success|notify|complete|approve|finish|commission|charge`)
	makes = lazyregexp.New(`(?i)create|save|submit|place|process|new|add(?:$|[^r])|order|checkout(?:$|[^a-z_])`)
	acts  = lazyregexp.New(`(?i)create|save|submit|place|process|checkout(?:$|[^a-z_])`) // by GET, too
	shows = lazyregexp.New(`(?i)page|form|select|choose|view|show|list|info|detail|status|history|preview|print|pdf`)
	steps = lazyregexp.New(`(?i)cart|basket|address|shipping|delivery|method|quote|coupon|voucher|log-?[io]|sign-?[io]|register|search|comment|upload`) // before an order is made
	sells = lazyregexp.New(`(?i)order|checkout|invoice|payment|trade|booking`)
)

// of returns the pages that may do something with an order. It is a guess, which the user corrects.
func (s *logSample) of(kind kindOfPage) (list []*page) {
	for _, p := range s.sorted() {
		if len(list) < maxProposed && p.n*1000 >= s.read/1000 && (p.served > 0 || kind == lookups) && s.kind(p) == kind {
			list = append(list, p)
		}
	}
	return list
}

// none is the kind of a page that does nothing with an order.
const none kindOfPage = -1

func (s *logSample) kind(p *page) kindOfPage {
	method, target, _ := strings.Cut(p.text, " ")
	path, query, _ := strings.Cut(target, "?")
	reads := method == "GET"
	last := strings.TrimSuffix(path, "/{id}")
	last = last[strings.LastIndexByte(last, '/')+1:] + "?" + query
	if i := strings.LastIndexByte(last, '/'); i >= 0 {
		last = last[i+1:] // of a route
	}
	verb := pays.MatchString(last)
	switch {
	case p.named && verb && reads && (shows.MatchString(last) || strings.HasSuffix(path, "/{id}")), p.named && reads && !verb:
		if orderName.MatchString(target) {
			return lookups
		}
	case p.named && (verb || method == "POST" && orderName.MatchString(target)):
		return settlements
	case p.named:
	case steps.MatchString(last):
	// A log may show all clients under one address: then few redirects are seen to lead to an order.
	case p.led > 1 && (p.led*2 > p.redirected || p.led*20 > p.redirected && acts.MatchString(last)):
		return creates
	case !sells.MatchString(target):
	case reads && (verb || acts.MatchString(last)) && s.pages["POST"+strings.TrimPrefix(p.text, method)] == nil, method == "POST" && verb:
		return unclear
	case (method == "POST" || method == "PUT") && makes.MatchString(last):
		return creates
	}
	return none
}
