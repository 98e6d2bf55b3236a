package config

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
)

// maxPassword bounds a password file, in bytes.
const maxPassword = 64 << 10

// redacted has the fields of Redis and none of its methods.
type redacted Redis

// String returns the settings with the passwords left out.
func (r Redis) String() string {
	for _, password := range []*string{&r.Password, &r.SentinelPassword} {
		if *password != "" {
			*password = "(hidden)"
		}
	}
	return fmt.Sprintf("%+v", redacted(r))
}

// Format keeps the passwords out of every verb of package fmt, %#v and %d too.
func (r Redis) Format(state fmt.State, _ rune) {
	_, _ = io.WriteString(state, r.String()) // a fmt.State has nowhere to report an error to
}

// LogValue keeps the passwords out of logs.
func (r Redis) LogValue() slog.Value { return slog.StringValue(r.String()) }

// readFiles sets the passwords from where r says that they are, and looks at the
// files of TLS.
func (r *Redis) readFiles(doc *document, getenv func(string) string) {
	if r == nil {
		return
	}
	r.Password = readPassword(doc, getenv, "redis.password", r.PasswordFile, r.PasswordEnv)
	r.SentinelPassword = readPassword(doc, getenv, "redis.sentinel_password", r.SentinelPasswordFile, r.SentinelPasswordEnv)
	if r.TLS != nil {
		r.TLS.check(func(key, message string) { doc.report("redis.tls."+key, message) })
	}
}

// readPassword returns the password in a file or a variable. No message repeats
// what is written there: some will have put the password itself.
func readPassword(doc *document, getenv func(string) string, path, file, env string) string {
	switch {
	case file != "" && env != "":
	case env != "" && variableName.MatchString(env):
		password := getenv(env)
		if password == "" {
			doc.report(path+"_env", "the variable of this name is not set or is empty: put the password there")
		}
		return password
	case file != "":
		password, err := readPasswordFile(file)
		if err != nil {
			doc.report(path+"_file", "reading the password: "+oneLine(err.Error()))
		}
		return password
	}
	return ""
}

func readPasswordFile(path string) (string, error) {
	data, err := readSmallFile(path, maxPassword)
	if err != nil {
		return "", err
	}
	password := strings.TrimSuffix(strings.TrimSuffix(string(data), "\n"), "\r")
	if password == "" {
		return "", errors.New("the file is empty")
	}
	return password, nil
}

// readSmallFile reads a file of at most limit bytes. Its errors do not name it.
func readSmallFile(path string, limit int) ([]byte, error) {
	// Looked at first: opening a pipe waits for whoever writes to it.
	info, err := os.Stat(path)
	if err != nil {
		return nil, withoutPath(err)
	}
	if !info.Mode().IsRegular() {
		return nil, errors.New("not a regular file")
	}
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
