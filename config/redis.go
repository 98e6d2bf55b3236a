package config

import (
	"fmt"
	"io"
	"log/slog"
)

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
	r.Password = readSecret(doc, getenv, "redis.password", "password", r.PasswordFile, r.PasswordEnv)
	r.SentinelPassword = readSecret(doc, getenv, "redis.sentinel_password", "password", r.SentinelPasswordFile, r.SentinelPasswordEnv)
	if r.TLS != nil {
		checkFiles(r.TLS.CA, r.TLS.Cert, r.TLS.Key, func(key, message string) { doc.report("redis.tls."+key, message) })
	}
}
