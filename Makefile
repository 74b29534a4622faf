# Every target says what it does in the comment after ##; `make help` prints them.
SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DELETE_ON_ERROR:
MAKEFLAGS += --warn-undefined-variables --no-builtin-rules --no-print-directory
.DEFAULT_GOAL := help

# Settings, e.g. `make test RACE=1 PKG=./limiter/...`
ARGS ?=
PKG ?=
RACE ?=
BENCH ?= .
FUZZTIME ?= 10s
TENANTS ?= 100000
FLEET_DIR ?= .fleet
export FLEET_DIR

STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2
GOTEST := go test $(if $(RACE),-race)
# Tests of whole fleets measure time, so they run one after the other, after all others.
FLEETS := ./bench/stage ./cmd/headway ./cmd/headway-bench ./deploy/fleettest ./deploy/consoletest

# What the tests of the console need besides.
BROWSER := $(if $(PKG),$(if $(findstring console,$(PKG)),chromium node=nodejs npm),chromium node=nodejs npm)

.PHONY: help
help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(firstword $(MAKEFILE_LIST)) | sed -E 's/:[^#]*## /\t/' | expand -t 14

.PHONY: build
build: ## build bin/headway and bin/headway-bench
	@go build -o bin/ ./cmd/...

.PHONY: test
test: ## all tests, none skipped; installs redis-server, chromium and what else is missing (RACE=1: under the race detector; PKG=./x/...: only these)
	@deploy/need redis-server $(BROWSER) $(if $(RACE),gcc=build-essential)
	@$(if $(BROWSER),$(MAKE) deploy/consoletest/node_modules/axe-core/axe.min.js)
ifdef PKG
	$(GOTEST) $(PKG)
else
	$(GOTEST) $$(go list ./... | grep -v -x -F "$$(go list $(FLEETS))")
	$(GOTEST) -count=1 -p 1 $(FLEETS) # they start programs, which the test cache does not know
endif

# What judges the accessibility of the console.
deploy/consoletest/node_modules/axe-core/axe.min.js: deploy/consoletest/package-lock.json
	@cd deploy/consoletest && npm ci --silent
	@touch $@

.PHONY: fairness
fairness: ## fleets of 2, 8 and 32 replicas in every scope under every load, in simulated time (minutes)
	go test -count=1 -timeout 30m ./gateway/replica -run TestFairness -args -full

.PHONY: race
race: ## all tests under the race detector
	@$(MAKE) test RACE=1

.PHONY: lint
lint: lint-go lint-lua lint-deploy lint-shell ## formatting, vet, staticcheck, luacheck, and the configurations of deploy/ by their own tools

.PHONY: lint-go
lint-go:
	@unformatted=$$(gofmt -l $$(git ls-files -co --exclude-standard '*.go')); \
	  if [ -n "$$unformatted" ]; then echo "gofmt -w $$unformatted"; exit 1; fi
	go vet ./...
	go run $(STATICCHECK) ./...
	cd deploy/sdktest && go vet ./... && go run $(STATICCHECK) ./...
	cd bench/compare && go vet ./... && go run $(STATICCHECK) ./...

.PHONY: lint-lua
lint-lua:
	@deploy/need luacheck=lua-check
	luacheck --quiet lua

.PHONY: lint-deploy
lint-deploy:
	@deploy/need haproxy promtool=prometheus
	deploy/fleet/fleet check
	promtool check config deploy/fleet/prometheus.yml
	promtool test rules deploy/fleet/rules_test.yml

.PHONY: lint-shell
lint-shell:
	@deploy/need shellcheck
	shellcheck deploy/need deploy/fleet/fleet deploy/sdktest/run .ci/run

.PHONY: bench
bench: ## micro-benchmarks (BENCH=regexp PKG=./limiter/fairq/...)
	@deploy/need redis-server
	go test -run '^$$' -bench '$(BENCH)' -benchmem $(or $(PKG),./...)

.PHONY: chaos
chaos: build ## take the store away in every way, under every policy (ARGS=--quick; ARGS="--readme bench/README.md" renews the table)
	@deploy/need redis-server
	@bin/headway-bench chaos $(ARGS)

.PHONY: compare
compare: ## Headway beside redis_rate, throttled and its own bare script (ARGS="-seconds 2 -rounds 3 -markdown README.md")
	@deploy/need redis-server
	@cd bench/compare && go run . $(ARGS)

.PHONY: fuzz
fuzz: ## every fuzz target for FUZZTIME (10s) each
	@grep -rlE '^func Fuzz' --include='*_test.go' . | while read -r file; do \
	  for name in $$(sed -nE 's/^func (Fuzz[A-Za-z0-9_]*)\(.*/\1/p' "$$file"); do \
	    go test -run '^$$' -fuzz "^$$name\$$" -fuzztime '$(FUZZTIME)' "./$$(dirname "$$file")"; \
	  done; done

.PHONY: soak
soak: ## 100,000 tenants that come once, five times: nothing of them stays (TENANTS=n)
	@deploy/need redis-server
	HEADWAY_TENANTS=$(TENANTS) go test -count=1 -v -run '^TestTenantsThatComeOnce$$' ./limiter/redisstore

.PHONY: demo
demo: ## a fleet, its store, a provider and four tenants on this machine (ARGS="--duration 20s --json")
	@go build -o bin/headway ./cmd/headway
	@bin/headway demo $(ARGS)

.PHONY: fleet-up
fleet-up: build ## start redis-server, 3 replicas, HAProxy and Prometheus here, and print their addresses
	@deploy/need redis-server haproxy prometheus curl
	@deploy/fleet/fleet up

.PHONY: fleet-down
fleet-down: ## end exactly the processes that fleet-up started
	@deploy/fleet/fleet down

.PHONY: sdk-test
sdk-test: build ## the unmodified OpenAI SDKs for Go and Node against a fleet of their own, and the console in a browser
	@deploy/need redis-server haproxy prometheus curl chromium node=nodejs npm
	@deploy/sdktest/run
