package command

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

// maxResponse bounds the bytes read of a response. The report on a filter with ten years
// of segments takes 1.5 MB.
const maxResponse = 8 << 20

// errNotRunning reports that no process listens at the admin address.
var errNotRunning = errors.New("there is no ordergate")

// notRunning is an error that Is errNotRunning.
type notRunning struct{ error }

func (n notRunning) Is(target error) bool { return target == errNotRunning }

// callAdmin sends a request about one filter to the admin address of the running ordergate,
// and decodes the response into the value that into points to. It sends the token if one is
// configured, and body as JSON unless body is nil. Only connecting has a timeout, because a
// request may take as long as a load. The error is errNotRunning if the connection fails.
func (e *environment) callAdmin(ctx context.Context, c *config.Config, method, filter, path string, body, into any) error {
	switch _, ok := c.Filters[filter]; {
	case !ok:
		return usageError{fmt.Errorf("%s has no filter %q", e.file, filter)}
	case c.Listen.Admin == "":
		return usageError{fmt.Errorf("%s has no listen.admin, so ordergate cannot be called", e.file)}
	}
	where := c.Listen.Admin
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
	response, err := adminRoundTrip(where, request)
	if err != nil {
		return err
	}
	defer response.Body.Close() // its error does not matter: the body is only read
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

// adminRoundTrip sends a request to the ordergate at an admin address. The error is errNotRunning if
// the connection fails.
func adminRoundTrip(where string, request *http.Request) (*http.Response, error) {
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
	response, err := transport.RoundTrip(request)
	if err != nil {
		var dial *net.OpError
		if errors.As(err, &dial) && dial.Op == "dial" {
			err = notRunning{err}
		}
		return nil, fmt.Errorf("asking the ordergate at %s: %w", where, err)
	}
	return response, nil
}
