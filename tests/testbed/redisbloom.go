package testbed

import "os"

// RedisBloomArgs are the arguments with which a redis-server, or each of a
// cluster, loads the module RedisBloom. It returns a [*MissingError] if the module
// was not fetched.
func (b *Bed) RedisBloomArgs() ([]string, error) {
	module := b.cache("lib", "redisbloom.so")
	if _, err := os.Stat(module); err != nil {
		return nil, &MissingError{Program: ".cache/lib/redisbloom.so", Fetch: "redisbloom"}
	}
	return []string{"--loadmodule", module}, nil
}
