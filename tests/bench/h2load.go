package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// connections is how many requests are in flight through Envoy: one on each of
// so many connections, or so many streams of one.
const connections = 64

// load is a job for h2load, which makes a fixed number of requests and waits
// for all their answers.
type load struct {
	url      string   // of the first request, or of all
	uris     string   // a file of URLs, taken in turns by each client; "" for url alone
	args     []string // connections, streams, protocol
	headers  []string // "name: value"
	body     string   // a file; makes the requests POST
	requests int
	log      string // a file that need not exist, for the latency of each; "" measures none
}

// loaded is what h2load saw.
type loaded struct {
	rate      float64 // requests a second
	dataBytes int64   // of all answers' bodies
	statuses  string  // as h2load counts them: "100 2xx, 0 3xx, 0 4xx, 0 5xx"
	p50, p99  float64 // ms
}

// run makes the requests. It is an error if one of them got no answer.
func (l load) run(ctx context.Context) (loaded, error) {
	args := append([]string{"-n", strconv.Itoa(l.requests)}, l.args...)
	for _, h := range l.headers {
		args = append(args, "-H", h)
	}
	if l.body != "" {
		args = append(args, "-d", l.body)
	}
	if l.log != "" {
		args = append(args, "--log-file="+l.log)
	}
	if l.uris != "" {
		args = append(args, "-i", l.uris)
	} else {
		args = append(args, l.url)
	}
	out, err := exec.CommandContext(ctx, "h2load", args...).CombinedOutput()
	if ctx.Err() != nil {
		return loaded{}, fmt.Errorf("running h2load: %w", context.Cause(ctx))
	}
	if err != nil {
		return loaded{}, fmt.Errorf("running h2load: %w: %s", err, oneLine(string(out)))
	}
	got, err := parseLoad(string(out), l.requests)
	if err == nil && l.log != "" {
		err = got.readLatencies(l.log)
	}
	return got, err
}

var (
	finishedLine = regexp.MustCompile(`(?m)^finished in [^,]+, ([0-9.]+) req/s`)
	requestsLine = regexp.MustCompile(`(?m)^requests: .* (\d+) done, .* (\d+) errored, (\d+) timeout$`)
	statusLine   = regexp.MustCompile(`(?m)^status codes: (.*)$`)
	dataLine     = regexp.MustCompile(`(?m)^traffic: .*\((\d+)\) data$`)
)

// parseLoad reads h2load's summary.
func parseLoad(out string, requests int) (l loaded, err error) {
	var summary []string
	for _, line := range []*regexp.Regexp{finishedLine, requestsLine, statusLine, dataLine} {
		m := line.FindStringSubmatch(out)
		if m == nil {
			return l, fmt.Errorf("reading h2load's summary: nothing matches %s in: %s", line, oneLine(out))
		}
		summary = append(summary, m[1:]...)
	}
	done, errored, timeout := summary[1], summary[2], summary[3]
	if done != strconv.Itoa(requests) || errored != "0" || timeout != "0" {
		return l, fmt.Errorf("of %d requests %s were done, %s with an error, %s too late", requests, done, errored, timeout)
	}
	l.statuses = summary[4]
	l.rate, err = strconv.ParseFloat(summary[0], 64)
	if err == nil {
		l.dataBytes, err = strconv.ParseInt(summary[5], 10, 64)
	}
	if err != nil {
		return l, fmt.Errorf("reading h2load's summary: %w", err)
	}
	return l, nil
}

// readLatencies reads h2load's log, a line a request: when it began, its status,
// and what it took, in µs.
func (l *loaded) readLatencies(path string) (err error) {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("reading h2load's log: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	var took []float64
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) != 3 {
			return fmt.Errorf("reading h2load's log: line %q does not have three columns", lines.Text())
		}
		micros, err := strconv.ParseFloat(fields[2], 64)
		if err != nil {
			return fmt.Errorf("reading h2load's log: %w", err)
		}
		took = append(took, micros/1000)
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("reading h2load's log: %w", err)
	}
	if len(took) == 0 {
		return errors.New("reading h2load's log: it is empty")
	}
	slices.Sort(took)
	l.p50, l.p99 = percentile(took, 50), percentile(took, 99)
	return nil
}

// percentile returns the nearest rank: the lowest value that so many of a
// hundred do not exceed. The values must be in order.
func percentile(sorted []float64, of float64) float64 {
	rank := int(math.Ceil(of / 100 * float64(len(sorted))))
	return sorted[max(rank, 1)-1]
}

// oneLine makes the end of a program's output fit for an error.
func oneLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(lines[max(0, len(lines)-5):], " | ")
}
