package runbook

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const root = "../.."

// TestEveryLine walks the calls that log at WARN or above, or at a level that they compute. Each has
// a text for its reader, which begins with a verb or "nothing", and a section of the documentation.
func TestEveryLine(t *testing.T) {
	sections, used := declared(t), make(map[string]bool)
	lines := 0
	for _, file := range sources(t) {
		fset := token.NewFileSet()
		f, err := parser.ParseFile(fset, file, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(f, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			if section, text, ok := advice(call); ok {
				used[section] = true
				if !regexp.MustCompile(`^[a-z]`).MatchString(text) || strings.HasSuffix(text, ".") {
					t.Errorf("%s: %q is no clause that names what to do", fset.Position(call.Pos()), text)
				}
			}
			if logs(call) {
				lines++
				if !advised(call) {
					t.Errorf("%s: a line of the log without runbook.Section.Do", fset.Position(call.Pos()))
				}
			}
			return true
		})
	}
	if lines < 120 {
		t.Errorf("found only %d lines", lines)
	}
	for name := range sections {
		if !used[name] {
			t.Errorf("no line uses runbook.%s", name)
		}
	}
}

// TestSections looks for each section in the documentation.
func TestSections(t *testing.T) {
	for name, section := range declared(t) {
		page, anchor, _ := strings.Cut(section, "#")
		text, err := os.ReadFile(filepath.Join(root, "docs", page))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if !slices.Contains(anchors(string(text)), anchor) {
			t.Errorf("%s: docs/%s has no section #%s", name, page, anchor)
		}
	}
}

// anchors returns the anchors of a page's headings, as GitHub makes them.
func anchors(page string) (all []string) {
	for _, m := range regexp.MustCompile(`(?m)^##+ (.*)$`).FindAllStringSubmatch(page, -1) {
		name := regexp.MustCompile(`[^a-z0-9 _-]`).ReplaceAllString(strings.ToLower(m[1]), "")
		all = append(all, strings.ReplaceAll(name, " ", "-"))
	}
	return all
}

// declared returns the constants of runbook.go.
func declared(t *testing.T) map[string]string {
	f, err := parser.ParseFile(token.NewFileSet(), "runbook.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	all := make(map[string]string)
	ast.Inspect(f, func(n ast.Node) bool {
		if v, ok := n.(*ast.ValueSpec); ok {
			all[v.Names[0].Name], _ = strconv.Unquote(v.Values[0].(*ast.BasicLit).Value)
		}
		return true
	})
	return all
}

// sources lists the files of the product.
func sources(t *testing.T) (files []string) {
	for _, dir := range []string{"cmd", "config", "extauthz", "filter", "internal", "lockmw"} {
		err := filepath.WalkDir(filepath.Join(root, dir), func(path string, d fs.DirEntry, err error) error {
			if err == nil && strings.HasSuffix(path, ".go") && !strings.HasSuffix(path, "_test.go") {
				files = append(files, path)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return files
}

// logs reports whether a call may log at WARN or above. (An error's own method Error has no
// arguments.)
func logs(call *ast.CallExpr) bool {
	f, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || len(call.Args) == 0 {
		return false
	}
	of, _ := f.X.(*ast.Ident)
	switch f.Sel.Name {
	case "Warn", "Error", "WarnContext", "ErrorContext":
		return of == nil || of.Name != "http"
	case "Log", "LogAttrs":
		return len(call.Args) > 2
	case "New":
		return of != nil && of.Name == "recurring"
	case "NewLogLogger":
		level, ok := call.Args[1].(*ast.SelectorExpr)
		return !ok || level.Sel.Name != "LevelDebug" && level.Sel.Name != "LevelInfo"
	}
	return false
}

// advice returns the section and the text of a call of Do.
func advice(call *ast.CallExpr) (section, text string, ok bool) {
	do, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || do.Sel.Name != "Do" || len(call.Args) != 1 {
		return "", "", false
	}
	of, ok := do.X.(*ast.SelectorExpr)
	if !ok {
		return "", "", false
	}
	if pkg, ok := of.X.(*ast.Ident); !ok || pkg.Name != "runbook" {
		return "", "", false
	}
	text = "the text of a constant"
	if lit, ok := call.Args[0].(*ast.BasicLit); ok {
		text, _ = strconv.Unquote(lit.Value)
	}
	return of.Sel.Name, text, true
}

// advised reports whether the arguments of a call have a call of Do, or a variable todo.
func advised(call *ast.CallExpr) (found bool) {
	for _, arg := range call.Args {
		ast.Inspect(arg, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.CallExpr:
				_, _, ok := advice(n)
				found = found || ok
			case *ast.Ident:
				found = found || n.Name == "todo"
			}
			return true
		})
	}
	return found
}
