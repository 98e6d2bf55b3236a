package main

import (
	"fmt"
	"strings"
)

// renderConclusions returns what the table shows, one line an act, and two of the last.
func renderConclusions(results []result, st style) string {
	var with, without struct {
		reached, found, same, orders int
		payments                     []string
	}
	for _, r := range results {
		with.reached += r.with.madeUp.reached
		without.reached += r.without.madeUp.reached
		with.found += r.with.found
		without.found += r.without.found
		with.same += r.with.same
		without.same += r.without.same
		with.orders += r.with.orders
		without.orders += r.without.orders
		with.payments = append(with.payments, fmt.Sprintf("%s %d", r.service, r.with.payments))
		without.payments = append(without.payments, fmt.Sprintf("%s %d", r.service, r.without.payments))
	}
	n := len(results)
	lines := []string{
		fmt.Sprintf("Made-up IDs that reached a service: %s of %s. Without ordergate: %s.",
			thousands(with.reached), thousands(n*madeUpLookups), thousands(without.reached)),
		fmt.Sprintf("New orders found by the very next lookup: %d of %d. Without ordergate: %d.",
			with.found, n*creates, without.found),
		fmt.Sprintf("Payments for one order: %s. Without ordergate: %s.",
			strings.Join(with.payments, ", "), strings.Join(without.payments, ", ")),
		fmt.Sprintf("Repeats with the first answer: %d of %d. Without ordergate: %d.",
			with.same, n*repeats, without.same),
		fmt.Sprintf("Orders by %d creates, each sent twice: %d. Without ordergate: %d.",
			n*creates, with.orders, without.orders),
	}
	var b strings.Builder
	for i, line := range lines {
		fmt.Fprintf(&b, "%s %s\n", st.bold(fmt.Sprint(min(i+1, 4))), line)
	}
	return b.String()
}

func times(n int) string {
	if n == 1 {
		return "once"
	}
	return thousands(n) + " times"
}

func suchAs(example string) string {
	if example == "" {
		return ""
	}
	return ", such as " + example
}

// brokenPromises returns a line for everything that ordergate promises and that
// did not hold.
func brokenPromises(results []result) []string {
	var broken []string
	for _, r := range results {
		add := func(ok bool, format string, args ...any) {
			if !ok {
				broken = append(broken, r.service+": "+fmt.Sprintf(format, args...))
			}
		}
		a := r.with
		add(a.madeUp.reached <= falsePositives,
			"%d of %d made-up IDs reached the service, a filter's false positives would be %d at most",
			a.madeUp.reached, a.madeUp.requests, falsePositives)
		add(a.madeUp.bad == 0, "%d of %d made-up IDs were not answered 404, such as %s",
			a.madeUp.bad, a.madeUp.requests, a.madeUp.firstBad)
		add(a.existing.bad == 0, "%d of %d orders that exist were not answered 200, such as %s",
			a.existing.bad, a.existing.requests, a.existing.firstBad)
		add(a.found == creates, "%d of %d new orders were found at once, and this was answered: %s",
			a.found, creates, a.creates.firstBad)
		add(a.payments == 1, "the order was paid %s", times(a.payments))
		add(a.same == repeats && a.repeats.reached == 0,
			"%d of %d repeated settlements had the answer of the first, and %d reached the service",
			a.same, repeats, a.repeats.reached)
		add(a.orders == creates && a.twice.bad == 0, "%d creates, each sent twice, made %d orders, and %d were not answered 201%s",
			creates, a.orders, a.twice.bad, suchAs(a.twice.firstBad))
		add(a.settle.bad == 0, "%d of %d settlements were answered neither 200 nor 409 busy, such as %s",
			a.settle.bad, a.settle.requests, a.settle.firstBad)
	}
	return broken
}

// address is what runs at an address of each service's side.
type address struct {
	what string
	at   []string // in the order of the services
}

// renderInvitation returns commands to try against the first of the sides, and
// the addresses of all.
func renderInvitation(dir string, sides []*side, st style) string {
	first := sides[0]
	twice := func(url string, id int) string {
		return fmt.Sprintf("for i in 1 2; do curl -X POST '%s/orders/%d/settle?slow=2000' & done; wait", url, id)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "\n%s\n", st.bold("Everything is still running. See it at "+first.admin+"/, try it, and end it with Ctrl-C."))
	for _, try := range [][]string{
		{"an order that was made up, and one that exists",
			"curl -i " + first.gated + "/orders/314159265358", "curl -i " + first.gated + "/orders/42"},
		{"create an order, settle one",
			`curl -i -d '{"amount": 100}' ` + first.gated + "/orders", "curl -i -X POST " + first.gated + "/orders/42/settle"},
		{"settle one twice at once: with ordergate, without it",
			twice(first.gated, 43), twice(first.plain, 44)},
		{"what ordergate counts, whether it is ready, what the services saw",
			"curl " + first.admin + "/metrics", "curl " + first.admin + "/readyz", "tail -n 5 " + dir + "/*/*.log"},
	} {
		fmt.Fprintf(&b, "\n  %s\n", st.dim("# "+try[0]))
		for _, command := range try[1:] {
			fmt.Fprintf(&b, "  %s\n", command)
		}
	}
	b.WriteByte('\n')
	names := make([]string, len(sides))
	lines := []address{{what: "with ordergate"}, {what: "without ordergate"}, {what: "ordergate's admin"}, {what: "Envoy's admin"}}
	for i, s := range sides {
		names[i] = s.name
		for j, at := range []string{s.gated, s.plain, s.admin, "http://" + s.envoy.AdminAddr()} {
			lines[j].at = append(lines[j].at, at)
		}
	}
	fmt.Fprintf(&b, "  %s\n", st.dim(addressLine("", names)))
	for _, l := range lines {
		fmt.Fprintf(&b, "  %s\n", addressLine(l.what, l.at))
	}
	fmt.Fprintf(&b, "\n%s\n", st.dim("ordergate does not know of orders that are created without it: it answers 404."))
	return b.String()
}

// addressLine aligns one line; the longest address is http://127.0.0.1:65535.
func addressLine(what string, at []string) string {
	line := fmt.Sprintf("%-18s", what)
	for _, a := range at {
		line += fmt.Sprintf("  %-22s", a)
	}
	return strings.TrimRight(line, " ")
}
