# Thin targets; .ci/run runs the same commands. `make help` lists them.

GO ?= go
# How long each fuzz target runs.
FUZZTIME ?= 20s

.PHONY: help build vet fmt test race check bench load kill cluster prove fuzz fuzzshort accuracy networks clean

help: ## list the targets
	@grep -E '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/'

build: ## build the binary ./rollcall
	$(GO) build -o rollcall ./cmd/rollcall

vet: ## look for suspicious code
	$(GO) vet ./...

fmt: ## list files that are not formatted; fails when there are any
	@files="$$(gofmt -l .)"; if [ -n "$$files" ]; then echo "not formatted:"; echo "$$files"; exit 1; fi

test: ## run the tests
	$(GO) test ./...

race: ## run the tests with the race detector
	$(GO) test -race ./...

check: build vet fmt test race ## everything that CI runs

bench: ## run the benchmarks
	$(GO) test -run '^$$' -bench . -benchmem ./...

load: ## measure memory, time per address and the use of allowances (docs/measured.md); takes 10 minutes
	$(GO) test ./cmd/rollcall -run '^TestLoad' -long -v -timeout 60m

kill: ## kill a node 20 times while it works on 100,000 addresses; takes minutes
	$(GO) test ./cmd/rollcall -run '^TestKilled' -long -v -timeout 30m

networks: ## three nodes on separate networks that are cut, killed, stopped and restarted; takes 45 minutes, needs root
	$(GO) test ./cmd/rollcall -run '^TestClusterOnSeparateNetworks' -long -v -timeout 90m

cluster: ## measure agreement, takeover, throughput and traffic of clusters (docs/cluster.md); takes 10 minutes
	$(GO) test ./cluster/clustertest -run '^TestFigures' -long -v -timeout 20m
	$(GO) test ./cmd/rollcall -run '^TestClusterFigures' -long -v -timeout 30m

# Where the ledgers of long runs lie: in memory when that can be had, since no
# test of these is about the disk.
SCRATCH ?= $(shell if [ -d /dev/shm ]; then echo /dev/shm; else echo /tmp; fi)

prove: ## the full set of the ledger's faults (docs/testing.md); takes about an hour
	@date
	$(GO) test ./ledger/ledgertest/mutants -mutants -timeout 60m
	$(GO) test ./ledger/ledgertest/simulation -run '^TestEveryLife' -seeds 100000 -v -timeout 120m
	$(GO) test ./ledger/sqlstore -run '^TestEachStatement' -twins 100 -v -timeout 60m
	$(GO) test ./ledger/sqlstore -run '^TestFaultsLeave|^TestConformanceUnderFaults' -cuts 500 -parallel 6 -v -timeout 90m
	$(GO) test ./ledger/sqlstore -run '^TestHistories' -histories 1000 -serverhistories 50 -scratch $(SCRATCH) -v -timeout 120m
	$(GO) test ./ledger/sqlstore -run '^TestContests' -createkeys 10000 -creditrounds 10000 -cancels 50000 \
		-scratch $(SCRATCH) -v -timeout 120m
	$(GO) test ./cmd/rollcall -run '^TestKilled.*/sqlite' -kills 200 -kill-addresses 1000000 -v -timeout 120m
	$(GO) test ./cmd/rollcall -run '^TestTheDatabase|^TestAFullDisk' -long -v -timeout 60m
	@date

fuzz: ## run each fuzz target for FUZZTIME
	@grep -rl --include='*_test.go' '^func Fuzz' . | while read -r file; do \
		for target in $$(sed -n 's/^func \(Fuzz[A-Za-z0-9_]*\)(.*/\1/p' "$$file"); do \
			echo "$$target in $$(dirname "$$file")"; \
			$(GO) test -run '^$$' -fuzz "^$$target$$" -fuzztime $(FUZZTIME) "$$(dirname "$$file")" || exit 1; \
		done; \
	done

fuzzshort: ## run each fuzz target for a second, as CI does: at most 3 minutes in all
	@$(MAKE) --no-print-directory fuzz FUZZTIME=1s

accuracy: ## measure accuracy and manners against the lab again (docs/accuracy.md); takes 13 minutes
	$(GO) run ./cmd/rollcall lab score --mix every --addresses 6000 --within 6m --out docs/accuracy.md

clean: ## remove the binary and the data of trial runs
	rm -rf rollcall rollcall-data
