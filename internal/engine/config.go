package engine

import (
	"github.com/ordergate/ordergate/config"
	"github.com/ordergate/ordergate/internal/loader"
)

// LoadConfig reads a configuration, and makes every check that needs no server. The error has a
// line for each violation.
func LoadConfig(file string, getenv func(string) string) (*config.Config, error) {
	c, _, err := LoadConfigWith(file, config.Options{Getenv: getenv})
	return c, err
}

// LoadConfigWith is LoadConfig with options. It sets CheckTable itself.
func LoadConfigWith(file string, o config.Options) (*config.Config, config.Warnings, error) {
	e, err := LoadEffective(file, o)
	if err != nil {
		return nil, config.Warnings{}, err
	}
	return e.Config, e.Warnings, nil
}

// LoadEffective is LoadConfigWith that also returns the origins of all values.
func LoadEffective(file string, o config.Options) (*config.Effective, error) {
	o.CheckTable = loader.CheckTable
	e, err := config.LoadEffective(file, o)
	if err == nil && o.Uses == nil {
		err = loader.CheckSets(e.Config)
	}
	return e, err
}
