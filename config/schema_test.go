package config

import (
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v3"
)

// compiledSchema is the schema as a validator of its own reads it.
var compiledSchema = sync.OnceValue(func() *jsonschema.Schema {
	written, err := json.Marshal(Schema())
	if err != nil {
		panic(err)
	}
	read, err := jsonschema.UnmarshalJSON(strings.NewReader(string(written)))
	if err != nil {
		panic(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("ordergate.json", read); err != nil {
		panic(err)
	}
	return c.MustCompile("ordergate.json")
})

// schemaError validates a file with the schema.
func schemaError(text string) error {
	var root yaml.Node
	if err := yaml.Unmarshal([]byte(text), &root); err != nil {
		return err
	}
	textKeys(&root)
	var tree any
	if err := root.Decode(&tree); err != nil {
		return err
	}
	written, err := json.Marshal(tree)
	if err != nil {
		return err
	}
	value, err := jsonschema.UnmarshalJSON(strings.NewReader(string(written)))
	if err != nil {
		return err
	}
	return compiledSchema().Validate(value)
}

// textKeys makes all keys text, as they are in JSON.
func textKeys(n *yaml.Node) {
	for i, inner := range n.Content {
		if n.Kind == yaml.MappingNode && i%2 == 0 {
			inner.SetString(inner.Value)
		}
		textKeys(inner)
	}
}

// ofOneKey are parts of the messages about a single value, which the schema knows too.
var ofOneKey = []string{
	"unknown key", "is out of range: ", " is not one of ", " has no unit", " it has to be ", "is not a whole number",
	"is not a number such", "is not true or false", "is not a duration", " is not a mode", "is no name: ", " only: set ",
	"excludes token_file", "excludes password_file", "excludes dsn_file", "excludes secret_file", "excludes up_to", ": goes with ",
}

// TestSchemaOfFiles validates every configuration of the repository.
func TestSchemaOfFiles(t *testing.T) {
	for _, file := range configurations(t) {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if err := schemaError(string(text)); err != nil {
			t.Errorf("%s: %v", file, err)
		}
		if !strings.Contains(file, "testdata") && !strings.HasPrefix(string(text), "# yaml-language-server: $schema=") {
			t.Errorf("%s names no schema", file)
		}
	}
}

// TestEveryKeyIsDocumented looks for the comment that the schema and the reference have of a key.
func TestEveryKeyIsDocumented(t *testing.T) {
	for name, def := range Schema()["$defs"].(schema) {
		for key, property := range def.(schema)["properties"].(schema) {
			p := property.(schema)
			if text, _ := p["description"].(string); text == "" {
				t.Errorf("%s.%s has no comment", name, key)
			}
		}
	}
}

// notOfSchema matches messages that a schema cannot know: a duration's bounds, bounds that depend on
// another key, and numbers, dates and tags that YAML 1.2 reads otherwise.
var notOfSchema = regexp.MustCompile(`[0-9](ms|s|m|h) is out of range|, or 0, which|m(in|ax)_length: |at: |1_000, the capacity|per_client: |in it 2 times|timestamped only|max_list: is for list|\{header: name\}|` +
	`window: "|\{window: |"1e6"|"0100"|is a date|of the type`)

// schemaAgrees holds a file against the schema: it has to accept what [Load] accepts, and to refuse
// each file whose violations are all of single keys. Variables may set what a file lacks.
func schemaAgrees(t *testing.T, text string, violations []string) {
	t.Helper()
	err := schemaError(text)
	if len(violations) == 0 && err != nil {
		t.Errorf("the schema refuses a good file: %v\n%s", err, text)
	}
	for _, v := range violations {
		single := false
		for _, part := range ofOneKey {
			single = single || strings.Contains(v, part)
		}
		if !single || strings.HasPrefix(v, environmentFile) || notOfSchema.MatchString(v) {
			return
		}
	}
	if len(violations) > 0 && err == nil {
		t.Errorf("the schema accepts a file with %q:\n%s", violations, text)
	}
}
