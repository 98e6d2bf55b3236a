package config

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// answerFile has an answer in a rule.
func answerFile(answer string) string {
	return "filters: {f: {}}\nrules: [{name: a, match: {methods: [GET], path: \"/o/{id}\"}, id: {path: id}, lookup: {filter: f}, answer: " + answer + "}]\n"
}

func TestAnswer(t *testing.T) {
	const at = "rules[0].answer"
	for answer, want := range map[string][]string{
		`{done: [{status: 2xx}]}`: nil,
		`{failed: [{status: [302, 5xx], header: {Location: "/login$"}, content_type: Text/HTML, json: {a.b: {isnt: [1, 2]}}}]}`: nil,
		`{absent: [{json: {code: 404, data: ~, ok: {exists: false}}}]}`:                                                         nil,

		`{}`:                                                       {at + ": says nothing: give it done, failed or absent"},
		`{done: []}`:                                               {at + ": says nothing: give it done, failed or absent"},
		`{done: [{}]}`:                                             {at + ".done[0]: holds for every answer: give it status, header, content_type or json"},
		`{done: [{status: 2x}]}`:                                   {at + `.done[0].status: "2x" is not a status of an answer: write one from 200 to 599, or a kind, such as 2xx`},
		`{done: [{status: 4xx-final}]}`:                            {at + `.done[0].status: "4xx-final" is not a status of an answer: write one from 200 to 599, or a kind, such as 2xx`},
		`{done: [{status: []}]}`:                                   {at + ".done[0].status: is an empty list: give it a value or remove the key"},
		`{done: [{status: {a: 1}}]}`:                               {at + ".done[0].status: is a mapping: write a value, or a list of values"},
		`{done: [{status: [[200]]}]}`:                              {at + ".done[0].status[0]: is a list: write a value, or a list of values"},
		`{done: [{header: {location: "("}}]}`:                      {at + ".done[0].header.location: is not an RE2 pattern: error parsing regexp: missing closing ): `(`"},
		`{done: [{header: {"a b": x}}]}`:                           {at + `.done[0].header: "a b" is not a name of a header`},
		`{done: [{header: {a: x, A: y}}]}`:                         {at + `.done[0].header: "A" is given twice, in another case`},
		`{done: [{content_type: text}]}`:                           {at + `.done[0].content_type: "text" is not a media type without parameters, such as text/html`},
		`{done: [{content_type: "a/b;c=d"}]}`:                      {at + `.done[0].content_type: "a/b;c=d" is not a media type without parameters, such as text/html`},
		`{done: [{json: 200}]}`:                                    {at + ".done[0].json: is a number: write {member: value}, such as {resultCode: 200}"},
		`{done: [{json: {a..b: 1}}]}`:                              {at + ".done[0].json.\"a..b\": is not a dotted path of member names"},
		`{done: [{json: {a: {is: 1, b: 2}}}]}`:                     {at + ".done[0].json.a: has to be a value, a list of values, {isnt: value} or {exists: false}"},
		`{done: [{json: {a: {exists: 1}}}]}`:                       {at + ".done[0].json.a: has to be a value, a list of values, {isnt: value} or {exists: false}"},
		`{done: [{json: {a: {greater: 1}}}]}`:                      {at + ".done[0].json.a: has to be a value, a list of values, {isnt: value} or {exists: false}"},
		`{done: [{jsn: {a: 1}}]}`:                                  {at + ".done[0].jsn: unknown key, did you mean json?"},
		`{done: [{json: {a: 1}}], don: []}`:                        {at + ".don: unknown key, did you mean done?"},
		`{done: [{json: {a: {exists: [true]}}}, {json: {a: []}}]}`: {at + ".done[1].json.a: is an empty list: give it a value or remove the key"},
	} {
		t.Run(answer, func(t *testing.T) { expect(t, answerFile(answer), want) })
	}
	got := mustParse(t, answerFile(`{failed: [{status: [302, 5xx], header: {Location: "/login$"}, content_type: Text/HTML, json: {a: [1, True, ~], b: {isnt: x}, c: {exists: false}}}]}`), nil).Rules[0].Answer
	want := &Answer{Failed: []AnswerCondition{{
		Status: AnswerStatuses{"302", "5xx"}, Header: map[string]string{"location": "/login$"}, ContentType: "text/html",
		JSON: JSONTests{{Path: "a", Is: []string{"1", "true", "null"}}, {Path: "b", Isnt: []string{"x"}}, {Path: "c", Exists: "false"}},
	}}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error("(-want +got):\n" + diff)
	}
}

// TestAnswerOfTheFile is for every rule without one, but for those that pass.
func TestAnswerOfTheFile(t *testing.T) {
	c := mustParse(t, `
answer: {failed: [{status: 302}]}
filters: {f: {}}
rules:
  - {name: c, match: {methods: [GET], path: /p/health}, pass: true}
  - {name: a, match: {methods: [GET], path: "/o/{id}"}, id: {path: id}, lookup: {filter: f}}
  - {name: b, match: {methods: [GET], path: "/p/{id}"}, id: {path: id}, lookup: {filter: f}, answer: {done: [{status: 200}]}}
`, nil)
	if c.Rules[0].Answer != nil || c.Rules[1].Answer != c.Answer || len(c.Rules[2].Answer.Failed) > 0 {
		t.Errorf("%+v, %+v, %+v", c.Rules[0].Answer, c.Rules[1].Answer, c.Rules[2].Answer)
	}
	expect(t, `{rules: [{name: a, match: {methods: [GET], path: /}, pass: true, answer: {done: [{status: 200}]}}]}`,
		[]string{"rules[0].answer: is not for a rule with pass, which exempts its requests: remove one of the two"})
}
