package config

// planned holds the keys that belong to the configuration as it is documented,
// and that this version does not do, as "rules[].create.confirm".
var planned = map[string]bool{
	"rules[].create.confirm":   true,
	"rules[].create.duplicate": true,
	"rules[].settle.once":      true,
}

const notAvailable = "is not available in this version"
