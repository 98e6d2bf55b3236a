package config

import (
	"slices"
	"strconv"
)

// Log configures what ordergate logs besides its own log.
type Log struct {
	// Decisions has a line of JSON for each decision.
	Decisions *DecisionLog `mapstructure:"decisions" change:"restart"`
	// Metadata has Envoy get each decision as dynamic metadata.
	Metadata bool `mapstructure:"metadata" default:"true"`
}

// DecisionLog configures a line of JSON for each decision.
type DecisionLog struct {
	// To is stdout, stderr, or the absolute path of a file.
	To string `mapstructure:"to" form:"log" default:"stdout"`
	// Rules are those whose decisions are logged; empty: all.
	Rules []string `mapstructure:"rules"`
	// Verdicts are those that are logged; empty: all.
	Verdicts []string `mapstructure:"verdicts"`
	// Sample is the share of lookups that is logged.
	Sample float64 `mapstructure:"sample" default:"1" min:"0" max:"1"`
	// IDs is how orders are logged.
	IDs string `mapstructure:"ids" default:"plain" oneof:"plain hashed none"`

	// SecretFile has the key of hashed orders, at least 16 bytes, and the same on all instances.
	SecretFile string `mapstructure:"secret_file" only:"ids=hashed"`
	// SecretEnv is the environment variable that has it.
	SecretEnv string `mapstructure:"secret_env" not:"secret_file" only:"ids=hashed"`
	Secret    Secret `mapstructure:"-" secret:"secret" json:"-"`
}

// IDsHashed has IDs logged by a keyed hash.
const IDsHashed = "hashed"

// Streams to which a decision log may go.
const (
	LogStdout = "stdout"
	LogStderr = "stderr"
)

// Verdicts are those of requests, as headers, metrics and logs name them.
var Verdicts = []string{
	"none", "absent", "maybe", "unknown", "busy", "invalid", "ambiguous", "unavailable", "overloaded", "acquired", "unlocked", "lost",
	"replayed", "duplicate", "mismatch", "in_use", "not_ready",
}

func (v *validator) decisionLog(path string, l *DecisionLog) {
	for i, name := range l.Rules {
		if !slices.ContainsFunc(v.config.Rules, func(r Rule) bool { return r.Name == name }) {
			v.reject(path+".rules["+strconv.Itoa(i)+"]", "there is no rule %s", quote(name))
		}
	}
	for i, name := range l.Verdicts {
		v.choice(path+".verdicts["+strconv.Itoa(i)+"]", name, Verdicts...)
	}
	if l.IDs == IDsHashed && l.SecretFile+l.SecretEnv == "" {
		v.rejectMissing(path, []string{"secret_file", "secret_env"}, "ids: %s needs a key: give secret_file or secret_env", IDsHashed)
	}
}
