package differential

import (
	"context"
	"io"
	"net/http"
	"net/url"
	"strings"
)

// overHTTP2 is the version of a draft that is sent over HTTP/2.
const overHTTP2 = "HTTP/2"

// inHTTP2 returns a request for HTTP/2, whose URL is the target alone.
func inHTTP2(raw string) *http.Request {
	head, body, _ := strings.Cut(raw, "\r\n\r\n")
	lines := strings.Split(head, "\r\n")
	method, rest, _ := strings.Cut(lines[0], " ")
	r := &http.Request{Method: method, Header: make(http.Header), URL: &url.URL{Scheme: "http", Opaque: strings.TrimSuffix(rest, " "+overHTTP2)}}
	for _, line := range lines[1:] {
		name, value, _ := strings.Cut(line, ":")
		switch name = strings.ToLower(name); name {
		case "connection", "transfer-encoding", "content-length": // of HTTP/1
		case "host":
			r.Host = strings.TrimSpace(value)
		default:
			r.Header[name] = append(r.Header[name], strings.TrimSpace(value))
		}
	}
	if body != "" {
		r.Body, r.ContentLength = io.NopCloser(strings.NewReader(body)), int64(len(body))
	}
	return r
}

// overHTTP2 sends a request over a connection of HTTP/2 of its own. What Go does not send
// is not sent.
func (c *client) overHTTP2(ctx context.Context, r request) answer {
	ctx, cancel := context.WithTimeout(ctx, answerLimit)
	defer cancel()
	var protocols http.Protocols
	protocols.SetUnencryptedHTTP2(true)
	transport := &http.Transport{Protocols: &protocols, DisableCompression: true}
	defer transport.CloseIdleConnections()
	req := r.http2.Clone(ctx)
	req.URL.Host = c.addr
	req.URL.Opaque = "//" + req.Host + req.URL.Opaque // Go takes scheme and host off again
	resp, err := transport.RoundTrip(req)
	if err != nil {
		return answer{hung: ctx.Err() != nil}
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, resp.Body)
	return answer{status: resp.StatusCode, verdict: resp.Header.Get("x-ordergate-verdict")}
}
