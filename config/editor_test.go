package config

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/textproto"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// languageServer is a yaml-language-server, as an editor talks to it over its standard streams.
type languageServer struct {
	t   *testing.T
	in  io.Writer
	out *textproto.Reader
	id  int
}

func startLanguageServer(t *testing.T) *languageServer {
	t.Helper()
	program, err := filepath.Abs("../.cache/lib/yaml-language-server/node_modules/.bin/yaml-language-server")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(program); err != nil {
		t.Fatal("yaml-language-server is missing: python3 tools/fetch.py yaml-language-server")
	}
	cmd := exec.CommandContext(t.Context(), program, "--stdio")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	timer := time.AfterFunc(time.Minute, func() { _ = cmd.Process.Kill() }) // ends read
	t.Cleanup(func() {
		timer.Stop()
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	s := &languageServer{t: t, in: in, out: textproto.NewReader(bufio.NewReader(out))}
	s.call("initialize", map[string]any{"processId": os.Getpid(), "rootUri": nil, "capabilities": map[string]any{
		"workspace": map[string]any{"configuration": true},
	}})
	s.send(map[string]any{"method": "initialized", "params": map[string]any{}})
	return s
}

func (s *languageServer) send(message map[string]any) {
	s.t.Helper()
	message["jsonrpc"] = "2.0"
	text, err := json.Marshal(message)
	if err == nil {
		_, err = fmt.Fprintf(s.in, "Content-Length: %d\r\n\r\n%s", len(text), text)
	}
	if err != nil {
		s.t.Fatal(err)
	}
}

// message is a request, an answer or a notification of the server.
type message struct {
	ID     any             `json:"id"`
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
	Result json.RawMessage `json:"result"`
	Error  any             `json:"error"`
}

// next returns the next message that is no request. It answers requests: of settings, with those by
// which everything is checked and completed.
func (s *languageServer) next() (m message) {
	s.t.Helper()
	for {
		header, err := s.out.ReadMIMEHeader()
		if err != nil {
			s.t.Fatalf("yaml-language-server: %v", err)
		}
		n, _ := strconv.Atoi(header.Get("Content-Length"))
		text := make([]byte, n)
		if _, err := io.ReadFull(s.out.R, text); err != nil {
			s.t.Fatal(err)
		}
		m = message{}
		if err := json.Unmarshal(text, &m); err != nil {
			s.t.Fatalf("%v: %s", err, text)
		}
		if m.ID == nil || m.Method == "" {
			return m
		}
		var asked struct{ Items []any }
		_ = json.Unmarshal(m.Params, &asked) // of other requests it has none
		results := make([]any, len(asked.Items))
		if m.Method == "workspace/configuration" && len(results) > 0 {
			results[0] = map[string]any{"validate": true, "completion": true, "schemaStore": map[string]any{"enable": false}}
		}
		s.send(map[string]any{"id": m.ID, "result": results})
	}
}

func (s *languageServer) call(method string, params map[string]any) json.RawMessage {
	s.t.Helper()
	s.id++
	s.send(map[string]any{"id": s.id, "method": method, "params": params})
	for {
		if m := s.next(); m.ID == float64(s.id) {
			if m.Error != nil {
				s.t.Fatalf("%s: %v", method, m.Error)
			}
			return m.Result
		}
	}
}

// open has an editor show a file, and returns what the server underlines: "LINE: TEXT: MESSAGE".
func (s *languageServer) open(uri, text string) (underlined []string) {
	s.t.Helper()
	s.send(map[string]any{"method": "textDocument/didOpen", "params": map[string]any{
		"textDocument": map[string]any{"uri": uri, "languageId": "yaml", "version": 1, "text": text},
	}})
	type position struct{ Line, Character int }
	for {
		m := s.next()
		if m.Method != "textDocument/publishDiagnostics" {
			continue
		}
		var p struct {
			URI         string
			Diagnostics []struct {
				Range   struct{ Start, End position }
				Message string
			}
		}
		if err := json.Unmarshal(m.Params, &p); err != nil {
			s.t.Fatal(err)
		}
		if p.URI != uri {
			continue
		}
		lines := strings.Split(text, "\n")
		for _, d := range p.Diagnostics {
			from, to := d.Range.Start, d.Range.End
			line := lines[from.Line]
			if to.Line == from.Line {
				line = line[:min(to.Character, len(line))]
			}
			underlined = append(underlined, fmt.Sprintf("%d: %s: %s", from.Line+1, line[min(from.Character, len(line)):], d.Message))
		}
		return underlined
	}
}

// completions returns the labels that the server offers at the end of a line.
func (s *languageServer) completions(uri, text, line string) (labels []string) {
	s.t.Helper()
	before, _, found := strings.Cut(text, line+"\n")
	if !found {
		s.t.Fatalf("no line %q", line)
	}
	result := s.call("textDocument/completion", map[string]any{
		"textDocument": map[string]any{"uri": uri},
		"position":     map[string]any{"line": strings.Count(before, "\n"), "character": len(line)},
	})
	var list struct{ Items []struct{ Label string } }
	if err := json.Unmarshal(result, &list); err != nil {
		s.t.Fatal(err)
	}
	for _, item := range list.Items {
		labels = append(labels, item.Label)
	}
	return labels
}

// TestEditor opens three files as an editor does: an example without a fault, one with wrong keys and
// values, and one that is being written.
func TestEditor(t *testing.T) {
	if os.Getenv("SOAK") == "" {
		t.Skip("runs in make soak: it takes Node.js")
	}
	file := filepath.Join(t.TempDir(), "schema.json")
	text, err := json.Marshal(Schema())
	if err == nil {
		err = os.WriteFile(file, text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	heading := "# yaml-language-server: $schema=file://" + file + "\n"
	example, err := os.ReadFile("../examples/envoy/ordergate.yaml")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(example), "\n") // the first line names the schema of a release
	s := startLanguageServer(t)
	if got := s.open("file:///good/ordergate.yaml", heading+rest); len(got) > 0 {
		t.Errorf("an example: %q", got)
	}

	got := s.open("file:///wrong/ordergate.yaml", heading+`locks:
  settlement: {kind: shared, lease: 30, waits: {tries: 3}}
rules:
  - name: settle
    match: {methods: [POST], path: "/orders/{id}/settle"}
    ids: {path: id}
    settle: {lock: settlement, max_in_flight: 0}
`)
	for _, want := range []string{"3: shared: ", "3: 30: ", "3: waits: ", "7: ids: ", "8: 0: "} {
		if !slices.ContainsFunc(got, func(line string) bool { return strings.HasPrefix(line, want) }) {
			t.Errorf("nothing is underlined as %s: %q", want, got)
		}
	}
	if len(got) != 5 {
		t.Errorf("%d parts are underlined: %q", len(got), got)
	}

	const uri = "file:///new/ordergate.yaml"
	written := heading + "locks:\n  other:\n    kind: \n  settlement:\n    ki\nrules:\n  - name: settle\n    \n"
	s.open(uri, written)
	for _, tt := range []struct{ line, want string }{
		{"    ki", "lease"}, {"    ki", "on_unknown_outcome"}, {"    kind: ", "semaphore"}, {"    ", "settle"}, {"    ", "match"},
	} {
		if got := s.completions(uri, written, tt.line); !slices.Contains(got, tt.want) {
			t.Errorf("behind %q it offers %q, not %s", tt.line, got, tt.want)
		}
	}
}
