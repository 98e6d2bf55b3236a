package page

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"sync"
	"time"

	"github.com/ordergate/ordergate/internal/admin"
)

const (
	cookieName = "ordergate"
	// maxWrong wrong tokens in a row have a client wait for the pause. maxClients bounds those that are
	// remembered.
	maxWrong   = 5
	pause      = 30 * time.Second
	maxClients = 1000
)

// access decides who may see the page. It shows orders, so a configured token is needed for all of it.
type access struct {
	token string // "": there is none
	once  sync.Once
	key   [32]byte // of the cookies of this process

	mu    sync.Mutex
	wrong map[string]attempts // by client
}

type attempts struct {
	wrong int
	until time.Time // the end of the pause
}

// cookie returns what a browser has that has shown the token.
func (a *access) cookie() string {
	a.once.Do(func() { _, _ = rand.Read(a.key[:]) }) // it never fails
	mac := hmac.New(sha256.New, a.key[:])
	mac.Write([]byte(a.token))
	return hex.EncodeToString(mac.Sum(nil))
}

// isSignedIn reports whether a request may see the page.
func (a *access) isSignedIn(r *http.Request) bool {
	if a.token == "" {
		return true
	}
	if admin.HasToken(r, a.token) {
		return true
	}
	c, err := r.Cookie(cookieName)
	return err == nil && admin.SameSecret(c.Value, a.cookie())
}

// isExposed reports whether a request came from elsewhere to an ordergate without a token
// (listen.insecure).
func (a *access) isExposed(r *http.Request) bool {
	return a.token == "" && admin.IsExposed(r)
}

// check holds a token against the configured one. A client that has sent five wrong ones has to wait,
// and is told for how long.
func (a *access) check(r *http.Request, token string) (ok bool, wait time.Duration) {
	client := admin.HostOf(r.RemoteAddr)
	a.mu.Lock()
	defer a.mu.Unlock()
	known := a.wrong[client]
	if wait = time.Until(known.until); wait > 0 {
		return false, wait
	}
	if a.token != "" && admin.SameSecret(token, a.token) {
		delete(a.wrong, client)
		return true, 0
	}
	if known.wrong++; known.wrong >= maxWrong {
		known = attempts{until: time.Now().Add(pause)}
	}
	if a.wrong == nil || len(a.wrong) >= maxClients {
		a.wrong = make(map[string]attempts)
	}
	a.wrong[client] = known
	return false, time.Until(known.until)
}
