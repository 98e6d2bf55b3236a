package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/ordergate/ordergate/internal/attach"
	"github.com/ordergate/ordergate/internal/envoycheck"
)

// envoyTimeout bounds the answer of an Envoy's admin address.
const envoyTimeout = time.Minute

// checkEnvoy compares a file, or what a running Envoy has, with the plan. It prints each difference.
func checkEnvoy(ctx context.Context, env *environment, source string, plan attach.Plan, backend time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, envoyTimeout)
	defer cancel()
	in, err := openEnvoy(ctx, source)
	if err != nil {
		return fmt.Errorf("envoy --check: %w", err)
	}
	defer in.Close()
	snapshot, err := envoycheck.Read(in)
	if err = late(ctx, err); err != nil {
		return fmt.Errorf("envoy --check: reading %s: %w", source, err)
	}
	findings, notes := envoycheck.Check(plan, backend, snapshot)
	for _, n := range notes {
		fmt.Fprintln(env.stderr, "note:", n)
	}
	for _, f := range findings {
		where := f.Where
		if where != "" {
			where += ": "
		}
		fmt.Fprintf(env.stdout, "%s%s\n  so:    %s\n  write: %s\n", where, f.What, f.Consequence, f.Write)
	}
	if n := len(findings); n > 0 {
		return fmt.Errorf("%s does not fit %s: differences: %d", source, env.file, n)
	}
	return nil
}

// late returns the error of a read that may have taken too long.
func late(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil {
		return fmt.Errorf("no whole answer within %v", envoyTimeout)
	}
	return err
}

// openEnvoy opens a file, "-" for standard input, or the configuration of a running Envoy.
func openEnvoy(ctx context.Context, source string) (io.ReadCloser, error) {
	if source == "-" {
		return io.NopCloser(os.Stdin), nil
	}
	if !strings.HasPrefix(source, "http://") && !strings.HasPrefix(source, "https://") {
		f, err := os.Open(source)
		if _, port, split := net.SplitHostPort(source); err == nil || split != nil || strings.Trim(port, "0123456789") != "" {
			return f, err
		}
		source = "http://" + source
	}
	u, err := url.Parse(source)
	if err != nil || u.Host == "" {
		return nil, fmt.Errorf("%q is no address: write http://127.0.0.1:9901", source)
	}
	if strings.Trim(u.Path, "/") == "" {
		u.Path, u.RawQuery = "/config_dump", "include_eds"
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return nil, err
	}
	client := &http.Client{
		Transport:     &http.Transport{DisableKeepAlives: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	resp, err := client.Do(req)
	var failed *url.Error
	if errors.As(err, &failed) {
		err = failed.Err
	}
	if err = late(ctx, err); err != nil {
		return nil, fmt.Errorf("asking %s: %w", u, err)
	}
	if resp.StatusCode == http.StatusOK {
		return resp.Body, nil
	}
	resp.Body.Close()
	switch {
	case resp.StatusCode == http.StatusUnauthorized, resp.StatusCode == http.StatusForbidden, resp.StatusCode/100 == 3:
		return nil, fmt.Errorf("%s answers %s: it wants a login. Ask it yourself, and check the saved answer", u, resp.Status)
	}
	return nil, fmt.Errorf("%s answers %s: is it Envoy's admin address?", u, resp.Status)
}
