package command

import (
	"context"
	"net/http"
	"slices"
	"strings"

	"github.com/ordergate/ordergate/internal/gate"
	"github.com/ordergate/ordergate/internal/order"
)

// examineListener checks what Envoy's listener does to every request, by reads.
func (d *doctor) examineListener(ctx context.Context) {
	const check = "listener"
	if d.read.report.Adapter == gate.AdapterHTTP {
		return // ordergate refuses what another proxy lets pass
	}
	at := func(target string, others ...[2]string) probe {
		return d.send(ctx, probe{stage: gate.StageAuthz, req: order.Request{Method: http.MethodGet, Host: d.read.req.Host, Target: target}, others: others})
	}
	base := d.read.req.Target
	p := at(base, [2]string{gate.HeaderFence, "1"}, [2]string{gate.HeaderVerdict, "maybe"}, [2]string{"x.ordergate.key", "1"},
		[2]string{"x-envoy-retry-on", "5xx"}, [2]string{"cookie", "doctor1=1"}, [2]string{"cookie", "doctor2=2"})
	if r := p.report; r == nil {
		d.skip(check, "", "headers: not proved. %s", p.outcome())
	} else {
		d.examineHeaders(r)
	}
	if p = at(base, [2]string{"x_doctor", "1"}); p.report != nil && slices.Contains(p.report.Headers, "x_doctor") {
		d.fail(check, "", "headers_with_underscores_action: REJECT_REQUEST", "a header with an underscore arrives: PHP takes X_Order_Id for X-Order-Id")
	} else {
		d.ok(check, "", "headers with underscores do not arrive")
	}
	d.examinePaths(at)
}

func (d *doctor) examineHeaders(r *gate.Report) {
	const check = "listener"
	var foreign []string
	for _, name := range r.Headers {
		if order.IsOurs(name) {
			foreign = append(foreign, name)
		}
	}
	if len(foreign) > 0 {
		d.fail(check, "", "early_header_mutation_extensions of examples/envoy/envoy.yaml", "headers of a client arrive that only ordergate may send, and reach the backend while ordergate is away: %s", strings.Join(foreign, ", "))
	} else {
		d.ok(check, "", "headers that only ordergate may send are removed from clients' requests")
	}
	if slices.Contains(r.Headers, "x-envoy-retry-on") {
		d.fail(check, "", "internal_address_config with an address that no client has", "Envoy takes this client for an internal one: x-envoy-retry-on has a settlement sent more than once")
	} else {
		d.ok(check, "", "clients cannot have Envoy try again")
	}
	if !r.RawLines {
		d.fail(check, "", "encode_raw_headers: true in ext_authz", "two lines of one header arrive as one: an order in the second Cookie goes unseen")
	} else {
		d.ok(check, "", "headers arrive line by line")
	}
}

// examinePaths checks that a path has one spelling.
func (d *doctor) examinePaths(at func(target string, others ...[2]string) probe) {
	const check = "listener"
	base := strings.TrimPrefix(d.read.req.Target, "/")
	path, _, _ := strings.Cut(base, "?")
	wrong := false
	for _, odd := range []struct{ target, do string }{
		{"/doctor/../" + path, "normalize_path: true"},
		{"/doctor//" + path, "merge_slashes: true"},
		{"/doctor%2f" + path, "path_with_escaped_slashes_action: REJECT_REQUEST"},
	} {
		if p := at(odd.target); p.report != nil && p.report.Target == odd.target {
			wrong = true
			d.fail(check, "", odd.do, "the path %s arrives as it is: the backend may accept more spellings of a path than ordergate", odd.target)
		}
	}
	if !wrong {
		d.ok(check, "", "one path has one spelling")
	}
}
