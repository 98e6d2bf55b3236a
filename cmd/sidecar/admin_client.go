package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"

	"github.com/ordergate/ordergate/config"
	"github.com/ordergate/ordergate/internal/admin"
	"github.com/ordergate/ordergate/internal/redisconn"
)

// maxResponse bounds what is read of an answer: a filter with ten years of segments
// takes 1.5 MB.
const maxResponse = 8 << 20

// errNotRunning says that nobody listens at the admin address.
var errNotRunning = errors.New("there is no ordergate")

// notRunning is an error that Is errNotRunning.
type notRunning struct{ error }

func (n notRunning) Is(target error) bool { return target == errNotRunning }

// callAdmin asks the ordergate that serves a configuration, at its admin address,
// about one of its filters, with the token if there is one. It takes as long as that does,
// so only the connection has a time limit. Body is sent as JSON unless it is nil.
func (e *environment) callAdmin(ctx context.Context, c *config.Config, method, filter, path string, body, into any) error {
	switch _, ok := c.Filters[filter]; {
	case !ok:
		return usageError{fmt.Errorf("%s has no filter %q", e.file, filter)}
	case c.Listen.Admin == "":
		return usageError{fmt.Errorf("%s has no listen.admin, where ordergate could be asked", e.file)}
	}
	where := c.Listen.Admin
	network, address := "tcp", where
	if path, ok := strings.CutPrefix(where, "unix:"); ok {
		network, address = "unix", path
	}
	transport := &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{Timeout: redisconn.Timeout}).DialContext(ctx, network, address)
		},
	}
	var sent io.Reader
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			return err
		}
		sent = bytes.NewReader(text)
	}
	request, err := http.NewRequestWithContext(ctx, method, "http://localhost/filters/"+filter+path, sent)
	if err != nil {
		return err
	}
	if c.Listen.Token != "" {
		request.Header.Set("Authorization", "Bearer "+string(c.Listen.Token))
	}
	response, err := transport.RoundTrip(request)
	if err != nil {
		var dial *net.OpError
		if errors.As(err, &dial) && dial.Op == "dial" {
			err = notRunning{err}
		}
		return fmt.Errorf("asking the ordergate at %s: %w", where, err)
	}
	defer response.Body.Close() // only read from: nothing to lose
	text, err := io.ReadAll(io.LimitReader(response.Body, maxResponse))
	if err != nil {
		return fmt.Errorf("asking the ordergate at %s: %w", where, err)
	}
	if response.StatusCode != http.StatusOK {
		var refused admin.ErrorReport
		if json.Unmarshal(text, &refused) == nil && refused.Error != "" {
			return errors.New(refused.Error)
		}
		return fmt.Errorf("asking what listens at %s: it answered %s", where, response.Status)
	}
	if err := json.Unmarshal(text, into); err != nil {
		return fmt.Errorf("reading the answer of %s: %w", where, err)
	}
	return nil
}
