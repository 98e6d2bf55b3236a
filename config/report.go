package config

import "fmt"

// Report returns problems that were found elsewhere as an [*InvalidError], each at the place
// in the file at path, or with the variable, that has what its Path names; nil if there are
// none. Of each problem, Path and Message count. The file is read once more.
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
	doc.violations = nil // it was checked before
	for _, p := range problems {
		doc.report(p.Path, oneLine(p.Message))
	}
	return invalid(doc.violations)
}
