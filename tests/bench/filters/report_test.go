package main

import (
	"io"
	"testing"

	"github.com/ordergate/ordergate/tests/bench/benchmark"
	"github.com/ordergate/ordergate/tests/bench/benchmark/benchtest"
)

// invented are results of three rounds. One of the candidates has no formula, and
// was not in all sections.
func invented() []results {
	names := []string{nameBlocked, nameBlobloomSync, nameMap}
	return []results{
		{section: lookupSection(largeSize), Results: benchmark.Results{Names: names, Rounds: [][]benchmark.Sample{
			{
				{hitTime: 100, missTime: 90, hitApart: 80, allocs: 0, bytesPerID: 1.943, overFormula: 0.04, falsePositives: 0.0998},
				{hitTime: 120, missTime: 91}, {hitTime: 110, missTime: 92},
			},
			{{hitTime: 150, missTime: 90, hitApart: 79, bytesPerID: 2.125}, {hitTime: 180, missTime: 45}, {hitTime: 99, missTime: 92}},
			{{hitTime: 400}, {hitTime: 420}, {hitTime: 600}},
		}}},
		{section: buildSection(largeSize), Results: benchmark.Results{Names: names[:2], Rounds: [][]benchmark.Sample{
			{{buildRate: 9, buildCPU: 5}, {buildRate: 8, buildCPU: 5}, {buildRate: 10, buildCPU: 5}},
			{{buildRate: 3, buildCPU: 3}, {buildRate: 4, buildCPU: 3}, {buildRate: 10, buildCPU: 3}},
		}}},
		{section: storedSection(largeSize), Results: benchmark.Results{Names: []string{nameEach, nameBitmap}, Rounds: [][]benchmark.Sample{
			{{hitRate: 50_000, missRate: 40_000, bothCPU: 20, bytesPerID: 1.8}, {hitRate: 40_000, missRate: 50_000}, {hitRate: 30_000, missRate: 50_000}},
			{{hitRate: 150_000, missRate: 80_000, clientCPU: 5.04, bothCPU: 8}, {hitRate: 150_000, missRate: 50_000}, {hitRate: 150_000, missRate: 50_000}},
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
