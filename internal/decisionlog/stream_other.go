//go:build !unix

package decisionlog

import "os"

func stream(name string) (output, error) {
	if name == Stderr {
		return &file{File: os.Stderr}, nil
	}
	return &file{File: os.Stdout}, nil
}
