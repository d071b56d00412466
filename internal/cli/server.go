package cli

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"runtime/debug"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"milena/internal/config"
	"milena/internal/node"
)

const (
	defaultDataDir = "milena-data"
	defaultListen  = "127.0.0.1:9092"
	defaultHTTP    = "127.0.0.1:9644"
	// shutdownTimeout bounds a clean shutdown; what is not done by then is left to the next start's recovery.
	shutdownTimeout = 30 * time.Second
)

type serverFlags struct {
	config, dataDir, listen, http string
	overrides                     []string
	level, format                 string
}

func (a *app) serverCommand() *cobra.Command {
	var f serverFlags
	start := &cobra.Command{
		Use: "start", Short: "Run a broker", Args: noArgs,
		Long: "Runs a broker. With no flag at all: a complete single-node cluster with its data in ./" + defaultDataDir + ", formatted\n" +
			"on first start, on " + defaultListen + ", with /metrics, /healthz and /readyz on " + defaultHTTP + ".",
		RunE: func(cmd *cobra.Command, _ []string) error { return a.serve(cmd.Context(), &f) },
	}
	fl := start.Flags()
	fl.StringVar(&f.config, "config", "", "Kafka's server.properties `FILE`")
	fl.StringVar(&f.dataDir, "data-dir", "", "data `DIR`; wins over log.dirs")
	fl.StringVar(&f.listen, "listen", "", "`HOST:PORT` for clients; wins over listeners")
	fl.StringVar(&f.http, "http", "", "`HOST:PORT` for metrics and health, or off")
	fl.StringArrayVar(&f.overrides, "override", nil, "set a config, `KEY=VALUE`; wins over the file; may be repeated")
	fl.StringVar(&f.level, "log-level", "info", "debug, info, warn or error")
	fl.StringVar(&f.format, "log-format", "text", "text or json")
	values(start, "log-level", "debug", "info", "warn", "error")
	values(start, "log-format", "text", "json")
	return group("server", "Run a broker", start)
}

// nodeConfig derives the node's settings from the file, the flags and the defaults.
func (a *app) nodeConfig(f *serverFlags) (*config.Node, *config.Notice, error) {
	props := map[string]string{}
	if f.config != "" {
		m, err := propertiesFile(f.config)
		if err != nil {
			return nil, nil, usagef("--config: %w", err)
		}
		props = m
	}
	kv, err := keyValues("override", f.overrides)
	if err != nil {
		return nil, nil, err
	}
	if err := f.contradiction(kv); err != nil {
		return nil, nil, err
	}
	for k, v := range kv {
		props[k] = v
	}
	if f.dataDir != "" {
		delete(props, "log.dir")
		props["log.dirs"] = f.dataDir
	} else if props["log.dirs"] == "" && props["log.dir"] == "" {
		props["log.dirs"] = defaultDataDir
	}
	if f.listen != "" {
		if _, _, err := net.SplitHostPort(f.listen); err != nil {
			return nil, nil, usagef("--listen %q is not HOST:PORT", f.listen)
		}
		props["listeners"] = "PLAINTEXT://" + f.listen
		if _, ok := kv["advertised.listeners"]; !ok {
			delete(props, "advertised.listeners") // the file's go with its listeners
		}
	} else if props["listeners"] == "" {
		props["listeners"] = "PLAINTEXT://" + defaultListen
	}
	switch {
	case f.http != "":
		props["milena.http.listen"] = f.http
	case f.config == "" && !hasKey(props, "milena.http.listen"):
		props["milena.http.listen"] = defaultHTTP
	}
	n, notice, err := config.Load(props, config.Env{Hostname: a.env.Hostname})
	if err != nil {
		return nil, nil, &usageError{err}
	}
	return n, notice, nil
}

// contradiction refuses an override of what another flag says too: neither is the obvious winner.
func (f *serverFlags) contradiction(overrides map[string]string) error {
	for _, c := range []struct{ flag, value, key string }{
		{"data-dir", f.dataDir, "log.dirs"}, {"data-dir", f.dataDir, "log.dir"}, {"listen", f.listen, "listeners"},
		{"http", f.http, "milena.http.listen"},
	} {
		if v, ok := overrides[c.key]; ok && c.value != "" {
			return usagef("--%s %s and --override %s=%s say two things: leave one out", c.flag, c.value, c.key, v)
		}
	}
	return nil
}

func hasKey(m map[string]string, k string) bool { _, ok := m[k]; return ok }

// logger makes the process's logger and the levels that decide what it writes.
func (a *app) logger(f *serverFlags) (*slog.Logger, *logLevels, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(strings.ToUpper(f.level))); err != nil {
		return nil, nil, usagef("--log-level %q is not one of debug, info, warn, error", f.level)
	}
	levels := newLogLevels(level)
	switch f.format {
	case "text":
		return slog.New(leveled{slog.NewTextHandler(a.env.Stderr, nil), levels}), levels, nil
	case "json":
		return slog.New(leveled{slog.NewJSONHandler(a.env.Stderr, nil), levels}), levels, nil
	}
	return nil, nil, usagef("--log-format %q is neither text nor json", f.format)
}

func (a *app) serve(ctx context.Context, f *serverFlags) error {
	began := time.Now()
	conf, notice, err := a.nodeConfig(f)
	if err != nil {
		return err
	}
	log, levels, err := a.logger(f)
	if err != nil {
		return err
	}
	for _, s := range notice.Unknown {
		log.Warn("unknown config", "note", s)
	}
	for _, s := range notice.Warnings {
		log.Warn("config", "note", s)
	}
	if len(notice.WithoutMeaning) > 0 {
		log.Info("configs without meaning here", "keys", strings.Join(notice.WithoutMeaning, ","))
	}
	limitMemory(log)
	n, err := node.Start(ctx, node.Options{Config: conf, Logger: log, Loggers: levels, Version: a.env.Version})
	if err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return &exitError{ExitFailed, err}
	}
	dirs := make([]string, len(conf.LogDirs))
	for i, d := range conf.LogDirs {
		if dirs[i], err = filepath.Abs(d); err != nil {
			dirs[i] = d
		}
	}
	sort.Strings(dirs)
	log.Info("ready", "address", n.Addr(), "http", n.HTTPAddr(), "data", strings.Join(dirs, ","), "cluster", n.ClusterID(), "version", a.env.Version,
		"after", time.Since(began).Round(time.Millisecond).String())
	select {
	case <-ctx.Done():
		log.Info("shutting down")
		stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
		defer cancel()
		if err := n.Shutdown(stop); err != nil {
			return &exitError{ExitFailed, fmt.Errorf("shutdown: %w", err)}
		}
		log.Info("shut down cleanly")
		return nil
	case <-n.Failed():
		err := n.Err()
		n.Kill()
		return &exitError{ExitFailed, err}
	}
}

// limitMemory keeps the heap of an idle process small: the collector runs when the heap has grown by half of what is in
// use. GOGC and GOMEMLIMIT from outside win.
func limitMemory(log *slog.Logger) {
	if os.Getenv("GOGC") == "" {
		old := debug.SetGCPercent(50)
		log.Debug("garbage collector", "percent", 50, "before", strconv.Itoa(old))
	}
}
