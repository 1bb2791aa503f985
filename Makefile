# Thin targets; .ci/run runs the same commands. `make help` lists them.

GO ?= go
# How long each fuzz target runs.
FUZZTIME ?= 20s

.PHONY: help build vet fmt test short race browser images mutants static check bench load kill prove fuzz accuracy release clean

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

short: ## run the tests that need no child process and no PostgreSQL; seconds
	$(GO) test -short -p 4 ./...

# Where no goroutine is started there is no race: only values and time, documents, generated code. What the
# browser tests ask of the pages runs with the race detector in the tests of the pages.
PURE = actors/(intake|wire|receiver/(fairqueue|scheduler|status))|cmd/(release|rollcall/(list|term))|docs|http/(api|web|dashboard/pagetest)|$\
	ledger/(evidence|tracing|transitions|ledgertest|ledgertest/simulation)|smtp/(evidence|verdict)

# With the race detector the nodes of one process come one after the other (effort.OnlyNode), so that
# the rows of own faults would wait for six minutes: there those run whose own parts fail.
ROWS = ^TestOwnFaultsAreNeverToldOfAnAddress$$

# The slowest packages begin first: at the end they would run alone. Three run at once, since nodes mostly wait.
SLOW = cmd/rollcall ledger/sqlstore http/dashboard
race: ## run the tests with the race detector, where a race can be; make test runs all of them
	$(GO) test -race -vet=off -p 3 -timeout 30m -skip '$(ROWS)/^(connections|refusals|manners)$$' \
		$(SLOW:%=./%) $$($(GO) list ./... | grep -vE '^rollcall/($(PURE))$$')

browser: ## run the tests of the pages in a real browser; needs chromium-headless-shell and npm
	npm --prefix http/dashboard/pagetest/npm ci --no-audit --no-fund
	ROLLCALL_REQUIRE_BROWSER=1 $(GO) test -count=1 -v -timeout 10m ./http/dashboard/pagetest

images: ## make the README's pictures of the pages again (docs/images)
	ROLLCALL_REQUIRE_BROWSER=1 $(GO) test -count=1 ./http/dashboard/pagetest -run '^TestAsANewcomer$$' -images

# The files that changed since BASE have their mutants run, at most 40, others a twentieth,
# which the last commit draws.
BASE ?= $(shell git rev-list -1 --before='12 hours ago' HEAD 2>/dev/null)
SEED ?= $(shell printf '%d' 0x$$(git rev-parse --short=7 HEAD 2>/dev/null))

mutants: ## break the ledger on purpose, where it changed and in a twentieth of the other places
	$(GO) test ./ledger/ledgertest -mutants ci -base '$(BASE)' -seed $(SEED) -v -timeout 30m

static: ## run staticcheck
	$(GO) tool staticcheck ./...

check: ## everything that CI runs
	.ci/run

bench: ## run the benchmarks
	$(GO) test -run '^$$' -bench . -benchmem ./...

load: ## measure speed, memory and the use of limits against receivers of all kinds (docs/developers/measured.md); takes an hour
	$(GO) test ./cmd/rollcall -run '^Test(Load|Speed|Worlds)' -long -v -timeout 120m

kill: ## kill a node 20 times while it works on 100,000 addresses; takes minutes
	$(GO) test ./cmd/rollcall -run '^TestKilled' -long -v -timeout 30m

prove: ## run what takes too long for every change, whole: hours, one line for each part; PARTS="lives mutants" runs only these
	@.ci/prove $(PARTS)

fuzz: ## run each fuzz target for FUZZTIME
	@grep -rl --include='*_test.go' '^func Fuzz' . | while read -r file; do \
		for target in $$(sed -n 's/^func \(Fuzz[A-Za-z0-9_]*\)(.*/\1/p' "$$file"); do \
			echo "$$target in $$(dirname "$$file")"; \
			$(GO) test -run '^$$' -fuzz "^$$target$$" -fuzztime $(FUZZTIME) "$$(dirname "$$file")" || exit 1; \
		done; \
	done

accuracy: ## measure accuracy and manners against the lab again; takes 13 minutes
	$(GO) test ./cmd/rollcall -run '^TestAccuracy$$' -long -v -timeout 30m

release: ## build what is published, for all platforms, into dist
	$(GO) run ./cmd/release --out dist

clean: ## remove the binary, what was released, and the data of trial runs
	rm -rf rollcall rollcall-data dist
