package gate

import (
	"regexp"
	"slices"
	"testing"

	"github.com/ordergate/ordergate/internal/order"
)

// shopAnswers are those of a shop that answers 200 to everything, and redirects strangers.
func shopAnswers() *Answers {
	no := false
	return &Answers{
		Failed: []AnswerTest{
			{Status: func(s int) bool { return s == 302 }, Headers: map[string]*regexp.Regexp{"location": regexp.MustCompile("/login$")}},
			{ContentType: "text/html"},
			{Members: []MemberTest{{Path: []string{"data", "id"}, Exists: &no}, {Path: []string{"resultCode"}, Isnt: []string{"200", "201", "404"}}}},
		},
		Absent: []AnswerTest{{Members: []MemberTest{{Path: []string{"resultCode"}, Is: []string{"404"}}}}},
		Done:   []AnswerTest{{Status: func(s int) bool { return s/100 == 2 }, Members: []MemberTest{{Path: []string{"resultCode"}, Is: []string{"200", "201"}}}}},
	}
}

func TestMeaning(t *testing.T) {
	jsonType := order.HeaderList{{"content-type", "application/json"}}
	for _, tt := range []struct {
		name   string
		status int
		header order.HeaderList
		body   string
		want   Meaning
	}{
		{"done", 200, jsonType, `{"resultCode":200}`, MeansDone},
		{"done, as text", 200, jsonType, `{"resultCode":"201"}`, MeansDone},
		{"another status", 302, jsonType, `{"resultCode":200,"data":{"id":1}}`, MeansNothing},
		{"absent", 200, jsonType, `{"resultCode":404}`, MeansAbsent},
		{"failed", 200, jsonType, `{"resultCode":500}`, MeansFailed},
		{"failed, but it has a member", 200, jsonType, `{"resultCode":500,"data":{"id":1}}`, MeansNothing},
		{"no such member", 200, jsonType, `{}`, MeansNothing},
		{"null", 200, jsonType, `{"resultCode":null,"data":{}}`, MeansFailed},
		{"an object", 200, jsonType, `{"resultCode":{"a":1}}`, MeansNothing},
		{"a member twice", 200, jsonType, `{"resultCode":500,"resultCode":200}`, MeansNothing},
		{"no JSON", 200, jsonType, `resultCode=200`, MeansNothing},
		{"an empty body", 200, jsonType, ``, MeansNothing},
		{"a login", 302, order.HeaderList{{"location", "https://shop/login"}}, ``, MeansFailed},
		{"another redirect", 302, order.HeaderList{{"location", "/login/done"}}, ``, MeansNothing},
		{"one of two lines", 302, order.HeaderList{{"location", "/a"}, {"location", "/login"}}, ``, MeansFailed},
		{"a page", 200, order.HeaderList{{"content-type", "Text/HTML; charset=utf-8"}}, `{"resultCode":200}`, MeansFailed},
		{"a broken type", 200, order.HeaderList{{"content-type", "text/html; charset"}}, ``, MeansNothing},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := &Response{Status: tt.status, Details: "via_upstream", Attempts: 1, Header: tt.header}
			if got := shopAnswers().read(r).means([]byte(tt.body), true); got != tt.want {
				t.Errorf("means %d, want %d", got, tt.want)
			}
			for name, other := range map[string]Response{
				"Envoy's own": {Details: "upstream_response_timeout", Attempts: 1}, "of gRPC": {Details: "via_upstream", Attempts: 1, GRPC: true},
			} {
				other.Status, other.Header = r.Status, r.Header
				if got := shopAnswers().read(&other).means([]byte(tt.body), true); got != MeansNothing {
					t.Errorf("an answer that is %s means %d", name, got)
				}
			}
			r.Attempts = 2
			if got := shopAnswers().readOutcome(r); got != nil {
				t.Errorf("after two attempts: %v", got)
			}
		})
	}
	// Of a body that was cut off, no test that it decides counts, and none behind that.
	cut := (&Response{Status: 200, Details: "via_upstream", Attempts: 1, Header: jsonType})
	if got := shopAnswers().read(cut).means([]byte(`{"resultCode":200}`), false); got != MeansNothing {
		t.Errorf("a part means %d", got)
	}
	if list := (*Answers)(nil).read(cut); list != nil || (*Answers)(nil).readsBody() || (*Answers)(nil).saysDone() {
		t.Errorf("without a declaration: %v", list)
	}
}

// TestLookedUp has the backend's own words for an order that it does not have.
func TestLookedUp(t *testing.T) {
	for _, tt := range []struct {
		name    string
		answers *Answers
		r       Response
		body    string
		want    bool
	}{
		{"404", nil, Response{Status: 404}, "", true},
		{"200", nil, Response{Status: 200}, `{"resultCode":404}`, false},
		{"200 that says so", shopAnswers(), Response{Status: 200}, `{"resultCode":404}`, true},
		{"200 with an order", shopAnswers(), Response{Status: 200}, `{"resultCode":200}`, false},
		{"404 all the same", shopAnswers(), Response{Status: 404}, `{}`, true},
		{"404 that failed", shopAnswers(), Response{Status: 404, Header: order.HeaderList{{"content-type", "text/html"}}}, ``, false},
		{"without a body", shopAnswers(), Response{Status: 404, Ended: true}, ``, true},
		{"by a header", &Answers{Absent: []AnswerTest{{Headers: map[string]*regexp.Regexp{"location": regexp.MustCompile("^/$")}}}},
			Response{Status: 302, Header: order.HeaderList{{"location", "/"}}}, "", true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var notFound []string
			g, err := New([]Policy{{
				Rule:    order.Rule{Name: "lookup", Methods: []string{"GET"}, Path: "/orders/{id}", IDs: []order.ID{{In: order.InPath, Name: "id", Format: order.Format{Kind: order.Digits, Min: 1, Max: 19}}}},
				Answers: tt.answers,
				Lookup:  &Lookup{OnNotFound: func(id string) { notFound = append(notFound, id) }},
			}}, nil, nil)
			if err != nil {
				t.Fatal(err)
			}
			tt.r.Details, tt.r.Attempts = "via_upstream", 1
			c := Call{gate: g, policy: &g.policies[0], lookup: &lookupCall{id: "42"}, stage: atBackend}
			if c.On(Event{Kind: ResponseHeaders, Response: &tt.r}).Do == ReadResponse {
				c.On(Event{Kind: ResponseBody, Body: []byte(tt.body), End: true})
			}
			if got := slices.Equal(notFound, []string{"42"}); got != tt.want || len(notFound) > 1 {
				t.Errorf("not found are %q", notFound)
			}
		})
	}
}
