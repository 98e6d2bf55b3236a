package gate

import (
	"errors"
	"mime"
	"regexp"
	"slices"

	"github.com/ordergate/ordergate/internal/order"
)

// Meaning is what a backend's answer says about the order.
type Meaning int8

// The meanings.
const (
	MeansNothing Meaning = iota // the rule does not say, or the answer is not certainly the backend's
	MeansFailed                 // the backend did not do what the request asks for
	MeansAbsent                 // the backend has no such order
	MeansDone                   // the backend did it
)

// Answers says what the answers of a backend mean where their status alone does not tell. The
// first test that holds decides: failed before absent before done.
type Answers struct {
	Failed, Absent, Done []AnswerTest
}

// AnswerTest is a test of an answer. It holds if all of its parts do.
type AnswerTest struct {
	Status      func(int) bool            // nil: any
	Headers     map[string]*regexp.Regexp // by name in lower case; a line of each must match
	ContentType string                    // the media type in lower case; "": any
	Members     []MemberTest              // of the JSON body
}

// MemberTest is a test of a member of a JSON body. Values compare as text.
type MemberTest struct {
	Path     []string
	Is, Isnt []string // it has one of these values, or is there and has none of them; nil: not asked
	Exists   *bool    // nil: not asked
}

// readings are the tests that an answer has passed by its headers, in the order in which they
// decide.
type readings []reading

type reading struct {
	means    Meaning
	members  []MemberTest // that are still to be tested
	byStatus bool         // the status is one that the test names
}

// read returns what a backend's answer may mean by its headers. It keeps nothing of them.
func (a *Answers) read(r *Response) (list readings) {
	if a == nil || r.GRPC || !r.fromBackend() {
		return nil
	}
	for _, group := range []struct {
		means Meaning
		tests []AnswerTest
	}{{MeansFailed, a.Failed}, {MeansAbsent, a.Absent}, {MeansDone, a.Done}} {
		for _, test := range group.tests {
			if test.passesHeaders(r) {
				list = append(list, reading{group.means, test.Members, test.Status != nil})
			}
		}
	}
	return list
}

// readOutcome is read for a call that changes orders: after several attempts, an answer says
// nothing about the first. It has the outcome take into account that the rule names the answer's status,
// without a test of the body. A type alone would be that of a proxy's answer, too.
func (a *Answers) readOutcome(r *Response) readings {
	list := a.read(r)
	r.said = slices.ContainsFunc(list, func(one reading) bool { return one.byStatus && len(one.members) == 0 })
	if r.Outcome() != OutcomeKnown {
		return nil
	}
	return list
}

// readsBody reports whether a body may decide what an answer means.
func (a *Answers) readsBody() bool {
	return a.hasTest(func(t AnswerTest) bool { return len(t.Members) > 0 })
}

// hasTest reports whether one of the tests is such a one.
func (a *Answers) hasTest(such func(AnswerTest) bool) bool {
	return a != nil && (slices.ContainsFunc(a.Failed, such) || slices.ContainsFunc(a.Absent, such) || slices.ContainsFunc(a.Done, such))
}

// names reports whether a test names the status of an answer that is no error by itself.
func (a *Answers) names(status int) bool {
	return status < 400 && a.hasTest(func(t AnswerTest) bool { return t.Status != nil && t.Status(status) })
}

// saysDone reports whether the rule says which answers are those of a success.
func (a *Answers) saysDone() bool { return a != nil && len(a.Done) > 0 }

func (t *AnswerTest) passesHeaders(r *Response) bool {
	if t.Status != nil && !t.Status(r.Status) {
		return false
	}
	for name, pattern := range t.Headers {
		if !hasHeader(r.Header, name, pattern.MatchString) {
			return false
		}
	}
	return t.ContentType == "" || hasHeader(r.Header, "content-type", func(value string) bool {
		mediaType, _, err := mime.ParseMediaType(value)
		return err == nil && mediaType == t.ContentType
	})
}

// means returns the meaning of the answer. Whole means that body is all of it.
func (list readings) means(body []byte, whole bool) Meaning {
	for _, r := range list {
		if len(r.members) == 0 {
			return r.means
		}
		if !whole {
			return MeansNothing // a test that is not decided comes before the others
		}
		if !slices.ContainsFunc(r.members, func(m MemberTest) bool { return !m.holds(body) }) {
			return r.means
		}
	}
	return MeansNothing
}

func (m *MemberTest) holds(body []byte) bool {
	text, kind, err := member(body, m.Path)
	if m.Exists != nil {
		_, missing := errors.AsType[noMember](err)
		return missing && !*m.Exists || err == nil && *m.Exists
	}
	if err != nil || kind == '{' || kind == '[' {
		return false
	}
	if m.Is != nil {
		return slices.Contains(m.Is, text)
	}
	return !slices.Contains(m.Isnt, text)
}

// hasHeader reports whether a line of a header passes a test.
func hasHeader(h order.Header, name string, passes func(string) bool) bool {
	for n, value := range order.All(h) {
		if n == name && passes(value) {
			return true
		}
	}
	return false
}

// readBody reports whether a body may decide what the answer means.
func (list readings) readBody() bool {
	return slices.ContainsFunc(list, func(r reading) bool { return len(r.members) > 0 })
}

// pending reports whether the body decides what the answer means.
func (list readings) pending() bool { return len(list) > 0 && len(list[0].members) > 0 }

// ofLookup is the meaning of an answer to a lookup. NotFound means that its status says that there
// is no such order.
func (list readings) ofLookup(body []byte, whole, notFound bool) Meaning {
	means := list.means(body, whole)
	if means == MeansNothing && notFound {
		return MeansAbsent
	}
	return means
}

// failed reports whether the answer to a call says that nothing was done.
func (m Meaning) failed() bool { return m == MeansFailed || m == MeansAbsent }
