// Package bundle makes the archive of a report: named texts without secrets, in one tar.gz. The
// running ordergate and `ordergate bundle` each make one, and the command's has both.
//
// Start with [Files]. [Log] keeps the last lines of a log.
package bundle

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"
	"strings"
	"time"
)

// maxSize bounds an archive that is read, unpacked: a report on many filters with ten years of
// segments takes 20 MB.
const maxSize = 256 << 20

// missing is the name of the text with what a report lacks.
const missing = "missing.txt"

// file is a text of a report.
type file struct {
	name string
	text []byte
}

// Files are the texts of a report. The zero value is empty.
type Files struct {
	all      []file
	problems []string
}

// Add adds a text.
func (f *Files) Add(name string, text []byte) { f.all = append(f.all, file{name, text}) }

// Miss records that the report lacks something, and why.
func (f *Files) Miss(what string, err error) {
	f.problems = append(f.problems, what+": "+err.Error())
}

// Missing returns what the report lacks, a line each.
func (f *Files) Missing() []string { return f.problems }

// Len returns the number of texts.
func (f *Files) Len() int { return len(f.all) }

// Write writes an archive with the texts below a directory, the scrubbed ones of all, and what is
// missing.
func (f *Files) Write(w io.Writer, dir string, scrub *Scrubber, now time.Time) error {
	compressed := gzip.NewWriter(w)
	archive := tar.NewWriter(compressed)
	all := f.all
	if len(f.problems) > 0 {
		var b bytes.Buffer
		for _, p := range f.problems {
			fmt.Fprintln(&b, p)
		}
		all = append(all[:len(all):len(all)], file{missing, b.Bytes()})
	}
	for _, one := range all {
		text := scrub.Scrub(one.text)
		header := &tar.Header{Name: dir + one.name, Mode: 0o644, Size: int64(len(text)), ModTime: now}
		if err := archive.WriteHeader(header); err != nil {
			return err
		}
		if _, err := archive.Write(text); err != nil {
			return err
		}
	}
	if err := archive.Close(); err != nil {
		return err
	}
	return compressed.Close()
}

// Read adds the texts of an archive, with a prefix to their names, and what it is missing.
func (f *Files) Read(r io.Reader, prefix string) error {
	compressed, err := gzip.NewReader(r)
	if err != nil {
		return err
	}
	archive := tar.NewReader(io.LimitReader(compressed, maxSize))
	for {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		text, err := io.ReadAll(archive)
		if err != nil {
			return err
		}
		if header.Name == missing {
			f.problems = append(f.problems, strings.Split(strings.TrimSpace(string(text)), "\n")...)
			continue
		}
		f.Add(prefix+header.Name, text)
	}
}

// Process describes this process.
type Process struct {
	Version  string            `json:"version"`
	Go       string            `json:"go"`
	OS       string            `json:"os"`
	Arch     string            `json:"arch"`
	CPUs     int               `json:"cpus"`
	Threads  int               `json:"gomaxprocs"`
	Time     time.Time         `json:"time"`
	Settings map[string]string `json:"build"`   // of the build
	Modules  map[string]string `json:"modules"` // by path
}

// ThisProcess returns the description of the process that runs, of a version.
func ThisProcess(version string) Process {
	p := Process{
		Version: version, Go: runtime.Version(), OS: runtime.GOOS, Arch: runtime.GOARCH, CPUs: runtime.NumCPU(),
		Threads: runtime.GOMAXPROCS(0), Time: time.Now(), Settings: make(map[string]string), Modules: make(map[string]string),
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			p.Settings[s.Key] = s.Value
		}
		for _, m := range info.Deps {
			p.Modules[m.Path] = m.Version
		}
	}
	return p
}
