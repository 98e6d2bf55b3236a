package config

import "fmt"

// Report returns problems that a caller found after [Load] as an [*InvalidError]; nil if there
// are none. It adds the line in the file at path, or the variable, that set the value at the
// problem's Path. Report reads the file again. It uses only Path and Message of each problem.
func Report(path string, getenv func(string) string, problems []Violation) error {
	if len(problems) == 0 {
		return nil
	}
	data, err := readFile(path, maxFileSize)
	if err != nil {
		return fmt.Errorf("reading configuration %s: %w", path, err)
	}
	doc := newDocument(path)
	if tree := doc.read(data); tree != nil {
		doc.environment(tree, getenv)
	}
	doc.violations = nil // Load reported these
	for _, p := range problems {
		doc.report(p.Path, oneLine(p.Message))
	}
	return invalid(doc.violations)
}
