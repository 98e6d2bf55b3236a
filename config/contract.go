package config

// announced holds what belongs to the configuration as it is documented, and
// that this version does not do: keys as "sources.*.table", values as
// it is unknown.
var announced = map[string]bool{
	"sources.*.kind=mysql":      true,
	"sources.*.kind=postgres":   true,
	"sources.*.kind=postgresql": true,
	"sources.*.dsn_env":         true,
	"sources.*.table":           true,
	"sources.*.id_column":       true,
	"sources.*.cursor_column":   true,
	"sources.*.batch":           true,
	"sources.*.pause":           true,
	"sources.*.follow":          true,

	"rules[].create.confirm":   true,
	"rules[].create.duplicate": true,
	"rules[].settle.once":      true,
}

const notAvailable = "is not available in this version"
