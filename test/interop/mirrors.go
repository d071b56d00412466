package main

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"milena/internal/peertest"
)

// run runs a command of milena's own against the servers of bootstrap.
func (p *part) run(ctx context.Context, bootstrap string, args ...string) (string, error) {
	out, err := peertest.Run(ctx, peertest.Command{Path: p.milena, Args: append(args, "--bootstrap-server", bootstrap), Timeout: time.Minute})
	return out.Stdout, err
}

// describedMirror and described are a mirror and a partition as `mirrors describe --json` shows them.
type (
	describedMirror struct {
		Mirror     string
		Partitions []described
	}
	described struct {
		Topic             string
		Partition         int32
		State             string
		SourceOffset      *int64 `json:"source_offset"`
		DestinationOffset *int64 `json:"destination_offset"`
		Lag               *int64
		LastError         string `json:"last_error"`
	}
)

// mirrors describes the mirrors with these names, all without any.
func (p *part) mirrors(ctx context.Context, bootstrap string, names ...string) ([]describedMirror, error) {
	out, err := p.run(ctx, bootstrap, append(append([]string{"mirrors", "describe"}, names...), "--json")...)
	if err != nil {
		return nil, err
	}
	var all struct{ Mirrors []describedMirror }
	if err := json.Unmarshal([]byte(out), &all); err != nil {
		return nil, fmt.Errorf("mirrors describe --json: %w: %s", err, out)
	}
	if len(names) > 0 && len(all.Mirrors) != len(names) {
		return nil, fmt.Errorf("%d mirrors described, want %v", len(all.Mirrors), names)
	}
	return all.Mirrors, nil
}
