// Package rediskey names the keys in Redis that belong to a filter. See [Of].
package rediskey

// Of returns the key of a part of a filter's state: "ordergate:{filter}:part". All keys of a
// filter are in one cluster slot, if its name has no braces.
func Of(filter, part string) string { return "ordergate:{" + filter + "}:" + part }
