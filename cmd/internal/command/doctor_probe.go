package command

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/ordergate/ordergate/internal/admin"
	"github.com/ordergate/ordergate/internal/gate"
	"github.com/ordergate/ordergate/internal/order"
	"github.com/ordergate/ordergate/internal/wait"
)

const (
	// probeTimeout bounds a marked request, without its delay.
	probeTimeout = 10 * time.Second
	// probeTries and probePause repeat one for which Envoy had no room.
	probeTries = 3
	probePause = time.Second / 2
	// maxProbeAnswer bounds the bytes read of an answer.
	maxProbeAnswer = 256 << 10
)

// newProbeClient returns a client of HTTP/1.1, or of HTTP/2.
func newProbeClient(insecure, http2 bool) *http.Client {
	protocols := &http.Protocols{}
	protocols.SetHTTP1(!http2)
	protocols.SetHTTP2(http2)
	protocols.SetUnencryptedHTTP2(http2)
	return &http.Client{
		Transport: &http.Transport{
			DisableKeepAlives: true, DisableCompression: true, Protocols: protocols,
			TLSClientConfig: &tls.Config{InsecureSkipVerify: insecure}, //nolint:gosec // by a flag
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// probe is a marked request with its answer.
type probe struct {
	stage  gate.Stage
	rule   string
	delay  time.Duration
	req    order.Request
	others order.HeaderList
	trails bool // by HTTP/2, with trailers

	status  int
	header  http.Header
	report  *gate.Report // nil: another program has answered, or ordergate has refused the mark
	refused string       // why ordergate has refused the mark; "": it has not
	foreign bool         // the answer has the report of another marked request
	took    time.Duration
	err     error
}

// mark has the running ordergate make a mark.
func (d *doctor) mark(ctx context.Context, p *probe) (report admin.MarkReport, err error) {
	query := url.Values{"stage": {string(p.stage)}, "rule": {p.rule}, "delay_ms": {strconv.FormatInt(p.delay.Milliseconds(), 10)}}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://localhost/v1/doctor/marks?"+query.Encode(), nil)
	if err != nil {
		return report, err
	}
	err = d.askAdmin(request, &report)
	return report, err
}

// askAdmin sends a request to the running ordergate.
func (d *doctor) askAdmin(request *http.Request, into any) error {
	if d.config.Listen.Admin == "" {
		return errors.New("the file has no listen.admin, so the running ordergate cannot be asked")
	}
	if d.config.Listen.Token != "" {
		request.Header.Set("Authorization", "Bearer "+string(d.config.Listen.Token))
	}
	response, err := adminRoundTrip(d.config.Listen.Admin, request)
	if err != nil {
		return err
	}
	defer response.Body.Close() // its error does not matter: the body is only read
	text, err := io.ReadAll(io.LimitReader(response.Body, maxResponse))
	if err != nil {
		return err
	}
	var refused admin.ErrorReport
	if response.StatusCode/100 != 2 && json.Unmarshal(text, &refused) == nil && refused.Error != "" {
		return errors.New(refused.Error)
	}
	if err := json.Unmarshal(text, into); err != nil {
		return fmt.Errorf("what listens at %s answered %s: is it an ordergate of this version?", d.config.Listen.Admin, response.Status)
	}
	return nil
}

// send sends a marked request through Envoy. It tries again where Envoy has too many requests, of this
// client or in all.
func (d *doctor) send(ctx context.Context, p probe) probe {
	for try := 1; ; try++ {
		done := d.sendOnce(ctx, p)
		crowded := done.report == nil && (done.status == http.StatusTooManyRequests || done.status == http.StatusServiceUnavailable)
		if !crowded || p.delay > 0 || try == probeTries || wait.For(ctx, probePause) != nil {
			return done
		}
	}
}

func (d *doctor) sendOnce(ctx context.Context, p probe) probe {
	mark, err := d.mark(ctx, &p)
	if err != nil {
		p.err = err
		return p
	}
	ctx, cancel := context.WithTimeout(ctx, probeTimeout+p.delay)
	defer cancel()
	request, err := d.request(ctx, &p, mark.Mark)
	if err != nil {
		p.err = err
		return p
	}
	client := d.client
	if p.trails {
		client = d.client2
		request.Trailer = http.Header{"X-Doctor": {"1"}}
		request.Body, request.ContentLength = io.NopCloser(bytes.NewReader(p.req.Body)), -1
	}
	began := time.Now()
	response, err := client.Do(request)
	p.took = time.Since(began)
	if err != nil {
		if e, ok := errors.AsType[*url.Error](err); ok {
			err = e.Err
		}
		p.err = err
		return p
	}
	defer response.Body.Close() // its error does not matter: the body is only read
	p.status, p.header = response.StatusCode, response.Header
	text, _ := io.ReadAll(io.LimitReader(response.Body, maxProbeAnswer)) // a part of it is no report
	var report struct {
		gate.Report
		Refused string `json:"ordergate_mark"`
	}
	if json.Unmarshal(text, &report) == nil {
		p.refused, p.foreign = report.Refused, report.Nonce != "" && report.Nonce != mark.Nonce
		if report.Nonce == mark.Nonce {
			p.report = &report.Report
		}
	}
	return p
}

// request makes the request of a probe, with its target as it is.
func (d *doctor) request(ctx context.Context, p *probe, mark string) (*http.Request, error) {
	request, err := http.NewRequestWithContext(ctx, p.req.Method, d.through.String(), bytes.NewReader(p.req.Body))
	if err != nil {
		return nil, err
	}
	request.URL.Opaque = p.req.Target
	switch {
	case p.req.Host != "":
		request.Host = p.req.Host
	case d.opts.host != "":
		request.Host = d.opts.host
	}
	list, _ := p.req.Header.(order.HeaderList)
	for _, headers := range []order.HeaderList{list, p.others, d.headers} {
		for _, h := range headers {
			if h[0] != "content-length" {
				request.Header.Add(h[0], h[1])
			}
		}
	}
	request.Header.Set(gate.HeaderDoctor, mark)
	return request, nil
}

// outcome says who has answered, if ordergate has not.
func (p *probe) outcome() string {
	switch {
	case p.err != nil:
		return p.err.Error()
	case p.foreign:
		return "the answer is that to another marked request: from a cache, or a proxy mixes requests"
	case p.refused == gate.MarkRepeated:
		return "the mark came more than once: a proxy sends requests again"
	case p.refused == gate.MarkExpired:
		return fmt.Sprintf("the mark came more than %v after it was made, by the clock of the ordergate that answered: clocks differ, or a proxy keeps requests", gate.MarkValid)
	case p.refused != "":
		return "an ordergate has refused the mark: a proxy has changed the mark, or that ordergate has another Redis"
	case p.header.Get(gate.HeaderVerdict) != "":
		return fmt.Sprintf("an ordergate has answered %d with the verdict %s, and no mark has reached it: a proxy has removed the header x-ordergate-doctor", p.status, p.header.Get(gate.HeaderVerdict))
	}
	if p.status == http.StatusTooManyRequests {
		return "a limit of Envoy's refuses it (429): send fewer requests from here meanwhile"
	}
	return fmt.Sprintf("the answer was not ordergate's: status %d of %q", p.status, p.header.Get("Server"))
}
