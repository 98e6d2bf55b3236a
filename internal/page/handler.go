package page

import (
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"time"
)

// prefix begins the paths of the page, but for /.
const prefix = "/page/"

// maxForm bounds the body of a form without a request, in bytes.
const maxForm = 16 << 10

// policy lets the page use its own files alone.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

// Handler serves / and what is below /page/. It decides who may see the page: the caller has
// refused requests from other sites.
func (p *Page) Handler() http.Handler {
	mux := http.NewServeMux()
	static, _ := fs.Sub(files, "files")
	for _, name := range []string{"page.css", "page.js", "icon.svg"} {
		mux.HandleFunc("GET "+prefix+name, func(w http.ResponseWriter, r *http.Request) { http.ServeFileFS(w, r, static, name) })
	}
	mux.HandleFunc("POST "+prefix+"sign-in", p.serveSignIn)
	inside := http.NewServeMux()
	inside.HandleFunc("GET /{$}", p.serveHome)
	inside.HandleFunc("GET "+prefix+"events", p.serveEvents)
	inside.HandleFunc("POST "+prefix+"lock", p.serveLock)
	inside.HandleFunc("POST "+prefix+"release", p.serveRelease)
	inside.HandleFunc("POST "+prefix+"try", p.serveTry)
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		switch {
		case p.access.isExposed(r):
			p.write(w, http.StatusForbidden, whole{Title: "No token is set", Body: "exposed"})
		case p.access.isSignedIn(r):
			inside.ServeHTTP(w, r)
		case r.Method == http.MethodGet && r.URL.Path == "/":
			p.write(w, http.StatusUnauthorized, whole{Title: "Sign in", Body: "sign-in"})
		default:
			w.WriteHeader(http.StatusUnauthorized)
		}
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for name, value := range map[string]string{
			"Content-Security-Policy": policy, "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer",
			"Cross-Origin-Resource-Policy": "same-origin", "Cross-Origin-Opener-Policy": "same-origin", "Cache-Control": "no-store",
		} {
			w.Header().Set(name, value)
		}
		mux.ServeHTTP(w, r)
	})
}

// readForm reads the fields of a form of at most so many bytes, or answers that it cannot.
func (p *Page) readForm(w http.ResponseWriter, r *http.Request, most int64) bool {
	r.Body = http.MaxBytesReader(w, r.Body, most)
	err := r.ParseForm()
	if _, large := errors.AsType[*http.MaxBytesError](err); large {
		p.fail(w, http.StatusRequestEntityTooLarge, fmt.Sprintf("That is too large: at most %d bytes are read.", most))
	} else if err != nil {
		p.fail(w, http.StatusBadRequest, "The form cannot be read.")
	}
	return err == nil
}

// fail answers with a page that says what went wrong.
func (p *Page) fail(w http.ResponseWriter, status int, text string) {
	p.write(w, status, whole{Title: "That did not work", Body: "failed", Data: text})
}

func (p *Page) serveSignIn(w http.ResponseWriter, r *http.Request) {
	if !p.readForm(w, r, maxForm) {
		return
	}
	if ok, wait := p.access.check(r, r.PostForm.Get("token")); !ok {
		p.refuseToken(w, "sign-in", "Sign in", nil, wait)
		return
	}
	http.SetCookie(w, &http.Cookie{Name: cookieName, Value: p.access.cookie(), Path: "/", HttpOnly: true, SameSite: http.SameSiteStrictMode})
	http.Redirect(w, r, "/", http.StatusSeeOther)
}

// refused is the data of a form whose token was wrong.
type refused struct {
	Problem string
	Data    any
}

// refuseToken shows a form again.
func (p *Page) refuseToken(w http.ResponseWriter, body, title string, data any, wait time.Duration) {
	status, problem := http.StatusUnauthorized, "The token is wrong."
	if wait > 0 {
		status, problem = http.StatusTooManyRequests, fmt.Sprintf("Five tokens were wrong. Try again in %.0f s.", wait.Seconds()+0.5)
		w.Header().Set("Retry-After", fmt.Sprintf("%.0f", wait.Seconds()+1))
	}
	p.write(w, status, whole{Title: title, Body: body, Data: refused{problem, data}})
}
