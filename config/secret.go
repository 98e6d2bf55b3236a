package config

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
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

// readSecrets reads the token, and the secrets of filters, locks and sources, from their files or
// variables. It skips paths outside of o.Uses.
func (c *Config) readSecrets(doc *document, o Options) {
	if o.uses("listen.token_file") || o.uses("listen.token_env") {
		c.Listen.Token = readLongSecret(doc, o.Getenv, "listen.token", "token", c.Listen.TokenFile, c.Listen.TokenEnv)
	}
	if l, path := c.Log.Decisions, "log.decisions"; l != nil && o.uses(path) {
		l.Secret = readLongSecret(doc, o.Getenv, path+".secret", "secret", l.SecretFile, l.SecretEnv)
	}
	for _, name := range sortedKeys(c.Filters) {
		if f, path := c.Filters[name], join("filters", name); o.uses(path) {
			f.Secret = readLongSecret(doc, o.Getenv, path+".secret", "secret", f.SecretFile, f.SecretEnv)
			c.Filters[name] = f
		}
	}
	for _, name := range sortedKeys(c.Locks) {
		if l, path := c.Locks[name], join("locks", name); o.uses(path) {
			l.Secret = readLongSecret(doc, o.Getenv, path+".secret", "secret", l.SecretFile, l.SecretEnv)
			c.Locks[name] = l
		}
	}
	for _, name := range sortedKeys(c.Sources) {
		s, path := c.Sources[name], join("sources", name)
		if missing := s.DSNFile == "" && s.DSNEnv != "" && o.Getenv(s.DSNEnv) == ""; !o.uses(path) || o.WithoutDSN && missing {
			continue
		}
		if s.Live() { // validate rejects a DSN of other kinds
			s.DSN = Secret(readSecret(doc, o.Getenv, path+".dsn", "data source name", s.DSNFile, s.DSNEnv))
			c.Sources[name] = s
			s.checkTable(doc, path, o)
		}
		if s.Feed() {
			s.Password = Secret(readSecret(doc, o.Getenv, path+".password", "password", s.PasswordFile, s.PasswordEnv))
			c.Sources[name] = s
			if s.TLS != nil {
				checkFiles(s.TLS.CA, s.TLS.Cert, s.TLS.Key, func(key, message string) { doc.report(path+".tls."+key, message) })
			}
		}
	}
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

// readLongSecret is readSecret for secrets of at least minSecret bytes.
func readLongSecret(doc *document, getenv func(string) string, path, what, file, env string) Secret {
	secret := readSecret(doc, getenv, path, what, file, env)
	if secret != "" && len(secret) < minSecret {
		key := path + "_file"
		if env != "" {
			key = path + "_env"
		}
		doc.report(key, fmt.Sprintf("the %s there is too short: give at least %d bytes", what, minSecret))
	}
	return Secret(secret)
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
