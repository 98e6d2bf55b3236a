package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/ordergate/ordergate/filter"
)

const (
	// mostAdded bounds the IDs of one request.
	mostAdded = 10_000
	// AddedAtOnce is how many go into the change log in one step, which keeps nobody
	// else waiting for longer than a millisecond.
	AddedAtOnce = 500
)

// IDsRequest are IDs to add.
type IDsRequest struct {
	IDs []string `json:"ids"`
}

// AddedReport tells what was added.
type AddedReport struct {
	Filter string `json:"filter"`
	Added  int    `json:"added"` // the first so many of those that were given
}

// serveAdd adds IDs without a look at their formats: for ordergate filter add.
func (m *Engine) serveAdd(r *http.Request, name string) (any, error) {
	ids, err := idsOf(r)
	if err != nil {
		return nil, err
	}
	return m.add(r.Context(), name, ids)
}

// serveAnnounce adds IDs that fit a rule's format: for services that create orders
// in some other way. When it has answered, no ordergate says that they do not exist.
func (m *Engine) serveAnnounce(r *http.Request, name string) (any, error) {
	if m.config.Listen.Token == "" { // with one, guard has seen it
		return nil, statusError{errors.New("services cannot add IDs here: set listen.token_file or listen.token_env"), http.StatusForbidden}
	}
	ids, err := idsOf(r)
	if err != nil {
		return nil, err
	}
	formats, err := FormatsOf(m.config, name)
	if err != nil {
		return nil, err
	}
	allowed := Valid(formats)
	for i, id := range ids {
		if allowed != nil && !allowed(id) {
			return nil, statusError{fmt.Errorf("ID %d is no order ID by any rule's format", i+1), http.StatusBadRequest}
		}
	}
	return m.add(r.Context(), name, ids)
}

func idsOf(r *http.Request) ([]string, error) {
	var ids IDsRequest
	if err := json.NewDecoder(r.Body).Decode(&ids); err != nil {
		return nil, statusError{fmt.Errorf("reading the IDs: %w", err), http.StatusBadRequest}
	}
	if len(ids.IDs) > mostAdded {
		return nil, statusError{fmt.Errorf("%d IDs at once: at most %d are taken", len(ids.IDs), mostAdded), http.StatusBadRequest}
	}
	for i, id := range ids.IDs {
		if len(id) == 0 || len(id) > filter.MaxIDBytes {
			return nil, statusError{fmt.Errorf("ID %d has %d bytes: must be 1 to %d", i+1, len(id), filter.MaxIDBytes), http.StatusBadRequest}
		}
	}
	return ids.IDs, nil
}

func (m *Engine) add(ctx context.Context, name string, ids []string) (any, error) {
	for done := 0; done < len(ids); {
		next := ids[done:min(done+AddedAtOnce, len(ids))]
		if err := m.filters[name].filter.LearnAll(ctx, next); err != nil {
			return nil, statusError{fmt.Errorf("after %d of %d IDs: %w", done, len(ids), err), http.StatusServiceUnavailable}
		}
		done += len(next)
	}
	return AddedReport{name, len(ids)}, nil
}
