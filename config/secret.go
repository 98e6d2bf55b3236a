package config

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"
)

const (
	// maxSecret bounds a file with a secret, in bytes.
	maxSecret = 64 << 10
	// minSecret is the size of the key of a filter, in bytes, and more than anybody
	// guesses of a token.
	minSecret = 16
)

// Secret is a text that no verb of package fmt, no log and no JSON shows.
type Secret string

func (s Secret) String() string {
	if s == "" {
		return ""
	}
	return "(hidden)"
}

// Format keeps it out of every verb, %#v and %d too.
func (s Secret) Format(state fmt.State, _ rune) {
	_, _ = io.WriteString(state, s.String()) // a fmt.State has nowhere to report an error to
}

// LogValue keeps it out of logs.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }

// readSecrets sets the token, and the secrets of the filters and sources, from where
// it says that they are.
func (c *Config) readSecrets(doc *document, o Options) {
	if o.uses("listen.token_file") || o.uses("listen.token_env") {
		c.Listen.Token = readLongSecret(doc, o.Getenv, "listen.token", "token", c.Listen.TokenFile, c.Listen.TokenEnv)
	}
	for _, name := range sortedKeys(c.Filters) {
		if f, path := c.Filters[name], join("filters", name); o.uses(path) {
			f.Secret = readLongSecret(doc, o.Getenv, path+".secret", "secret", f.SecretFile, f.SecretEnv)
			c.Filters[name] = f
		}
	}
	for _, name := range sortedKeys(c.Sources) {
		s, path := c.Sources[name], join("sources", name)
		if missing := s.DSNFile == "" && s.DSNEnv != "" && o.Getenv(s.DSNEnv) == ""; !o.uses(path) || o.WithoutDSN && missing {
			continue
		}
		if s.Live() { // others have been told to remove it
			s.DSN = Secret(readSecret(doc, o.Getenv, path+".dsn", "data source name", s.DSNFile, s.DSNEnv))
			c.Sources[name] = s
			s.checkTable(doc, path, o)
		}
	}
}

// checkTable has a table looked at of which everything is known.
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

// readLongSecret is readSecret for what must not be guessed.
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

// readSecret returns what is in a file or a variable. No message repeats what is
// written there: some will have put the secret itself.
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

// readRegularFile is readFile for files that must not be pipes: opening a pipe waits for its
// writer.
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
