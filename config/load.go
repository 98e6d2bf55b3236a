package config

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/viper"
)

// maxFileSize bounds the configuration file, in bytes. Only bodies of replies make a file
// large. The limit leaves room for more than fifty of the largest.
const maxFileSize = 4 << 20

// Options controls [LoadEffective]. With the zero value, it reads no variables.
type Options struct {
	Getenv func(string) string // os.Getenv, except in tests; nil: there are no variables

	// Uses are the paths that the caller uses, such as "locks" or "listen.admin"; nil: all.
	// Violations at other paths are warnings. LoadEffective does not read the secrets and files of
	// other paths, so those fields are not usable.
	Uses []string
	// WithoutDSN allows the variables for data source names to be missing.
	WithoutDSN bool
	// CheckTable checks a source that is a table, after its DSN was read; nil: no check. Its
	// error must quote no part of the DSN.
	CheckTable func(Source) error
	// Environ are all variables, in the form of os.Environ. LoadEffective warns about those with
	// the prefix ORDERGATE_ and without a key; nil: no such warnings.
	Environ []string
}

// Warnings are the problems that do not prevent a load.
type Warnings struct {
	Unused    []Violation // at paths outside of [Options.Uses]
	Variables []Violation // variables without a key
	Bodies    []Violation // keys that read the body of a gRPC call
	Parts     []Violation // keys of locks with a {name} in them that is no part
	Advice    []Violation // what may be right, for whom checks a file: see lockTimes and failuresStored
}

// Load reads and validates the file at path. Through getenv (os.Getenv, except in tests) it
// reads the variables that override the file, and secrets.
//
// The name of a variable comes from the path of its key: ORDERGATE_REDIS_ADDRESSES for
// redis.addresses. Commas separate the items of a list. An empty variable counts as unset.
// Variables can set backend, front_controllers and the keys of the sections listen and redis.
// They can also set the keys of each filter, source and lock that the file defines.
//
// The error is an [*InvalidError] with all violations, or one line if Load cannot read the
// file. Load blocks on the file system only.
func Load(path string, getenv func(string) string) (*Config, error) {
	e, err := LoadEffective(path, Options{Getenv: getenv})
	if err != nil {
		return nil, err
	}
	return e.Config, nil
}

// LoadEffective is [Load] with options, and also returns warnings and the origins of all values.
func LoadEffective(path string, o Options) (*Effective, error) {
	data, err := readConfiguration(path)
	if err != nil {
		return nil, err
	}
	return effective(path, data, o)
}

func readConfiguration(path string) ([]byte, error) {
	data, err := readFile(path, maxFileSize)
	if err != nil {
		return nil, fmt.Errorf("reading configuration %s: %w", cmp.Or(path, `""`), err)
	}
	return data, nil
}

// readFile reads a file of at most limit bytes. Its errors do not name the file.
func readFile(path string, limit int) ([]byte, error) {
	// A pipe without a writer is empty. A reload that waited for one would let no other begin.
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, withoutPath(err)
	}
	defer f.Close() // an error after reading has no consequence
	data, err := io.ReadAll(io.LimitReader(f, int64(limit)+1))
	if err != nil {
		return nil, withoutPath(err)
	}
	if len(data) > limit {
		return nil, fmt.Errorf("the file is larger than %d bytes", limit)
	}
	return data, nil
}

// withoutPath removes the operation and the path from an error of package os. The caller's
// message has both.
func withoutPath(err error) error {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		return e.Err
	}
	return err
}

// Parse is [Load] for the content of a file. It uses the file's name in errors only.
func Parse(file string, data []byte, getenv func(string) string) (*Config, error) {
	e, err := effective(file, data, Options{Getenv: getenv})
	if err != nil {
		return nil, err
	}
	return e.Config, nil
}

func effective(file string, data []byte, o Options) (*Effective, error) {
	if o.Getenv == nil {
		o.Getenv = func(string) string { return "" }
	}
	doc := newDocument(file)
	tree := doc.read(data)
	if tree == nil {
		return nil, invalid(doc.violations)
	}
	overrides := doc.environment(tree, o.Getenv)
	c, err := decode(tree, overrides)
	if err != nil {
		return nil, fmt.Errorf("decoding configuration %s: %s", file, oneLine(err.Error()))
	}
	c.ensureDefaults(doc)
	c.validate(doc)
	c.readSecrets(doc, o)
	used, elsewhere := doc.divide(&o)
	if err := invalid(used); err != nil {
		return nil, err
	}
	warnings := Warnings{elsewhere, doc.unknownVariables(c, o.Environ), doc.warnings(c, doc.unreadBodies), doc.warnings(c, doc.literalKeys), doc.warnings(c, doc.lockTimes, doc.failuresStored)}
	return &Effective{Config: c, Warnings: warnings, document: doc, getenv: o.Getenv}, nil
}

// decode merges the overrides into the values of the file and returns the result as a
// [Config]. Rules have no variables, and viper would copy them.
func decode(tree, overrides map[string]any) (*Config, error) {
	v := viper.New()
	sections := maps.Clone(tree)
	delete(sections, "rules")
	for _, layer := range []map[string]any{sections, overrides} {
		if err := v.MergeConfigMap(layer); err != nil {
			return nil, err
		}
	}
	c := &Config{}
	for _, k := range keysOf(reflect.TypeFor[Config]()) {
		// Of each section: what viper has of all is by flat keys, without a filter written as {}.
		if value := cmp.Or(v.Get(k.key), tree[k.key]); value != nil {
			assign(k.in(reflect.ValueOf(c).Elem()), reflect.ValueOf(value))
		}
	}
	return c, nil
}

// assign sets a field to a value of the tree, whose scalars have the types of their fields.
func assign(to, from reflect.Value) {
	if from.Kind() == reflect.Interface {
		from = from.Elem()
	}
	if to.Kind() == reflect.Pointer {
		to.Set(reflect.New(to.Type().Elem()))
		to = to.Elem()
	}
	switch {
	case to.Kind() == reflect.Struct && from.Kind() == reflect.Map:
		values := from.Interface().(map[string]any)
		for _, k := range keysOf(to.Type()) {
			if value, has := values[k.key]; has {
				assign(k.in(to), reflect.ValueOf(value))
			}
		}
	case to.Kind() == reflect.Map:
		to.Set(reflect.MakeMapWithSize(to.Type(), from.Len()))
		for name, value := range from.Seq2() {
			entry := reflect.New(to.Type().Elem()).Elem()
			assign(entry, value)
			to.SetMapIndex(name, entry)
		}
	case to.Kind() == reflect.Slice:
		to.Set(reflect.MakeSlice(to.Type(), from.Len(), from.Len()))
		for i := range from.Len() {
			assign(to.Index(i), from.Index(i))
		}
	case from.Type() == to.Type(): // unlike Convert, this copies nothing
		to.Set(from)
	default:
		to.Set(from.Convert(to.Type()))
	}
}

// uses reports whether the caller uses a path, or a path that contains it or lies inside it.
func (o *Options) uses(path string) bool {
	return o.Uses == nil || slices.ContainsFunc(o.Uses, func(used string) bool { return within(path, used) || within(used, path) })
}

// divide separates the violations of sections in use from the others. A violation outside of
// every section counts as in use: it may be a misspelt section.
func (d *document) divide(o *Options) (used, elsewhere []Violation) {
	for _, v := range d.violations {
		path := v.Path
		if v.File == environmentFile {
			path = d.pathOf(v.Path)
		}
		section, _, _ := strings.Cut(strings.Split(path, ".")[0], "[")
		if keyOf(reflect.TypeFor[Config](), section) == nil || o.uses(path) {
			used = append(used, v)
		} else {
			elsewhere = append(elsewhere, v)
		}
	}
	return used, elsewhere
}

// pathOf returns the path of a variable's key. The name may continue with a path inside the
// variable's value, such as an index.
func (d *document) pathOf(name string) string {
	variable, _, _ := strings.Cut(name, ".")
	variable, _, _ = strings.Cut(variable, "[")
	return d.variables[variable]
}
