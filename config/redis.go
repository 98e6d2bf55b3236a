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

// String returns the settings with the password left out.
func (r Redis) String() string {
	if r.Password != "" {
		r.Password = "(hidden)"
	}
	return fmt.Sprintf("%+v", redacted(r))
}

// Format keeps the password out of every verb of package fmt, %#v and %d too.
func (r Redis) Format(state fmt.State, _ rune) {
	_, _ = io.WriteString(state, r.String()) // a fmt.State has nowhere to report an error to
}

// LogValue keeps the password out of logs.
func (r Redis) LogValue() slog.Value { return slog.StringValue(r.String()) }

// readPassword sets the password from where r says that it is. No message
// repeats what is written there: some will have put the password itself.
func (r *Redis) readPassword(doc *document, getenv func(string) string) {
	switch {
	case r == nil, r.PasswordFile != "" && r.PasswordEnv != "":
	case r.PasswordEnv != "" && variableName.MatchString(r.PasswordEnv):
		if r.Password = getenv(r.PasswordEnv); r.Password == "" {
			doc.report("redis.password_env", "the variable of this name is not set or is empty: put the password there")
		}
	case r.PasswordFile != "":
		var err error
		if r.Password, err = readPasswordFile(r.PasswordFile); err != nil {
			doc.report("redis.password_file", "reading the password: "+oneLine(err.Error()))
		}
	}
}

func readPasswordFile(path string) (string, error) {
	// Looked at first: opening a pipe waits for whoever writes to it.
	info, err := os.Stat(path)
	if err != nil {
		return "", withoutPath(err)
	}
	if !info.Mode().IsRegular() {
		return "", errors.New("not a regular file")
	}
	f, err := os.Open(path)
	if err != nil {
		return "", withoutPath(err)
	}
	defer f.Close() // only read from: nothing to lose
	data, err := io.ReadAll(io.LimitReader(f, maxPassword+1))
	if err != nil {
		return "", withoutPath(err)
	}
	password := strings.TrimSuffix(strings.TrimSuffix(string(data), "\n"), "\r")
	switch {
	case password == "":
		return "", errors.New("the file is empty")
	case len(data) > maxPassword:
		return "", fmt.Errorf("the file is larger than %d bytes", maxPassword)
	}
	return password, nil
}
