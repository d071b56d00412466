package quorum

import (
	"context"
	"fmt"
	"log/slog"

	"go.etcd.io/raft/v3"
)

// raftLogger passes raft's log on. What is news to raft is detail to us.
type raftLogger struct{ l *slog.Logger }

var _ raft.Logger = raftLogger{}

func (r raftLogger) Debug(v ...any)                   { r.log(slog.LevelDebug, "", v) }
func (r raftLogger) Debugf(format string, v ...any)   { r.log(slog.LevelDebug, format, v) }
func (r raftLogger) Info(v ...any)                    { r.log(slog.LevelDebug, "", v) }
func (r raftLogger) Infof(format string, v ...any)    { r.log(slog.LevelDebug, format, v) }
func (r raftLogger) Warning(v ...any)                 { r.log(slog.LevelWarn, "", v) }
func (r raftLogger) Warningf(format string, v ...any) { r.log(slog.LevelWarn, format, v) }
func (r raftLogger) Error(v ...any)                   { r.log(slog.LevelError, "", v) }
func (r raftLogger) Errorf(format string, v ...any)   { r.log(slog.LevelError, format, v) }

// Raft relies on these not to return; loop recovers and ends the node.
func (r raftLogger) Fatal(v ...any)                 { panic(text("", v)) }
func (r raftLogger) Fatalf(format string, v ...any) { panic(text(format, v)) }
func (r raftLogger) Panic(v ...any)                 { panic(text("", v)) }
func (r raftLogger) Panicf(format string, v ...any) { panic(text(format, v)) }

func (r raftLogger) log(level slog.Level, format string, v []any) {
	if ctx := context.Background(); r.l.Enabled(ctx, level) {
		r.l.Log(ctx, level, "raft", "message", text(format, v))
	}
}

// text formats as fmt.Sprintf, or as fmt.Sprint if there is no format.
func text(format string, v []any) string {
	if format == "" {
		return fmt.Sprint(v...)
	}
	return fmt.Sprintf(format, v...)
}
