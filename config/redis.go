package config

import "fmt"

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
