# Two targets are all a newcomer needs: demo and test. Both fetch what they run
# against, once, into .cache/, and work offline after that.

.PHONY: demo test soak lint bench bench-locks bench-filters bench-gateway module build fuzz clean
.SILENT:

GOLANGCI := go tool -modfile=tools/go.mod golangci-lint

# The main job, end to end. ONESHOT=1 ends by itself; MODULE=1 has ordergate inside Envoy.
demo: build
	python3 tools/fetch.py all $(if $(MODULE),gcc)
	go build -o .cache/bin/demo ./examples/demo
	exec .cache/bin/demo

# Everything that CI runs, the packages that take longest first.
test: lint
	python3 tools/fetch.py all differential redisson redisbloom bench gateway mariadb postgres promtool spin gcc
	python3 -m unittest discover -q -s tools -p '*_test.py'
	go test -race -timeout 20m ./tests ./lockmw/redislock ./...
	go test -timeout 20m -run 'TestRates|TestNothingAbsentPasses' ./filter/bloom ./filter/exact ./filter/redisbf
	go test -timeout 20m ./tests -attachment=module
	cd tests/bench/locks && go vet ./... && go test ./...
	cd tests/bench/filters && go vet ./... && go test ./...
	cd tests/faults && go vet ./... && go test -race -timeout 20m -count=1 ./...
	echo "make test: all passed"

# What takes longer: the model of the change log in every configuration, the differential
# test of order IDs in its full size, with every backend, and the faults of the locks
# (docs/faults.md).
soak:
	python3 tools/fetch.py all differential redisbloom mariadb postgres spin gcc soak
	SOAK=1 go test -v -timeout 30m -count=1 -run 'TestModel$$' ./tests
	SOAK=1 go test -race -v -timeout 30m -count=1 ./tests/differential
	SOAK=1 go test -v -timeout 60m -count=1 ./filter/...
	cd tests/faults && SOAK=1 go test -race -v -timeout 12h -count=1 ./...

lint:
	unformatted=$$(gofmt -l $$(git ls-files '*.go')); \
	if [ -n "$$unformatted" ]; then echo "gofmt these files:" $$unformatted; exit 1; fi
	go vet ./...
	$(GOLANGCI) run ./...

# Ratios, not verdicts: see docs/benchmarks.md.
bench:
	python3 tools/fetch.py all bench
	go run ./tests/bench

# The locks beside other libraries': see docs/benchmarks-locks.md.
bench-locks:
	python3 tools/fetch.py all
	cd tests/bench/locks && go run .

# The filters in memory and in Redis beside others': see docs/benchmarks-filters.md.
bench-filters:
	python3 tools/fetch.py redis redisbloom
	cd tests/bench/filters && go run .

# A gate in front of orders, beside other ways to build one: see
# docs/benchmarks-gateway.md.
bench-gateway:
	python3 tools/fetch.py envoy redis gateway
	go run ./tests/bench/gateway

# ordergate inside Envoy: see docs/envoy-module.md.
module:
	CGO_ENABLED=1 go build -trimpath -buildmode=c-shared \
		-ldflags "-X main.version=$$(git describe --tags --always --dirty 2>/dev/null || echo dev)" \
		-o bin/libordergate.so ./cmd/envoymodule
	rm -f bin/libordergate.h

build:
	go build -trimpath -ldflags "-X main.version=$$(git describe --tags --always --dirty 2>/dev/null || echo dev)" \
		-o bin/ordergate ./cmd/sidecar

# Each fuzz target for FUZZTIME.
FUZZTIME ?= 30s
fuzz:
	go test -run '^$$' -fuzz FuzzMatch -fuzztime $(FUZZTIME) ./internal/order
	go test -run '^$$' -fuzz FuzzCanonical -fuzztime $(FUZZTIME) ./internal/order
	go test -run '^$$' -fuzz FuzzBody -fuzztime $(FUZZTIME) ./internal/order
	go test -run '^$$' -fuzz FuzzScan -fuzztime $(FUZZTIME) ./internal/order
	go test -run '^$$' -fuzz FuzzParse -fuzztime $(FUZZTIME) ./config
	go test -run '^$$' -fuzz FuzzCheck -fuzztime $(FUZZTIME) ./extauthz
	go test -run '^$$' -fuzz FuzzParse -fuzztime $(FUZZTIME) ./filter/exact
	go test -run '^$$' -fuzz FuzzMerge -fuzztime $(FUZZTIME) ./filter/exact
	go test -run '^$$' -fuzz FuzzOpen -fuzztime $(FUZZTIME) ./filter/snapshot

clean:
	rm -rf bin .cache
