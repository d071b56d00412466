# Milena's developer commands. `make test` is what proves a change; .ci/run runs what CI runs.
GO      ?= go
LINT    := .cache/bin/golangci-lint
LINT_V  := v2.15.0
T       ?= 30m
SEEDS   ?= 200
FROM    ?= 1
MINUTES ?= 10
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)

.PHONY: build test lint sim sim-mutants interop chaos chaos-mirror bench fuzz clean

build: ## bin/milena, one static binary, and bin/kafka-cluster-mirrors, a link to it
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags "-s -w -X main.version=$(VERSION)" -o bin/milena ./cmd/milena
	ln -sf milena bin/kafka-cluster-mirrors

test: ## every unit, property and in-process test, fuzz corpora replayed
	$(GO) test -race ./...
	$(GO) test -tags synctests ./internal/sim -run 'TestNodes|TestMirrors|TestPairs'

lint: $(LINT)
	$(GO) vet ./...
	$(LINT) run ./...

$(LINT):
	GOBIN=$(CURDIR)/.cache/bin $(GO) install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(LINT_V)

sim: ## clusters in virtual time: SEEDS of the cores, half as many of cores of mirrors, a tenth as many of whole nodes, of mirrors and of pairs of nodes, from FROM on (make sim SEEDS=1000 FROM=1)
	$(GO) test -tags synctests ./internal/sim -count=1 -timeout 0 -run 'TestCores|TestMirrorCores|TestNodes|TestMirrors|TestPairs' -sim.seeds=$(SEEDS) -sim.from=$(FROM) \
		-sim.mcseeds=$$(($(SEEDS) / 2)) -sim.mcfrom=$(FROM) \
		-sim.nodeseeds=$$(($(SEEDS) / 10)) -sim.nodefrom=$(FROM) -sim.mirrorseeds=$$(($(SEEDS) / 10)) -sim.mirrorfrom=$(FROM) \
		-sim.pairseeds=$$(($(SEEDS) / 10)) -sim.pairfrom=$(FROM)

sim-mutants: ## each deliberate fault must be caught within 500 seeds of the cores, or of mirrors
	test/sim-mutants.sh

interop: build ## against Apache Kafka, librdkafka, kafka-python, franz-go, sarama, kcat
	test/interop/setup.sh
	$(GO) run ./test/interop

chaos: ## three real nodes with kill -9, network partitions, full disks and pauses, as root (make chaos MINUTES=10 SEED=7)
	test/interop/setup.sh
	$(GO) run ./test/chaos --minutes $(MINUTES) $(if $(SEED),--seed $(SEED))

chaos-mirror: ## Apache Kafka mirrored to three real nodes with kill -9 and restarts, then a failover (make chaos-mirror MINUTES=10 SEED=7)
	test/interop/setup.sh
	$(GO) run ./test/chaosmirror --minutes $(MINUTES) $(if $(SEED),--seed $(SEED))

bench: build ## CPU seconds per GB and memory of the broker; micro benchmarks with allocations
	$(GO) run ./test/bench
	$(GO) test -run "^$$" -bench . -benchmem ./internal/...

fuzz: ## each fuzz target for T (make fuzz T=30m)
	test/fuzz.sh $(T)

clean:
	rm -rf bin dist
