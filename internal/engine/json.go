package engine

import (
	"encoding/json"
	"io"
)

// WriteJSON writes a value as people and programs read it.
func WriteJSON(w io.Writer, value any) error {
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	return encoder.Encode(value)
}
