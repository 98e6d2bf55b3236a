package admin

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/http/pprof"
	"net/netip"
	"runtime"
	rpprof "runtime/pprof"
	"slices"
	"time"

	"github.com/ordergate/ordergate/internal/bundle"
)

const (
	// maxStacks bounds the text of all goroutines. They stand still while it is written.
	maxStacks = 1 << 20
	// bundleTimeout bounds the questions to Redis for one bundle.
	bundleTimeout = 5 * time.Second
)

// private serves what shows orders, or memory, to those who may change something: with the token, or
// without one on an address that no other machine reaches.
func (s *Server) private(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		token := string(s.Config.Listen.Token)
		switch {
		case token != "" && !HasToken(r, token):
			w.Header().Set("WWW-Authenticate", "Bearer")
			writeError(w, statusError{errors.New("the token is missing or wrong: send Authorization: Bearer TOKEN"), http.StatusUnauthorized})
		case token == "" && IsExposed(r):
			writeError(w, statusError{errors.New("this needs listen.token_file or token_env, since other machines reach listen.admin"), http.StatusForbidden})
		default:
			next(w, r)
		}
	}
}

// IsExposed reports whether a request came to an address that other machines may reach.
func IsExposed(r *http.Request) bool {
	local, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	if !ok || local.Network() == "unix" {
		return false
	}
	address, err := netip.ParseAddrPort(local.String())
	return err != nil || !address.Addr().Unmap().IsLoopback()
}

// profiles adds the profiles of Go's runtime.
func (s *Server) profiles(mux *http.ServeMux) {
	for path, profile := range map[string]http.HandlerFunc{"": pprof.Index, "profile": pprof.Profile, "symbol": pprof.Symbol, "trace": pprof.Trace} {
		mux.HandleFunc("GET /debug/pprof/"+path, s.private(func(w http.ResponseWriter, r *http.Request) {
			_ = http.NewResponseController(w).SetWriteDeadline(time.Time{}) // it takes as long as it is asked to
			profile(w, r)
		}))
	}
}

// serveBundle answers with the part of a report that only this process has, besides /metrics and
// /readyz. It makes one at a time.
func (s *Server) serveBundle(w http.ResponseWriter, r *http.Request) {
	if !s.bundling.TryLock() {
		writeError(w, statusError{errors.New("another report is being made: try again"), http.StatusServiceUnavailable})
		return
	}
	report, err := s.makeBundle(r.Context())
	s.bundling.Unlock() // a client that does not read stops no other one
	if err != nil {
		writeError(w, err)
		return
	}
	w.Header().Set("Content-Type", "application/gzip")
	_, _ = w.Write(report) // the client may have left
}

// makeBundle returns the archive.
func (s *Server) makeBundle(ctx context.Context) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, bundleTimeout)
	defer cancel()
	var files bundle.Files
	asJSON := func(name string, value any) {
		var b bytes.Buffer
		if err := WriteJSON(&b, value); err != nil {
			files.Miss(name, err)
			return
		}
		files.Add(name, b.Bytes())
	}
	asJSON("process.json", bundle.ThisProcess(s.Version))
	active := s.Active()
	files.Add("in-force.yaml", active.InForce())
	for _, name := range slices.Sorted(maps.Keys(s.Filters)) {
		asJSON("filters/"+name+".json", s.FilterReport(name))
	}
	addGoroutines(&files)
	files.Add("log.txt", s.Log.Text())
	s.addRedis(ctx, &files)
	var out bytes.Buffer
	scrub := bundle.NewScrubber(slices.Concat(active.Secrets(), s.Config.Secrets()))
	err := files.Write(&out, "", scrub, time.Now())
	return out.Bytes(), err
}

// addGoroutines adds the stacks, once counted and once each.
func addGoroutines(files *bundle.Files) {
	var counted bytes.Buffer
	if err := rpprof.Lookup("goroutine").WriteTo(&counted, 1); err != nil {
		files.Miss("goroutines.txt", err)
	}
	files.Add("goroutines.txt", counted.Bytes())
	stacks := make([]byte, maxStacks)
	files.Add("stacks.txt", stacks[:runtime.Stack(stacks, true)])
}

// addRedis adds what INFO says.
func (s *Server) addRedis(ctx context.Context, files *bundle.Files) {
	if s.RedisInfo == nil {
		return // nothing needs Redis
	}
	infos, err := s.RedisInfo(ctx)
	for _, at := range slices.Sorted(maps.Keys(infos)) {
		files.Add(fmt.Sprintf("redis/%s.txt", fileName(at)), []byte(infos[at]))
	}
	if err != nil {
		files.Miss("INFO of Redis", err)
	}
}

// fileName returns a text as the name of a file.
func fileName(text string) string {
	name := []byte(text)
	for i, c := range name {
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '.' {
			name[i] = '-'
		}
	}
	return string(name)
}
