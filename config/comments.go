package config

import (
	"embed"
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"reflect"
	"strings"

	"github.com/ordergate/ordergate/internal/lazyregexp"
)

// declarationFiles are the files of this package that declare keys. The comments of their fields
// are the documentation of the keys, in the schema and in docs/reference.md.
//
//go:embed answer.go config.go dedup.go filter.go freshness.go log.go mode.go once.go reply.go require.go rule.go
var declarationFiles embed.FS

// comments are the comments of the fields of structs, as Type.Field, and of types, as Type.
type comments map[string]string

// readComments reads the comments of [declarationFiles].
func readComments() comments {
	all := make(comments)
	entries, _ := declarationFiles.ReadDir(".") // embedded files can be read
	for _, e := range entries {
		text, _ := declarationFiles.ReadFile(path.Join(".", e.Name()))
		file, err := parser.ParseFile(token.NewFileSet(), e.Name(), text, parser.ParseComments)
		if err != nil {
			panic(err) // the compiler has read it
		}
		for _, d := range file.Decls {
			if types, ok := d.(*ast.GenDecl); ok && types.Tok == token.TYPE {
				for _, spec := range types.Specs {
					all.add(types.Doc, spec.(*ast.TypeSpec))
				}
			}
		}
	}
	return all
}

func (c comments) add(doc *ast.CommentGroup, spec *ast.TypeSpec) {
	s, ok := spec.Type.(*ast.StructType)
	c[spec.Name.Name] = doc.Text()
	if !ok {
		return
	}
	for _, f := range s.Fields.List {
		text := f.Doc.Text()
		if f.Doc == nil {
			text = f.Comment.Text()
		}
		for _, name := range f.Names {
			c[spec.Name.Name+"."+name.Name] = text
		}
	}
}

// goName matches a name of Go in a comment. Some are words too: HTTP, Redis.
var goName = lazyregexp.New(`\b[A-Z][a-z]+[A-Za-z]*\b`)

// of returns the comment of a field on one line, with the keys of the struct in place of their
// fields. The first one is left out: "Kind is who may hold it" becomes "Who may hold it".
func (c comments) of(t reflect.Type, field string) string {
	keys := make(map[string]string)
	for i := range t.NumField() {
		if key := t.Field(i).Tag.Get("mapstructure"); key != "-" && key != "redis" {
			keys[t.Field(i).Name] = key
		}
	}
	text := strings.Join(strings.Fields(c[t.Name()+"."+field]), " ")
	if rest, ok := strings.CutPrefix(text, field+" "); ok {
		text = strings.TrimPrefix(strings.TrimPrefix(rest, "is "), "are ")
	}
	text = goName.Compiled().ReplaceAllStringFunc(text, func(name string) string {
		if key := keys[name]; key != "" {
			return "`" + key + "`"
		}
		return name
	})
	if text != "" {
		if !strings.HasPrefix(text, "gRPC") {
			text = strings.ToUpper(text[:1]) + text[1:]
		}
		text = strings.TrimSuffix(text, ".") + "."
	}
	return text
}
