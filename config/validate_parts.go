package config

import (
	"strconv"
	"strings"
	"time"
	"unicode"
)

const (
	maxCapacity = 100_000_000_000 // 10^11, a terabit of bits at ten an ID: past what one process holds
	maxLockKey  = 256             // bytes, of a template: a key is sent with every command
)

func (v *validator) filter(path string, f Filter) {
	v.choice(path+".kind", f.Kind, FilterLocal)
	between(v, path+".capacity", f.Capacity, 1, maxCapacity)
	between(v, path+".false_positive_rate", f.FalsePositiveRate, 1e-9, 0.5)
	v.choice(path+".freshness", f.Freshness, FreshnessBarrier, FreshnessNone)
	seen := make(map[string]bool)
	for i, name := range f.Sources {
		at := path + ".sources[" + strconv.Itoa(i) + "]"
		if seen[name] {
			v.refute(at, "%s is given twice: name a source once", quote(name))
		} else {
			reference(v, at, "sources", name, v.config.Sources)
		}
		seen[name] = true
	}
}

func (v *validator) source(path string, s Source) {
	if !v.required(path, "kind", s.Kind, "the kind of source, "+SourceCSV) {
		return
	}
	v.choice(path+".kind", s.Kind, SourceCSV)
	if s.Kind == SourceCSV {
		v.required(path, "path", s.Path, "the path of a file with one ID a line")
	}
}

func (v *validator) lock(path string, l Lock) {
	v.choice(path+".kind", l.Kind, LockExclusive)
	v.choice(path+".format", l.Format, FormatRedisson)
	v.lockKey(path+".key", l.Key)
	between(v, path+".lease", l.Lease, time.Second, time.Hour)
	v.wait(path+".wait", l.Wait)
	between(v, path+".max_waiters_per_key", l.MaxWaitersPerKey, 0, 100_000)
	if hold := path + ".on_unknown_outcome.hold"; v.given(hold) || l.OnUnknownOutcome.Hold != l.Lease {
		// By default it is the lease, which has been looked at.
		between(v, hold, l.OnUnknownOutcome.Hold, time.Second, 24*time.Hour)
	}
}

func (v *validator) lockKey(path, key string) {
	switch n := strings.Count(key, "{id}"); {
	case n != 1:
		v.refute(path, "%s has {id} in it %d times: it has to be there once, as in order:lock:{id}", quote(key), n)
	case len(key) > maxLockKey:
		v.refute(path, "is %d bytes long: at most %d are allowed", len(key), maxLockKey)
	case strings.ContainsFunc(key, func(r rune) bool { return r == ' ' || r == unicode.ReplacementChar || !unicode.IsPrint(r) }):
		v.refute(path, "%s has a space or a character in it that cannot be printed: leave it out", quote(key))
	}
}

// lockKeysDiffer refuses locks with one key: whoever holds one of them would
// hold the others.
func (v *validator) lockKeysDiffer(locks map[string]Lock) {
	owner := make(map[string]string)
	for _, name := range sortedKeys(locks) {
		path, key := join("locks", name), locks[name].Key
		if key == "" || v.unusable(path+".key") {
			continue
		}
		if first, taken := owner[key]; taken {
			v.refute(path+".key", "%s is also the key of %s: give each lock a key of its own", quote(key), first)
			continue
		}
		owner[key] = v.shown(path)
	}
}

func (v *validator) wait(path string, w Wait) {
	if w.UpTo == 0 && !v.given(path+".up_to") {
		between(v, path+".tries", w.Tries, 1, 1000)
		between(v, path+".every", w.Every, time.Millisecond, time.Minute)
		return
	}
	between(v, path+".up_to", w.UpTo, time.Millisecond, 10*time.Minute)
	if w.Tries != 0 || v.given(path+".tries") {
		v.refute(path+".tries", "excludes up_to: give either tries and every, or up_to")
	}
	if w.Every != 0 || v.given(path+".every") {
		v.refute(path+".every", "excludes up_to: give either tries and every, or up_to")
	}
}

func (v *validator) redis(r *Redis) {
	const path = "redis"
	v.choice(path+".mode", r.Mode, RedisSingle, RedisEmbedded)
	switch r.Mode {
	case RedisSingle:
		if len(r.Addresses) != 1 {
			v.refute(path+".addresses", "there are %d addresses: mode %s takes exactly one", len(r.Addresses), r.Mode)
		}
	case RedisEmbedded:
		v.embedded(path, r)
	}
	for i, address := range r.Addresses {
		if problem := addressProblem(address, 1); problem != "" {
			v.refute(path+".addresses["+strconv.Itoa(i)+"]", "%s", problem)
		}
	}
	switch {
	case r.PasswordFile != "" && r.PasswordEnv != "":
		v.refute(path+".password_env", "excludes password_file: give one of the two")
	case r.PasswordEnv != "" && !variableName.MatchString(r.PasswordEnv):
		v.refute(path+".password_env", "is not the name of an environment variable: names are letters, digits and _")
	case r.Username != "" && r.Password+r.PasswordFile+r.PasswordEnv == "" && r.Mode == RedisSingle:
		// The client logs nobody in without a password.
		v.lacks(path, []string{"password_file", "password_env"}, "username needs a password: give password_file or password_env")
	}
}

// embedded refuses what a Redis inside this process has no use for: whoever
// gave it believes that something else is in use.
func (v *validator) embedded(path string, r *Redis) {
	given := map[string]bool{
		"addresses":     len(r.Addresses) > 0 || v.given(path+".addresses"),
		"username":      r.Username != "",
		"password_file": r.PasswordFile != "",
		"password_env":  r.PasswordEnv != "",
	}
	for _, key := range sortedKeys(given) {
		if given[key] {
			v.refute(join(path, key), "is not for mode %s, which runs inside this process: remove it", r.Mode)
		}
	}
}
