package rules

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/ordergate/ordergate/config"
	"github.com/ordergate/ordergate/internal/gate"
)

// answers compiles what a backend's answers mean; nil: the file does not say.
func answers(a *config.Answer) (*gate.Answers, error) {
	if a == nil {
		return nil, nil
	}
	compiled := &gate.Answers{}
	for _, list := range []struct {
		from []config.AnswerCondition
		to   *[]gate.AnswerTest
	}{{a.Failed, &compiled.Failed}, {a.Absent, &compiled.Absent}, {a.Done, &compiled.Done}} {
		for _, c := range list.from {
			test, err := answerTest(c)
			if err != nil {
				return nil, err
			}
			*list.to = append(*list.to, test)
		}
	}
	return compiled, nil
}

func answerTest(c config.AnswerCondition) (gate.AnswerTest, error) {
	test := gate.AnswerTest{ContentType: c.ContentType, Headers: make(map[string]*regexp.Regexp, len(c.Header))}
	if len(c.Status) > 0 {
		test.Status = func(status int) bool {
			return slices.ContainsFunc(c.Status, func(of config.OnceStatus) bool { return of.Has(status) })
		}
	}
	for name, pattern := range c.Header {
		compiled, err := regexp.Compile(pattern)
		if err != nil {
			return test, fmt.Errorf("header %s: %w", name, err)
		}
		test.Headers[name] = compiled
	}
	for _, m := range c.JSON {
		member := gate.MemberTest{Path: strings.Split(m.Path, "."), Is: m.Is, Isnt: m.Isnt}
		if m.Exists != "" {
			exists := m.Exists == "true"
			member.Exists = &exists
		}
		test.Members = append(test.Members, member)
	}
	return test, nil
}
