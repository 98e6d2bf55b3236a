package tests

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
)

// TestSite looks at each page of the documentation's site (make site) on a phone's width: neither the page
// nor a table is wider, and nothing comes from elsewhere.
func TestSite(t *testing.T) {
	needsSidecar(t, "it looks at no ordergate")
	if os.Getenv("SOAK") == "" {
		t.Skip("make soak runs it")
	}
	pages, err := filepath.Glob("../.cache/site/*.html")
	must(t, err)
	if len(pages) < 40 {
		t.Fatalf("the site has %d pages: make site", len(pages))
	}
	server := httptest.NewServer(http.FileServer(http.Dir("../.cache/site")))
	t.Cleanup(server.Close)
	b := newBrowser(t, server.URL)
	b.resize(390, 844, "light")
	for _, page := range pages {
		page = filepath.Base(page)
		b.do(chromedp.Navigate(server.URL + "/" + page))
		for _, wide := range eval[[]string](b, `[document.documentElement, ...document.querySelectorAll(".md-typeset__scrollwrap")]
			.filter(e => e.scrollWidth > e.clientWidth).map(e => e.scrollWidth + " px in " + e.clientWidth + ": " + e.innerText.slice(0, 60))`) {
			t.Errorf("%s: %s", page, wide)
		}
		if *screenshots {
			shot, err := chromedp.Run(b.ctx, chromedp.CaptureScreenshot())
			must(t, err)
			must(t, os.WriteFile(filepath.Join(os.TempDir(), "site-"+strings.TrimSuffix(page, ".html")+".png"), shot, 0o600))
		}
	}
}
