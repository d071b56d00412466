package cli

import (
	"context"
	"log/slog"
	"runtime"
	"strings"
	"sync/atomic"

	handleadmin "milena/internal/handle/admin"
)

// modulePrefix leads the names of this module's functions that log.
const modulePrefix = "milena/internal/"

// loggerNames are the packages that write log lines, each a logger whose level can be set at run time (KIP-412): the import
// path below internal, with dots.
func loggerNames() []string {
	return []string{
		"cli", "console", "controller", "coord", "coord.group", "coord.mirrorstate", "demo", "handle.admin", "handle.cluster", "handle.data",
		"handle.group", "handle.mirror", "logdir", "machine", "metafollow", "mirror", "node", "partlog", "peer", "quorum", "quorum.transport",
		"replica", "replica.follow", "server",
	}
}

// logLevels are the levels of a process's loggers. What other modules log goes by the root's.
type logLevels struct {
	*handleadmin.LogLevels
	root   *slog.LevelVar
	byName map[string]*slog.LevelVar
	lowest atomic.Int64 // of all
}

func newLogLevels(level slog.Level) *logLevels {
	l := &logLevels{root: &slog.LevelVar{}, byName: map[string]*slog.LevelVar{}}
	l.root.Set(level)
	for _, name := range loggerNames() {
		l.byName[name] = &slog.LevelVar{}
	}
	l.LogLevels = handleadmin.NewLogLevels(l.root, l.byName)
	l.lowest.Store(int64(level))
	return l
}

// SetLevel changes a logger's level; with nil it follows the root again.
func (l *logLevels) SetLevel(name string, level *slog.Level) error {
	if err := l.LogLevels.SetLevel(name, level); err != nil {
		return err
	}
	lowest := l.root.Level()
	for _, v := range l.byName {
		lowest = min(lowest, v.Level())
	}
	l.lowest.Store(int64(lowest))
	return nil
}

// of is the level that holds for a line written by the code at pc.
func (l *logLevels) of(pc uintptr) slog.Level {
	if v := l.byName[loggerOf(pc)]; v != nil {
		return v.Level()
	}
	return l.root.Level()
}

// loggerOf names the package of the code at pc, "" if it isn't this module's.
func loggerOf(pc uintptr) string {
	if pc == 0 {
		return ""
	}
	frame, _ := runtime.CallersFrames([]uintptr{pc}).Next()
	path, ok := strings.CutPrefix(frame.Function, modulePrefix)
	if !ok {
		return ""
	}
	slash := strings.LastIndexByte(path, '/') + 1
	if dot := strings.IndexByte(path[slash:], '.'); dot >= 0 {
		path = path[:slash+dot]
	}
	return strings.ReplaceAll(path, "/", ".")
}

// leveled is a handler that lets through what the level of the writing package allows. Enabled can only ask whether any
// package's would: which one writes is known with the line.
type leveled struct {
	slog.Handler
	levels *logLevels
}

func (h leveled) Enabled(_ context.Context, level slog.Level) bool {
	return int64(level) >= h.levels.lowest.Load()
}

func (h leveled) Handle(ctx context.Context, r slog.Record) error {
	if r.Level < h.levels.of(r.PC) {
		return nil
	}
	return h.Handler.Handle(ctx, r)
}

func (h leveled) WithAttrs(attrs []slog.Attr) slog.Handler {
	return leveled{h.Handler.WithAttrs(attrs), h.levels}
}

func (h leveled) WithGroup(name string) slog.Handler {
	return leveled{h.Handler.WithGroup(name), h.levels}
}
