// Package admin answers operators over HTTP: metrics, health, the requests that `ordergate
// filter` and `ordergate load` send to a running process, and those of other programs (/v1/...).
// Package page is its page for people.
//
// Start with [Server]. These commands print the reports, too.
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
	"sync"
	"time"

	"github.com/ordergate/ordergate/config"
	"github.com/ordergate/ordergate/internal/bundle"
	"github.com/ordergate/ordergate/internal/gate"
	"github.com/ordergate/ordergate/internal/health"
	"github.com/ordergate/ordergate/internal/loader"
	"github.com/ordergate/ordergate/internal/metrics"
	"github.com/ordergate/ordergate/internal/orderid"
)

// Bounds on a request to the admin address: how long a client can occupy a connection, and how
// much memory it can use.
const (
	headerTimeout = 5 * time.Second
	readTimeout   = 30 * time.Second // of the whole request
	writeTimeout  = 30 * time.Second // of the answer to GET and HEAD; a change may take longer: a load takes hours
	idleTimeout   = 2 * time.Minute
	maxHeader     = 64 << 10
	maxBody       = maxAdded * (orderid.MaxBytes + 16) // for the largest request: one that adds IDs
)

// pagePrefix begins the paths of the page.
const pagePrefix = "/page/"

// Filter is a filter as the admin server uses it.
type Filter struct {
	*loader.Loader
	MeasuredRate func() float64 // of false positives; NaN: too few queries
}

// Server answers operators: metrics, health, and requests about filters and stored answers.
type Server struct {
	Config     *config.Config
	Filters    map[string]Filter
	Metrics    *metrics.Metrics
	Conditions func() []health.Condition // of readiness; called for each request
	Logger     *slog.Logger
	// Forget deletes the stored answer of an order under a rule, and records that with who and
	// reason. Its errors wrap [ErrNoAnswers] and [ErrNoOrder], or are those of Redis.
	Forget func(ctx context.Context, rule, id, who, reason string) (*ForgottenReport, error)
	// Mark makes a mark for a request of `ordergate doctor`. Its errors wrap [ErrNoRule].
	Mark func(ctx context.Context, stage gate.Stage, rule string, delay time.Duration) (*MarkReport, error)
	// Effective is the configuration in force with the origins of its values. FileChanges is what the file
	// changes in it, and the paths for which that takes a restart.
	Effective   func() *config.Effective
	FileChanges func() (changes []config.Difference, restart []string, err error)
	// Page serves / and the paths below /page/, and decides itself who may use them; nil: there is none.
	Page http.Handler
	// Version, Active (the configuration in force), Log (the last lines) and RedisInfo (what each server
	// says of itself, by name; nil: there is none) are for reports.
	Version   string
	Active    func() *config.Config
	Log       *bundle.Log
	RedisInfo func(context.Context) (map[string]string, error)
	bundling  sync.Mutex
	// Run starts a task. At its end the process cancels the context of the task, and waits for
	// it.
	Run func(task func(context.Context))
}

// HTTP returns a server with [Server.Handler]. The caller serves a listener with it.
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
	mux.HandleFunc("POST /v1/doctor/marks", s.serveMark)
	mux.HandleFunc("DELETE /v1/once/{rule}/{id...}", s.serveForget)
	mux.HandleFunc("GET /v1/bundle", s.private(s.serveBundle))
	mux.HandleFunc("GET /v1/config", s.private(s.serveConfig))
	mux.HandleFunc("GET /v1/config/diff", s.private(s.serveConfigDiff))
	if s.Config.Listen.Debug {
		s.profiles(mux)
	}
	if s.Page != nil {
		mux.Handle("GET /{$}", s.Page)
		mux.Handle(pagePrefix, s.Page)
	}
	return guard(&s.Config.Listen, s.withFilters(mux))
}

// guard passes a request on only if it meets three conditions.
//
//   - Its host is an IP address, localhost or a configured name. A web page can make its own
//     name resolve to 127.0.0.1. A browser then treats ordergate as part of the page's origin,
//     and the checks below would pass.
//   - A change does not come from a page of another site.
//   - A change has the token, if one is configured, whichever origin a browser reports.
//
// Every request other than GET and HEAD is a change. The page has the token from a form, and reads
// bodies itself.
func guard(c *config.Listen, next http.Handler) http.Handler {
	crossOrigin := http.NewCrossOriginProtection()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		isChange := r.Method != http.MethodGet && r.Method != http.MethodHead && !strings.HasPrefix(r.URL.Path, pagePrefix)
		var err error
		switch {
		case !isOwnHost(c, r):
			err = statusError{errors.New("nothing is served under this host name: use an IP address, localhost or a name of listen.admin_hosts"), http.StatusMisdirectedRequest}
		case crossOrigin.Check(r) != nil:
			err = statusError{errors.New("the request comes from another site"), http.StatusForbidden}
		case isChange && c.Token != "" && !HasToken(r, string(c.Token)):
			w.Header().Set("WWW-Authenticate", "Bearer")
			err = statusError{errors.New("the token is missing or wrong: send Authorization: Bearer TOKEN"), http.StatusUnauthorized}
		case isChange:
			err = readBody(w, r)
		default:
			_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(writeTimeout)) // a recorder of a test has no deadline
		}
		if err != nil {
			w.Header().Set("Connection", "close") // the server would otherwise read an unused body
			writeError(w, err)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// isOwnHost reports whether the host of a request is one of ordergate's. A request of HTTP/1.0
// may name no host, and browsers do not use HTTP/1.0. No web page reaches a unix socket.
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

// HasToken reports whether a request has the token. It takes the same time for every wrong one.
func HasToken(r *http.Request, token string) bool {
	shown, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	return SameSecret(shown, token) && ok
}

// SameSecret compares in a time that does not depend on the texts.
func SameSecret(shown, want string) bool {
	a, b := sha256.Sum256([]byte(shown)), sha256.Sum256([]byte(want))
	return subtle.ConstantTimeCompare(a[:], b[:]) == 1
}

// readBody reads the body before the handler begins, and then removes the read deadline. The
// deadline would otherwise cancel the context of a handler that takes longer.
func readBody(w http.ResponseWriter, r *http.Request) error {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		return statusError{fmt.Errorf("the body is larger than %d bytes", tooLarge.Limit), http.StatusRequestEntityTooLarge}
	case err != nil:
		return statusError{fmt.Errorf("reading the body: %w", err), http.StatusBadRequest}
	}
	_ = http.NewResponseController(w).SetReadDeadline(time.Time{}) // a recorder of a test has no deadline
	r.Body = io.NopCloser(bytes.NewReader(body))
	return nil
}
