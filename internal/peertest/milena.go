package peertest

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// BuildMilena builds the milena binary of the module at root into the folder dir and returns its path.
func BuildMilena(ctx context.Context, root, dir string) (string, error) {
	path := filepath.Join(dir, "milena")
	_, err := Run(ctx, Command{Path: "go", Args: []string{"build", "-trimpath", "-o", path, "./cmd/milena"}, Dir: root,
		Env: []string{"CGO_ENABLED=0"}, Timeout: 10 * time.Minute})
	return path, err
}

// MilenaOptions say how to run a milena node.
type MilenaOptions struct {
	// Binary is the program, from BuildMilena.
	Binary string
	// Dir gets the data and the log; it is created.
	Dir string
	// DataDir is where the data goes, Dir/data if empty.
	DataDir string
	// Overrides are broker properties, key=value.
	Overrides []string
	// Addr is where it is reached, if the overrides have listeners of their own; else a free port.
	Addr string
	// Args are further arguments of `milena server start`.
	Args []string
}

// NewMilena prepares a single node on free loopback ports; Start runs it.
func NewMilena(o MilenaOptions) (*Broker, error) {
	addrs, err := freeAddrs(2)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(o.Dir, 0o755); err != nil {
		return nil, err
	}
	data := o.DataDir
	if data == "" {
		data = filepath.Join(o.Dir, "data")
	}
	args := []string{"server", "start", "--data-dir", data, "--http", addrs[1]}
	if o.Addr == "" {
		args = append(args, "--listen", addrs[0])
	} else {
		addrs[0] = o.Addr
	}
	for _, kv := range o.Overrides {
		args = append(args, "--override", kv)
	}
	return &Broker{
		Kind: "milena", Addr: addrs[0], HTTP: addrs[1], DataDir: data, LogFile: filepath.Join(o.Dir, "milena.log"),
		command:     Command{Path: o.Binary, Args: append(args, o.Args...), Dir: o.Dir},
		readyWithin: 20 * time.Second,
	}, nil
}

// ModuleRoot is the nearest folder above the working directory that holds the module "milena".
func ModuleRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		text, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		if err == nil && len(text) > 13 && string(text[:13]) == "module milena" && (text[13] == '\n' || text[13] == '\r') {
			return dir, nil
		}
		up := filepath.Dir(dir)
		if up == dir {
			return "", fmt.Errorf("no checkout of milena above the working directory")
		}
		dir = up
	}
}
