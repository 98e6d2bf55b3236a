// Package admin answers operators over HTTP: metrics, health, and what `ordergate filter` and
// `ordergate load` send to a running process.
//
// Start with [Server]. The reports are also what these commands print.
package admin

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/ordergate/ordergate/config"
	"github.com/ordergate/ordergate/internal/health"
	"github.com/ordergate/ordergate/internal/loader"
	"github.com/ordergate/ordergate/internal/metrics"
	"github.com/ordergate/ordergate/internal/orderid"
)

// Bounds on a request to the admin address. No client can hold it up for longer, or make it
// keep more.
const (
	headerTimeout = 5 * time.Second
	readTimeout   = 30 * time.Second // of the whole request
	writeTimeout  = 30 * time.Second // of an answer that changes nothing: a load may take hours
	idleTimeout   = 2 * time.Minute
	maxHeader     = 64 << 10
	maxBody       = maxAdded * (orderid.MaxBytes + 16) // the largest there is, of IDs
)

// Filter is what operators see of a filter.
type Filter struct {
	*loader.Loader
	MeasuredRate func() float64 // of false positives; NaN: too few queries
}

// Server answers operators: metrics, health, and requests about filters.
type Server struct {
	Config     *config.Config
	Filters    map[string]Filter
	Metrics    *metrics.Metrics
	Conditions func() []health.Condition // of readiness; called for each request
	Logger     *slog.Logger
	// Run runs a task of which the end of the process has to wait, and cancels its context at
	// that end.
	Run func(task func(context.Context))
}

// HTTP returns a server with [Server.Handler]. Give it a listener.
func (s *Server) HTTP() *http.Server {
	return &http.Server{
		Handler:           s.Handler(),
		ReadHeaderTimeout: headerTimeout,
		ReadTimeout:       readTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeader,
		ErrorLog:          slog.NewLogLogger(s.Logger.Handler(), slog.LevelDebug),
	}
}

// Handler answers operators. It is safe for concurrent use.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", s.Metrics.Handler())
	health.Register(mux, s.Conditions)
	return guard(&s.Config.Listen, s.withFilters(mux))
}

// guard lets only those requests through that the admin address is meant for.
//
//   - The host that they name is an IP address, localhost or a configured name. A web page
//     can have a name of its own resolve to 127.0.0.1; to a browser, ordergate would be of the
//     page's own origin then, and nothing below would see a difference.
//   - A change does not come from a page of another site.
//   - A change has the token, if there is one, whatever a browser says of where it is from.
//
// Whatever is neither GET nor HEAD is a change.
func guard(c *config.Listen, next http.Handler) http.Handler {
	crossOrigin := http.NewCrossOriginProtection()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		isChange := r.Method != http.MethodGet && r.Method != http.MethodHead
		var err error
		switch {
		case !isOwnHost(c, r):
			err = statusError{errors.New("nothing is served under this host name: use an IP address, localhost or a name of listen.admin_hosts"), http.StatusMisdirectedRequest}
		case crossOrigin.Check(r) != nil:
			err = statusError{errors.New("the request comes from another site"), http.StatusForbidden}
		case isChange && c.Token != "" && !hasToken(r, c.Token):
			w.Header().Set("WWW-Authenticate", "Bearer")
			err = statusError{errors.New("the token is missing or wrong: send Authorization: Bearer TOKEN"), http.StatusUnauthorized}
		case isChange:
			err = readBody(w, r)
		default:
			_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(writeTimeout)) // tests have none
		}
		if err != nil {
			w.Header().Set("Connection", "close") // rather than read a body that no handler wants
			writeError(w, err)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// isOwnHost reports whether a request may come for us by the host that it names. HTTP/1.0
// names none, and no browser speaks it. No web page reaches a unix socket.
func isOwnHost(c *config.Listen, r *http.Request) bool {
	if local, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr); r.Host == "" || ok && local.Network() == "unix" {
		return true
	}
	host := r.Host
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.TrimSuffix(host, ".")
	if _, err := netip.ParseAddr(strings.Trim(host, "[]")); err == nil {
		return true
	}
	return strings.EqualFold(host, "localhost") ||
		slices.ContainsFunc(c.AdminHosts, func(name string) bool { return strings.EqualFold(host, name) })
}

// hasToken takes the same time for every wrong token.
func hasToken(r *http.Request, token config.Secret) bool {
	shown, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	has, want := sha256.Sum256([]byte(shown)), sha256.Sum256([]byte(token))
	return subtle.ConstantTimeCompare(has[:], want[:]) == 1 && ok
}

// readBody reads the body before the handler begins. From then on the time limit of reading
// does not count, which would otherwise end the context of what takes longer.
func readBody(w http.ResponseWriter, r *http.Request) error {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		return statusError{fmt.Errorf("the body is larger than %d bytes", tooLarge.Limit), http.StatusRequestEntityTooLarge}
	case err != nil:
		return statusError{fmt.Errorf("reading the body: %w", err), http.StatusBadRequest}
	}
	_ = http.NewResponseController(w).SetReadDeadline(time.Time{}) // tests have none
	r.Body = io.NopCloser(bytes.NewReader(body))
	return nil
}
