package config

import (
	"fmt"
	"io"
	"log/slog"
)

// redacted has the fields of [Redis] and none of its methods.
type redacted Redis

// String returns the settings without the passwords.
func (r Redis) String() string {
	for _, password := range []*string{&r.Password, &r.SentinelPassword} {
		if *password != "" {
			*password = "(hidden)"
		}
	}
	return fmt.Sprintf("%+v", redacted(r))
}

// Format writes [Redis.String] for every verb of package fmt, including %#v and %d.
func (r Redis) Format(state fmt.State, _ rune) {
	_, _ = io.WriteString(state, r.String()) // a fmt.State cannot report errors
}

// LogValue returns [Redis.String], so logs contain no passwords.
func (r Redis) LogValue() slog.Value { return slog.StringValue(r.String()) }

// RereadPassword returns a function that reads the password again from its file, for a new
// connection. While the file cannot be read, it returns the last password. The function is safe for
// concurrent use; nil: the password has no file.
func (r *Redis) RereadPassword() func() string { return rereadSecret(r.PasswordFile, r.Password) }

// readFiles reads the passwords from their files or variables, and checks the files of TLS. It
// does nothing if r is nil.
func (r *Redis) readFiles(doc *document, getenv func(string) string) {
	if r == nil {
		return
	}
	r.Password = readSecret(doc, getenv, "redis.password", "password", r.PasswordFile, r.PasswordEnv)
	r.SentinelPassword = readSecret(doc, getenv, "redis.sentinel_password", "password", r.SentinelPasswordFile, r.SentinelPasswordEnv)
	if r.TLS != nil {
		checkFiles(r.TLS.CA, r.TLS.Cert, r.TLS.Key, func(key, message string) { doc.report("redis.tls."+key, message) })
	}
}
