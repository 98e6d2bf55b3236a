package main

import (
	"io"
	"testing"

	"github.com/ordergate/ordergate/tests/bench/benchmark"
	"github.com/ordergate/ordergate/tests/bench/benchmark/benchtest"
)

// invented are results of three candidates in three rounds. One of them never
// had the lock.
func invented() []results {
	names := []string{nameOurs, nameGoRedis, nameRedsync}
	return []results{
		{section: uncontended(), Results: benchmark.Results{Names: names, Rounds: [][]benchmark.Sample{
			{{rate: 900, allocs: 20.04}, {rate: 1100, allocs: 20}, {rate: 1000, allocs: 20}},
			{{rate: 1000, allocs: 22}, {rate: 1000, allocs: 22}, {rate: 2000, allocs: 22}},
			{{rate: 500, allocs: 40}, {rate: 400, allocs: 40}, {rate: 800, allocs: 39}},
		}}},
		{section: relay(), Results: benchmark.Results{Names: names, Rounds: [][]benchmark.Sample{
			{{grants: 450, inUse: 93.4, hold: 2.064, requests: 1.25}, {grants: 440, inUse: 91}, {grants: 430, inUse: 90}},
			{{grants: 330}, {grants: 320}, {grants: 310}},
			{{grants: 0}, {grants: 0}, {grants: 0}},
		}}},
	}
}

func TestTables(t *testing.T) {
	benchtest.Tables(t, func(w io.Writer, markdown bool) {
		r := benchmark.NewReport(w, markdown, "##")
		for _, one := range invented() {
			r.Table(one.table())
		}
		r.Table(targetTable(invented()))
	})
}

func TestPlot(t *testing.T) { benchtest.Golden(t, "plot.svg", plot(invented()).SVG()) }
