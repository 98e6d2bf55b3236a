package command

import (
	"encoding/json"
	"testing"
)

func TestSchema(t *testing.T) {
	code, out, errs := command(t.Context(), "schema")
	var s struct {
		Schema     string `json:"$schema"`
		Properties map[string]any
	}
	if err := json.Unmarshal([]byte(out), &s); code != 0 || errs != "" || err != nil {
		t.Fatalf("exit code %d, error %v: %s", code, err, errs)
	}
	if s.Schema != "https://json-schema.org/draft/2020-12/schema" || s.Properties["locks"] == nil {
		t.Errorf("got %+v", s)
	}
}
