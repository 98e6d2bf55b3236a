package loader

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"

	"github.com/ordergate/ordergate/filter"
)

// maxSums is how many contents of a file the checkpoint of a set has, the one loaded last first.
// Instances may have several at a time, while a new file is brought to all of them.
const maxSums = 16

// sources returns all sources with a checkpoint.
func (p *checkpointStore) sources() (all []checkpointed) {
	for _, t := range p.tables {
		all = append(all, t)
	}
	for _, f := range p.files {
		all = append(all, f)
	}
	return all
}

// hasFile reports whether a stored checkpoint has the content of a file that this process loaded
// last, at first the present one. A set that was restored from an older dump lacks it.
func (p *checkpointStore) hasFile(f *csvSource, text string) (bool, error) {
	sum, err := f.sums.expected(f.path)
	if err != nil {
		return false, fmt.Errorf("source %s: %w", f.name, err)
	}
	var kept storedCheckpoint
	return json.Unmarshal([]byte(text), &kept) == nil && slices.Contains(sumsIn(kept.Mark), sum), nil
}

// loadFile adds the IDs of a file, always or only if the set lacks them. Call loaded when they have
// been added.
func (p *checkpointStore) loadFile(ctx context.Context, f *csvSource, always bool, add func(id string) error) (loaded func(context.Context) error, err error) {
	at, err := p.read(ctx, f)
	if err != nil {
		return nil, err
	}
	sum, err := f.sums.of(f.path)
	if err != nil {
		return nil, fmt.Errorf("source %s: %w", f.name, err)
	}
	if always || !slices.Contains(sumsIn(at.mark), sum) {
		if err := f.readSummed(ctx, sum, add); err != nil {
			return nil, err
		}
		at.mark = sumsWith(at.mark, sum)
	}
	return func(ctx context.Context) error {
		f.sums.expect(sum)
		return p.write(ctx, f, at, at.mark)
	}, nil
}

// readFile reads all of a file to fill the set. A larger set gets the content that was loaded last,
// or the error is [filter.ErrForgotten].
func (p *checkpointStore) readFile(ctx context.Context, f *csvSource, add func(id string) error) error {
	if p == nil || p.filled == nil {
		return f.IDs(ctx, add)
	}
	at, err := p.readAny(ctx, f)
	if err != nil {
		return err
	}
	sum, err := f.sums.of(f.path)
	if err != nil {
		return fmt.Errorf("source %s: %w", f.name, err)
	}
	if sums := sumsIn(at.mark); len(sums) > 0 && sums[0] != sum {
		return fmt.Errorf("%w: the file of source %s is not the one that was loaded last", filter.ErrForgotten, f.name)
	}
	if err := f.readSummed(ctx, sum, add); err != nil {
		return err
	}
	p.filled[f.name] = sumsWith(nil, sum)
	f.sums.expect(sum)
	return nil
}

func sumsIn(mark json.RawMessage) (sums []string) {
	if json.Unmarshal(mark, &sums) != nil { // without a valid checkpoint, the file is read
		return nil
	}
	return sums
}

// sumsWith returns the checkpoint of a set with one more content.
func sumsWith(mark json.RawMessage, sum string) json.RawMessage {
	sums := slices.DeleteFunc(sumsIn(mark), func(s string) bool { return s == sum })
	sums = slices.Insert(sums, 0, sum)
	text, _ := json.Marshal(sums[:min(len(sums), maxSums)]) // texts
	return text
}

// checkpointOf implements checkpointed.
func (s *csvSource) checkpointOf() (source, identity string) { return s.name, "file " + s.name }

// readSummed reads the IDs of a file that has a sum.
func (s *csvSource) readSummed(ctx context.Context, sum string, yield func(id string) error) error {
	if err := s.IDs(ctx, yield); err != nil {
		return err
	}
	now, err := s.sums.of(s.path)
	if err == nil && now != sum {
		err = fmt.Errorf("%s has changed while it was read", s.path)
	}
	if err != nil {
		return fmt.Errorf("source %s: %w", s.name, err)
	}
	return nil
}

// fileSums has the sums of a file's contents.
type fileSums struct {
	mu     sync.Mutex
	stamp  string // of the file with the sum
	sum    string
	wanted string // the content that the set must have; "": not known yet
}

// of returns the sum of a file's content. It reads the file if that has changed.
func (s *fileSums) of(path string) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.read(path)
}

func (s *fileSums) read(path string) (string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return "", err
	}
	if !info.Mode().IsRegular() { // a pipe can be read once
		return "pipe", nil
	}
	stamp := fmt.Sprint(info.Size(), info.ModTime().UnixNano())
	if s.sum != "" && stamp == s.stamp {
		return s.sum, nil
	}
	file, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer file.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, file); err != nil {
		return "", err
	}
	s.stamp, s.sum = stamp, hex.EncodeToString(sum.Sum(nil)[:16])
	return s.sum, nil
}

// expected returns the sum of the content that the set must have: the one that this process loaded
// last, at first the present one.
func (s *fileSums) expected(path string) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.wanted != "" {
		return s.wanted, nil
	}
	sum, err := s.read(path)
	s.wanted = sum
	return sum, err
}

// expect sets what expected returns.
func (s *fileSums) expect(sum string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wanted = sum
}
