package config

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/go-viper/mapstructure/v2"
	"github.com/spf13/viper"
)

// maxFileSize bounds the configuration file, in bytes. Bodies of replies are
// what makes a file large: this leaves room for more than fifty of the largest.
const maxFileSize = 4 << 20

// Options say how a configuration is read. The zero value has no variables.
type Options struct {
	Getenv func(string) string // os.Getenv, but in tests; nil: there are no variables

	// Uses are the paths of what the caller is going to use, such as "locks" or
	// "listen.admin"; nil: all. What is wrong elsewhere is no error then, and secrets and
	// files elsewhere are not read: those fields are not usable.
	Uses []string
	// WithoutDSN lets the variables be missing that hold the names of data sources.
	WithoutDSN bool
	// CheckTable says what is wrong with a source that is a table, whose DSN has been read;
	// nil: nothing is. The error quotes nothing of the DSN.
	CheckTable func(Source) error
	// Environ are all variables, as of os.Environ, of which those are looked for that stand
	// for no key; nil: they are not.
	Environ []string
}

// Warnings is what is wrong and no error.
type Warnings struct {
	Unused    []Violation // outside of [Options.Uses]
	Variables []Violation // that stand for no key
}

// Load reads the file at path, and from getenv (os.Getenv, but in tests) the
// variables that override it and the Redis passwords. A variable is named after
// the path of a key, ORDERGATE_REDIS_ADDRESSES for redis.addresses; a list is
// separated by commas; an empty variable counts as none. The backend, its front
// controllers and the keys of the sections listen and redis can be set this way, and
// those of every filter, source and lock that the file defines.
//
// The error is an [*InvalidError] with everything that is wrong, or one line
// when the file cannot be read. Load blocks on the file system only.
func Load(path string, getenv func(string) string) (*Config, error) {
	c, _, err := LoadWith(path, Options{Getenv: getenv})
	return c, err
}

// LoadWith is [Load] with options.
func LoadWith(path string, o Options) (*Config, Warnings, error) {
	data, err := readFile(path, maxFileSize)
	if err != nil {
		return nil, Warnings{}, fmt.Errorf("reading configuration %s: %w", path, err)
	}
	return parse(path, data, o)
}

// readFile reads a file of at most limit bytes. Its errors do not name the file.
func readFile(path string, limit int) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, withoutPath(err)
	}
	defer f.Close() // only read from: nothing to lose
	data, err := io.ReadAll(io.LimitReader(f, int64(limit)+1))
	if err != nil {
		return nil, withoutPath(err)
	}
	if len(data) > limit {
		return nil, fmt.Errorf("the file is larger than %d bytes", limit)
	}
	return data, nil
}

// withoutPath drops the operation and the path from an error of package os,
// since the caller names them in its own words.
func withoutPath(err error) error {
	var pathErr *fs.PathError
	if errors.As(err, &pathErr) {
		return pathErr.Err
	}
	return err
}

// Parse is [Load] for a file that has been read. The file's name is used in
// violations only.
func Parse(file string, data []byte, getenv func(string) string) (*Config, error) {
	c, _, err := parse(file, data, Options{Getenv: getenv})
	return c, err
}

func parse(file string, data []byte, o Options) (*Config, Warnings, error) {
	if o.Getenv == nil {
		o.Getenv = func(string) string { return "" }
	}
	doc := newDocument(file)
	tree := doc.read(data)
	if tree == nil {
		return nil, Warnings{}, invalid(doc.violations)
	}
	overrides := doc.environment(tree, o.Getenv)
	c, err := decode(tree, overrides)
	if err != nil {
		return nil, Warnings{}, fmt.Errorf("decoding configuration %s: %s", file, oneLine(err.Error()))
	}
	c.ensureDefaults(doc)
	c.validate(doc)
	if o.uses("redis") {
		c.Redis.readFiles(doc, o.Getenv)
	}
	if t := c.Listen.TLS; t != nil && o.uses("listen.tls") {
		checkFiles(t.CA, t.Cert, t.Key, func(key, message string) { doc.report("listen.tls."+key, message) })
	}
	c.readSecrets(doc, o)
	used, elsewhere := doc.divide(&o)
	if err := invalid(used); err != nil {
		return nil, Warnings{}, err
	}
	return c, Warnings{elsewhere, doc.unknownVariables(c, o.Environ)}, nil
}

// decode lays the overrides over the file and returns the result as a Config.
// Both hold values of the fields' own types, so nothing is converted here, and
// a key without a field would be a mistake of ours.
func decode(tree, overrides map[string]any) (*Config, error) {
	v := viper.New()
	for _, layer := range []map[string]any{tree, overrides} {
		if err := v.MergeConfigMap(layer); err != nil {
			return nil, err
		}
	}
	strict := func(c *mapstructure.DecoderConfig) {
		c.WeaklyTypedInput = false
		c.DecodeHook = nil
		c.ErrorUnused = true
	}
	c := &Config{}
	// Section by section: Unmarshal works on flat keys, and a filter that is
	// written as {} has none.
	for section, into := range map[string]any{
		"backend": &c.Backend, "front_controllers": &c.FrontControllers, "listen": &c.Listen, "redis": &c.Redis, "filters": &c.Filters,
		"sources": &c.Sources, "locks": &c.Locks, "rules": &c.Rules,
	} {
		if err := v.UnmarshalKey(section, into, strict); err != nil {
			return nil, err
		}
	}
	return c, nil
}
