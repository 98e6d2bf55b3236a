package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
)

// settings are the filter's settings in Envoy's configuration.
type settings struct {
	Config           string `json:"config"` // the path of ordergate.yaml
	FailureModeAllow bool   `json:"failure_mode_allow"`
}

// parseSettings reads filter_config: a string (google.protobuf.StringValue) that is the
// path of ordergate.yaml, or an object (google.protobuf.Struct) with the path as config,
// and failure_mode_allow.
func parseSettings(text []byte) (s settings, err error) {
	trimmed := bytes.TrimSpace(text)
	if len(trimmed) > 0 && trimmed[0] == '{' {
		d := json.NewDecoder(bytes.NewReader(trimmed))
		d.DisallowUnknownFields()
		if err := d.Decode(&s); err != nil {
			return s, fmt.Errorf("filter_config: %w", err)
		}
	} else {
		s.Config = string(trimmed)
	}
	if s.Config == "" {
		return s, errors.New("filter_config: which ordergate.yaml? (a google.protobuf.StringValue with its path)")
	}
	return s, nil
}
