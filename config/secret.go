package config

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
)

const (
	// maxSecret bounds a file with a secret, in bytes.
	maxSecret = 64 << 10
	// minSecret is the least size of a token and of a filter's secret, in bytes. It is the
	// size of the key of a filter's hash, and makes a token hard to guess.
	minSecret = 16
)

// Secret is a text that package fmt, logs and JSON never show.
type Secret string

func (s Secret) String() string {
	if s == "" {
		return ""
	}
	return "(hidden)"
}

// Format writes [Secret.String] for every verb of package fmt, including %#v and %d.
func (s Secret) Format(state fmt.State, _ rune) {
	_, _ = io.WriteString(state, s.String()) // a fmt.State cannot report errors
}

// LogValue returns [Secret.String], so logs contain no secrets.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }

// secretOf is a field for a secret, which the file has only by the name of a file or a variable.
type secretOf struct {
	field            reflect.Value
	at, fileAt       string // the path of the key without _file and _env, and with _file
	what             string
	file, env        string
	isShort, isForIt bool // it may be shorter than minSecret; the key is for this mapping
}

// secretWords are what some secrets are called, by their keys.
var secretWords = map[string]string{"dsn": "data source name", "sentinel_password": "password"}

// eachSecret calls visit for the fields with secrets inside a struct, and then done, unless it is nil,
// for the struct. It stores changed entries of maps.
func (d *document) eachSecret(path string, v reflect.Value, visit func(secretOf), done func(path string, v reflect.Value)) {
	for _, f := range declarationsOf(v.Type()).secrets {
		key := f.Tag.Get("secret")
		of := keyOf(v.Type(), key+"_file")
		visit(secretOf{
			v.FieldByIndex(f.Index), join(path, key), join(path, of.key), cmp.Or(secretWords[key], key),
			v.FieldByName(f.Name + "File").String(), v.FieldByName(f.Name + "Env").String(),
			key != "token" && key != "secret", d.applies(path, v, of),
		})
	}
	noRules := func(k *declaration, _ reflect.Value) bool { return k.key != "rules" } // they have none
	d.eachMapping(path, v, noRules, true, func(path string, inner reflect.Value) { d.eachSecret(path, inner, visit, done) })
	if done != nil {
		done(path, v)
	}
}

// readSecrets reads all secrets from their files or variables, and checks the files of TLS and the
// tables. It skips paths outside of o.Uses.
func (c *Config) readSecrets(doc *document, o Options) {
	doc.eachSecret("", reflect.ValueOf(c).Elem(), func(s secretOf) {
		missing := s.file == "" && s.env != "" && o.Getenv(s.env) == ""
		if !o.uses(s.fileAt) && !o.uses(s.at+"_env") || !s.isForIt || o.WithoutDSN && missing && strings.HasSuffix(s.at, ".dsn") {
			return
		}
		secret := readSecret(doc, o.Getenv, s.at, s.what, s.file, s.env)
		if secret != "" && len(secret) < minSecret && !s.isShort {
			key := s.fileAt
			if s.env != "" {
				key = s.at + "_env"
			}
			doc.report(key, fmt.Sprintf("the %s there is too short: give at least %d bytes", s.what, minSecret))
		}
		s.field.SetString(secret)
	}, func(path string, v reflect.Value) {
		if !o.uses(path) {
			return
		}
		report := func(key, message string) { doc.report(join(path, key), message) }
		switch of := v.Interface().(type) {
		case TLS:
			checkFiles(of.CA, of.Cert, of.Key, report)
		case ListenTLS:
			checkFiles(of.CA, of.Cert, of.Key, report)
		case Source:
			of.checkTable(doc, path, o)
		}
	})
}

// checkTable calls o.CheckTable for a table, if its DSN was read and it has no violation yet.
func (s Source) checkTable(doc *document, path string, o Options) {
	if s.DSN == "" || o.CheckTable == nil || slices.ContainsFunc(doc.violations, func(v Violation) bool { return within(v.Path, path) }) {
		return
	}
	if err := o.CheckTable(s); err != nil {
		key := ".dsn_env"
		if s.DSNFile != "" {
			key = ".dsn_file"
		}
		doc.report(path+key, oneLine(err.Error()))
	}
}

// readSecret returns the content of a file or a variable. Its messages never quote the name of
// the file or variable: some users write the secret itself there.
func readSecret(doc *document, getenv func(string) string, path, what, file, env string) string {
	switch {
	case file != "" && env != "":
	case env != "" && variableName.MatchString(env):
		secret := getenv(env)
		if secret == "" {
			doc.report(path+"_env", "the variable of this name is not set or is empty: put the "+what+" there")
		}
		return secret
	case file != "":
		secret, err := readSecretFile(file)
		if err != nil {
			doc.report(path+"_file", "reading the "+what+": "+oneLine(err.Error()))
		}
		return secret
	}
	return ""
}

func readSecretFile(path string) (string, error) {
	data, err := readRegularFile(path, maxSecret)
	if err != nil {
		return "", err
	}
	secret := strings.TrimSuffix(strings.TrimSuffix(string(data), "\n"), "\r")
	if secret == "" {
		return "", errors.New("the file is empty")
	}
	return secret, nil
}

// rereadSecret returns a function that reads a secret again from its file. While the file cannot be
// read, it returns what it read last, at first the given secret. The function is safe for concurrent
// use. It is nil for a secret without a file.
func rereadSecret(file, secret string) func() string {
	if file == "" {
		return nil
	}
	var last atomic.Value
	last.Store(secret)
	return func() string {
		if now, err := readSecretFile(file); err == nil {
			last.Store(now)
		}
		return last.Load().(string)
	}
}

// readRegularFile is readFile for regular files. It rejects pipes, since opening a pipe waits
// for a writer.
func readRegularFile(path string, limit int) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, withoutPath(err)
	}
	if !info.Mode().IsRegular() {
		return nil, errors.New("not a regular file")
	}
	return readFile(path, limit)
}

// RereadPassword returns a function that reads the password again from its file, for a new
// connection. While the file cannot be read, it returns the last password. The function is safe for
// concurrent use; nil: the password has no file.
func (r *Redis) RereadPassword() func() string {
	return rereadSecret(r.PasswordFile, string(r.Password))
}

// Format writes the settings for every verb of package fmt. Without it, %s of a struct with a pointer
// to them would write the passwords: fmt then asks no [Secret] how to print it.
func (r Redis) Format(state fmt.State, _ rune) {
	type plain Redis
	fmt.Fprintf(state, "%+v", plain(r))
}

// Format does the same for the secret of the log.
func (l DecisionLog) Format(state fmt.State, _ rune) {
	type plain DecisionLog
	fmt.Fprintf(state, "%+v", plain(l))
}
