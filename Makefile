# Everything a contributor or CI runs. See CONTRIBUTING.md.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

GO        ?= go
MODULES   := . bench examples
FUZZTIME  ?= 30s
BENCH     ?= .
BENCHTIME ?= 1s
COUNT     ?= 1
# One test binary for each core at most; the tests start servers and processes of their own.
TESTFLAGS ?= -race -shuffle=on -timeout 8m
DEMOFLAGS ?=
# Of torture-run. A SEED of 0 is any.
TORTURE   ?= single sentinel cluster
MINUTES   ?= 5
SEED      ?= 0
BENCHFLAGS ?=
LINTER    := bin/golangci-lint
JAEGER    := bin/jaeger

.PHONY: help
help: ## Show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 14

.PHONY: check
check: test lint ## Everything that has to pass before a change is merged

.PHONY: test
test: redis-server fmt-check vet tidy-check build-alone ## All tests of all modules under the race detector
	@for module in $(MODULES); do \
		echo "go test $(TESTFLAGS) -count=$(COUNT) ./... (in $$module)"; \
		(cd $$module && $(GO) test $(TESTFLAGS) -count=$(COUNT) ./...); \
	done

# Each suite on each of them. The tests that need a single server by nature have one.
TOPOLOGIES ?= tls sentinel cluster
.PHONY: test-topologies
test-topologies: redis-server ## The suites of stores, coordinator, rwlock and segment on TLS, Sentinel and a cluster; eight minutes
	@for topology in $(TOPOLOGIES); do \
		echo "LEASEHOLD_TOPOLOGY=$$topology go test $(TESTFLAGS)"; \
		LEASEHOLD_TOPOLOGY=$$topology $(GO) test $(TESTFLAGS) -count=$(COUNT) ./lease/redislease -run 'Conformance|Topolog'; \
		LEASEHOLD_TOPOLOGY=$$topology $(GO) test $(TESTFLAGS) -count=$(COUNT) ./coordinator ./rwlock ./segment; \
	done

# The test has its own modules, outside of the workspace: see internal/jaegertest/doc.go.
.PHONY: test-jaeger
test-jaeger: redis-server $(JAEGER) ## Traces of real processes in a real Jaeger; builds Jaeger once, which takes minutes
	@cd internal/jaegertest && export GOWORK=off && \
		$(GO) mod tidy -diff && $(GO) vet ./... && $(GO) test $(TESTFLAGS) -count=$(COUNT) ./...

# Built once and kept: two thousand packages. What is downloaded and compiled is counted, and not listed.
$(JAEGER): internal/jaegertest/jaeger/go.mod internal/jaegertest/jaeger/go.sum
	@mkdir -p bin
	@echo "building Jaeger: about five minutes on two cores, the first time"
	@GOWORK=off $(GO) -C internal/jaegertest/jaeger build -v -ldflags='-s -w' -o ../../../$@ \
		github.com/jaegertracing/jaeger/cmd/jaeger 2>&1 | awk ' \
			/^go: downloading/ { if (++d % 100 == 0) print d " modules downloaded"; fflush(); next } \
			NF == 1            { if (++c % 100 == 0) print c " packages compiled"; fflush(); next } \
			                   { print; fflush() }'
	@touch $@

# The same: see internal/promtest/doc.go.
.PHONY: test-prometheus
test-prometheus: redis-server ## Queries, dashboard and alert rules, by Prometheus's own engine; builds it once, which takes a minute or two
	@cd internal/promtest && export GOWORK=off && \
		$(GO) mod tidy -diff && $(GO) vet ./... && $(GO) test $(TESTFLAGS) -count=$(COUNT) ./...

# A module of its own, outside of the workspace: nothing else needs a browser.
.PHONY: test-browser
test-browser: redis-server ## The live page in a headless Chromium, which is installed where it is missing
	@tools/install-chromium.sh
	@cd internal/browsertest && export GOWORK=off && \
		$(GO) mod tidy -diff && $(GO) vet ./... && $(GO) test $(TESTFLAGS) -count=$(COUNT) ./...

.PHONY: redis-server
redis-server: ## Install redis-server where it is missing
	@tools/install-redis.sh

.PHONY: fmt-check
fmt-check: ## Check that every file is formatted
	@unformatted=$$(gofmt -l $$(git ls-files --cached --others --exclude-standard '*.go')); \
	if [ -n "$$unformatted" ]; then echo "gofmt would change:"; echo "$$unformatted"; exit 1; fi

.PHONY: vet
vet: ## go vet in every module
	@for module in $(MODULES); do (cd $$module && $(GO) vet ./...); done

.PHONY: tidy-check
tidy-check: ## Check go.mod and go.sum of every module
	@for module in $(MODULES); do (cd $$module && GOWORK=off $(GO) mod tidy -diff); done

.PHONY: build-alone
build-alone: ## Build every module without the workspace, as an importer does
	@for module in $(MODULES); do (cd $$module && GOWORK=off $(GO) build ./...); done

.PHONY: lint
lint: $(LINTER) ## golangci-lint, and govulncheck where its database can be reached
	@for module in $(MODULES); do \
		echo "golangci-lint run (in $$module)"; \
		(cd $$module && $(CURDIR)/$(LINTER) run --config $(CURDIR)/.golangci.yaml ./...); \
	done
	@tools/govulncheck.sh $(MODULES)

# Built once and kept: it takes a minute or two.
$(LINTER): tools/go.mod tools/go.sum
	@mkdir -p bin
	GOWORK=off $(GO) -C tools build -o ../$@ github.com/golangci/golangci-lint/v2/cmd/golangci-lint
	@touch $@

.PHONY: demo
demo: ## Several processes on one counter, with an embedded server
	@cd examples && $(GO) run ./quickstart $(DEMOFLAGS)

.PHONY: bench
bench: redis-server ## leasehold beside other locks and its limits, in one run of under three minutes (BENCHFLAGS)
	@cd bench && $(GO) run . $(BENCHFLAGS)

.PHONY: bench-full
bench-full: redis-server ## The same at all points and with network delays, for forty minutes; writes bench/report/full
	@cd bench && $(GO) run . -full $(BENCHFLAGS)

.PHONY: bench-check
bench-check: redis-server ## Four ratios that must not fall below their floors
	@cd bench && $(GO) run . -check $(BENCHFLAGS)

.PHONY: microbench
microbench: redis-server ## The benchmarks of single packages (BENCH=regexp, BENCHTIME, COUNT)
	$(GO) test -run '^$$' -bench '$(BENCH)' -benchmem -benchtime $(BENCHTIME) -count $(COUNT) ./...

# One worker: the targets talk to servers of their own, which want a core too. What a target finds is minimized for a few
# runs only: where servers answer, coverage is never twice the same, and a whole minute would go by for each.
.PHONY: fuzz
fuzz: redis-server ## Each fuzz target of all modules for FUZZTIME
	@for module in $(MODULES); do \
		cd $(CURDIR)/$$module; \
		for package in $$($(GO) list ./...); do \
			for target in $$($(GO) test -list '^Fuzz' $$package | grep '^Fuzz' || true); do \
				echo "$$package $$target"; \
				$(GO) test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 200x -parallel 1 $$package; \
			done; \
		done; \
	done

.PHONY: cover
cover: redis-server ## Coverage of the library's packages, in coverage.out
	$(GO) test -coverprofile=coverage.out -coverpkg=./... ./...
	@$(GO) tool cover -func=coverage.out | tail -n 1

.PHONY: torture
torture: torture-rounds torture-run ## The fault rounds at full length, then torture-run; takes hours

.PHONY: torture-rounds
torture-rounds: redis-server ## The fault rounds at full length
	LEASEHOLD_TORTURE=1 $(GO) test -race -count=$(COUNT) -timeout 4h ./...

# A failure prints the seed, and where the history and a picture of it are.
.PHONY: torture-run
torture-run: redis-server ## Processes that lock at random under all faults at once, for MINUTES on each of TORTURE; SEED repeats a run
	@for topology in $(TORTURE); do \
		$(GO) test -race -count=1 -timeout 24h ./internal/torture -run 'TestTorture$$' -v -topology $$topology -minutes $(MINUTES) -seed $(SEED); \
	done

.PHONY: clean
clean: ## Remove what was built here
	rm -rf bin coverage.out
