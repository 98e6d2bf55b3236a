package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/ordergate/ordergate/internal/audit"
	"github.com/ordergate/ordergate/internal/loader"
	"github.com/ordergate/ordergate/internal/rules"
)

// maxAdded bounds the IDs of one request.
const maxAdded = 10_000

// IDsRequest is a request to add IDs.
type IDsRequest struct {
	IDs []string `json:"ids"`
	// Who and Reason are for the log: user@host, and the operator's words.
	Who    string `json:"who"`
	Reason string `json:"reason"`
}

// AddedReport is the result of adding IDs.
type AddedReport struct {
	Filter string `json:"filter"`
	Added  int    `json:"added"`
	// Refused counts the IDs that fit no rule's format and were not added. FirstRefused is the
	// first of them, cut to 60 bytes; null: none.
	Refused      int     `json:"refused"`
	FirstRefused *string `json:"first_refused"`
}

// serveAdd adds the IDs that fit a rule's format, for `ordergate filter add`.
func (s *Server) serveAdd(r *http.Request, name string) (any, error) {
	asked, err := idsOf(r)
	if err != nil {
		return nil, err
	}
	ids := asked.IDs
	check, err := s.check(name)
	if err != nil {
		return nil, err
	}
	isBad := func(id string) bool { return check(id) != "" }
	good := slices.DeleteFunc(slices.Clone(ids), isBad)
	report, err := s.add(r.Context(), name, good)
	if err != nil {
		return nil, err
	}
	s.logAdded(r, name, asked, good)
	if report.Refused = len(ids) - len(good); report.Refused > 0 {
		first := ids[slices.IndexFunc(ids, isBad)]
		report.FirstRefused = new(strings.ToValidUTF8(first[:min(len(first), maxQuoted)], ""))
	}
	return report, nil
}

// maxQuoted bounds the part of a refused ID that an answer repeats, in bytes.
const maxQuoted = 60

// check returns the function that judges the IDs of a filter, see [rules.Check].
func (s *Server) check(filter string) (func(id string) (reason string), error) {
	formats, err := rules.FormatsOf(s.Config, filter)
	return rules.Check(formats), err
}

// serveAnnounce adds IDs, for services that create orders in another way. Each ID must fit a
// rule's format. After a successful answer no instance answers Absent for them.
func (s *Server) serveAnnounce(r *http.Request, name string) (any, error) {
	if err := s.requireToken("services cannot add IDs here"); err != nil {
		return nil, err
	}
	asked, err := idsOf(r)
	if err != nil {
		return nil, err
	}
	ids := asked.IDs
	check, err := s.check(name)
	if err != nil {
		return nil, err
	}
	for i, id := range ids {
		if reason := check(id); reason != "" {
			return nil, statusError{fmt.Errorf("ID %d is no order ID by any rule's format: %s", i+1, reason), http.StatusBadRequest}
		}
	}
	return s.add(r.Context(), name, ids)
}

// requireToken returns an error if no token is configured. guard has checked a configured one.
func (s *Server) requireToken(refusal string) error {
	if s.Config.Listen.Token == "" {
		return statusError{errors.New(refusal + ": set listen.token_file or listen.token_env"), http.StatusForbidden}
	}
	return nil
}

func idsOf(r *http.Request) (*IDsRequest, error) {
	var ids IDsRequest
	if err := json.NewDecoder(r.Body).Decode(&ids); err != nil {
		return nil, statusError{fmt.Errorf("reading the IDs: %w", err), http.StatusBadRequest}
	}
	if len(ids.IDs) > maxAdded {
		return nil, statusError{fmt.Errorf("%d IDs at once: at most %d are taken", len(ids.IDs), maxAdded), http.StatusBadRequest}
	}
	return &ids, nil
}

func (s *Server) add(ctx context.Context, name string, ids []string) (*AddedReport, error) {
	for done := 0; done < len(ids); {
		next := ids[done:min(done+loader.BatchSize, len(ids))]
		if err := s.Filters[name].Filter().LearnAll(ctx, next); err != nil {
			return nil, statusError{fmt.Errorf("after %d of %d IDs: %w", done, len(ids), err), http.StatusServiceUnavailable}
		}
		done += len(next)
	}
	return &AddedReport{Filter: name, Added: len(ids)}, nil
}

// logAdded logs the IDs that a request to the admin address added: their number, and the first.
func (s *Server) logAdded(r *http.Request, filter string, asked *IDsRequest, added []string) {
	if len(added) == 0 {
		return
	}
	s.Logger.Info("order IDs were added by hand", "filter", filter, "ids", len(added), "first", added[0],
		"who", short(asked.Who), "from", r.RemoteAddr, "reason", short(asked.Reason))
}

// short returns a text for the log or the audit, without the part that is too long.
func short(text string) string {
	return strings.ToValidUTF8(text[:min(len(text), audit.MaxReason)], "")
}
