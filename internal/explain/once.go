package explain

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ordergate/ordergate/config"
	"github.com/ordergate/ordergate/internal/admin"
	"github.com/ordergate/ordergate/internal/condition"
	"github.com/ordergate/ordergate/internal/gate"
	"github.com/ordergate/ordergate/internal/lockreport"
	"github.com/ordergate/ordergate/internal/redisconn"
	"github.com/ordergate/ordergate/internal/rules"
	"github.com/ordergate/ordergate/lockmw/redislock"
)

// AnswerState is whether the answer of an earlier call is stored now.
type AnswerState struct {
	Key    string         `json:"key"`
	State  string         `json:"state"`       // none, stored, suspended, other_type (no answer), unreachable; forgotten, after once forget
	Rule   *string        `json:"rule"`        // whose answer it is; null: none
	Status *int           `json:"status"`      // null: none, or it shows only what was done
	At     *time.Time     `json:"settled_at"`  // when it was stored
	Age    *admin.Seconds `json:"age_seconds"` // since then
	Error  *string        `json:"error"`
}

// The states of a stored answer, beside those of a lock.
const (
	StateNone      = "none"
	StateStored    = "stored"
	StateSuspended = "suspended"
	StateForgotten = "forgotten"
)

// ConditionState is whether a condition holds now, for one order.
type ConditionState struct {
	Name  string  `json:"name"`
	Key   *string `json:"key"`   // null: a time
	Holds *bool   `json:"holds"` // null: it could not be checked
	Error *string `json:"error"`
}

// errEmbedded is why a command cannot read an embedded Redis.
var errEmbedded = errors.New("an embedded Redis is inside the serving process")

// readOnce reads whether answers are stored for the request, and whether its conditions hold. It
// blocks until Redis has answered, or ctx ends.
func (e *Explanation) readOnce(ctx context.Context, c *config.Config) error {
	e.Stored, e.Conditions = []AnswerState{}, []ConditionState{}
	requires := e.rule != nil && len(e.LockKeys) > 0 && e.settle != nil && len(e.settle.Require) > 0
	if len(e.places) == 0 && !requires {
		return nil
	}
	client, failure := redis.UniversalClient(nil), errEmbedded
	if c.Redis != nil && c.Redis.Mode != config.RedisEmbedded {
		opened, closeClient, err := redisconn.Connect(ctx, c.Redis, 0)
		if err == nil {
			defer closeClient()
		}
		client, failure = opened, err
	}
	e.readAnswers(ctx, client, failure)
	if !requires {
		return nil
	}
	return e.readConditions(ctx, client, failure)
}

// readAnswers looks for stored answers. Failure is why there is no client.
func (e *Explanation) readAnswers(ctx context.Context, client redis.UniversalClient, failure error) {
	for _, place := range e.places {
		s := AnswerState{Key: redislock.StoredKey(place.LockKey, place.Name), State: lockreport.StateUnreachable}
		if failure == nil {
			s, _ = ReadAnswer(ctx, client, place)
		} else {
			s.Error = new(failure.Error())
		}
		e.Stored = append(e.Stored, s)
	}
}

// ReadAnswer looks for a stored answer. It returns how many bytes are stored.
func ReadAnswer(ctx context.Context, client redis.UniversalClient, place gate.AnswerPlace) (s AnswerState, size int) {
	s = AnswerState{Key: redislock.StoredKey(place.LockKey, place.Name), State: StateNone}
	texts, err := redislock.ReadStored(ctx, client, place.Name, place.LockKey)
	switch {
	case redis.HasErrorPrefix(err, "WRONGTYPE"):
		s.State, s.Error = lockreport.StateOther, new(err.Error())
	case err != nil:
		s.State, s.Error = lockreport.StateUnreachable, new(err.Error())
	case texts[0].Text != "":
		s.describe(texts[0].Text)
		if texts[0].Suspended && s.State == StateStored {
			s.State = StateSuspended
		}
		size = len(texts[0].Text)
	}
	return s, size
}

// describe adds what is known of a stored answer.
func (s *AnswerState) describe(text string) {
	a, err := gate.SummarizeAnswer(text)
	if err != nil {
		s.State, s.Error = lockreport.StateOther, new(err.Error())
		return
	}
	s.State, s.Rule, s.At = StateStored, new(admin.Visible(a.Rule)), &a.At
	s.Age, s.Status = new(admin.SecondsOf(max(0, time.Since(a.At)))), admin.NilIf(0, a.Status)
}

// readConditions checks each condition, for each order of the request. Failure is why there is no
// client.
func (e *Explanation) readConditions(ctx context.Context, client redis.UniversalClient, failure error) error {
	list, _, err := rules.Conditions(e.rule)
	if err != nil {
		return err
	}
	opts := condition.Options{Now: time.Now}
	if failure == nil {
		opts.Checker = redislock.NewChecker(client)
		defer opts.Checker.Close()
	}
	for _, found := range condition.New(list, opts).States(ctx, e.IDs, e.values) {
		if found.Key != "" && failure != nil {
			found.Err = failure
		}
		s := ConditionState{Name: found.Name, Key: admin.NilIf("", admin.Visible(found.Key)), Holds: &found.Holds}
		if found.Err != nil {
			s.Holds, s.Error = nil, new(found.Err.Error())
		}
		e.Conditions = append(e.Conditions, s)
	}
	return nil
}

// String describes the state in one line.
func (s AnswerState) String() string {
	switch s.State {
	case StateNone:
		return s.Key + ": none stored"
	case StateForgotten:
		return s.Key + ": forgotten"
	case lockreport.StateOther:
		return s.Key + ": " + *s.Error
	case lockreport.StateUnreachable:
		return s.Key + ": store not reachable: " + *s.Error
	}
	status := "without its answer"
	if s.Status != nil {
		status = fmt.Sprintf("status %d", *s.Status)
	}
	if s.State == StateSuspended {
		status += "; suspended: a call that undoes it has not ended, or its outcome is unknown"
	}
	return fmt.Sprintf("%s: stored by rule %s at %s, %s ago, %s", s.Key, *s.Rule, s.At.Format(time.RFC3339), s.Age, status)
}

// String describes the state in one line.
func (s ConditionState) String() string {
	what := s.Name
	if s.Key != nil {
		what += " " + *s.Key
	}
	switch {
	case s.Holds == nil:
		return what + ": cannot be checked: " + *s.Error
	case *s.Holds:
		return what + ": holds"
	}
	return what + ": does not hold"
}

// locateMissingHeaders names the headers that the request lacks.
func (q *Explainer) locateMissingHeaders(e *Explanation, names []string) {
	missing := slices.DeleteFunc(slices.Clone(names), func(name string) bool {
		return slices.ContainsFunc(q.Headers, func(h [2]string) bool { return h[0] == name })
	})
	e.Because += ": there is no " + strings.Join(missing, ", ")
}

// headersOf returns the headers of which a key is made, without those of its scope.
func headersOf(k *gate.OnceKey) []string {
	return slices.DeleteFunc(slices.Clone(k.Parts), func(part string) bool { return part == "" })
}
