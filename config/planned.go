package config

// planned holds the schema paths of documented keys that this version does not implement.
var planned = map[string]bool{
	"rules[].create.confirm":   true,
	"rules[].create.duplicate": true,
}

const notAvailable = "is not available in this version"
