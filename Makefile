# Milena's developer commands. `make test` is what proves a change; .ci/run runs what CI runs.
GO      ?= go
LINT    := .cache/bin/golangci-lint
LINT_V  := v2.15.0
T       ?= 30m
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)

.PHONY: build test lint interop bench fuzz clean

build: ## bin/milena, one static binary
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags "-s -w -X main.version=$(VERSION)" -o bin/milena ./cmd/milena

test: ## every unit, property and in-process test, fuzz corpora replayed
	$(GO) test -race ./...

lint: $(LINT)
	$(GO) vet ./...
	$(LINT) run ./...

$(LINT):
	GOBIN=$(CURDIR)/.cache/bin $(GO) install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(LINT_V)

interop: build ## against Apache Kafka, librdkafka, kafka-python, franz-go, sarama, kcat
	test/interop/setup.sh
	$(GO) run ./test/interop

bench: build ## CPU seconds per GB and memory of the broker; micro benchmarks with allocations
	$(GO) run ./test/bench
	$(GO) test -run "^$$" -bench . -benchmem ./internal/...

fuzz: ## each fuzz target for T (make fuzz T=30m)
	test/fuzz.sh $(T)

clean:
	rm -rf bin dist
