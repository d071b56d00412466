package admin

import (
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"

	"milena/internal/api"
	"milena/internal/config"
)

// RootLogger is the name of the logger that all others inherit their level from.
const RootLogger = "root"

// LogLevels is [Loggers] over the level variables of handlers. The root's variable belongs to the process; the others follow
// it until they are set.
type LogLevels struct {
	mu    sync.Mutex
	first slog.Level // of the root at start
	vars  map[string]*slog.LevelVar
	own   map[string]bool
}

// NewLogLevels takes the root's variable and those of named loggers.
func NewLogLevels(root *slog.LevelVar, named map[string]*slog.LevelVar) *LogLevels {
	l := &LogLevels{first: root.Level(), vars: maps.Clone(named), own: map[string]bool{}}
	if l.vars == nil {
		l.vars = map[string]*slog.LevelVar{}
	}
	for _, v := range l.vars {
		v.Set(l.first)
	}
	l.vars[RootLogger] = root
	return l
}

// Levels returns each logger's level.
func (l *LogLevels) Levels() map[string]slog.Level {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := map[string]slog.Level{}
	for name, v := range l.vars {
		out[name] = v.Level()
	}
	return out
}

// SetLevel changes a logger's level; with nil it follows the root again, the root goes back to its level at start.
func (l *LogLevels) SetLevel(name string, level *slog.Level) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	v, ok := l.vars[name]
	if !ok {
		return fmt.Errorf("there is no logger %q", name)
	}
	root := l.vars[RootLogger]
	l.own[name] = level != nil
	switch {
	case level != nil:
		v.Set(*level)
	case name == RootLogger:
		v.Set(l.first)
	}
	for other, o := range l.vars {
		if !l.own[other] && other != RootLogger {
			o.Set(root.Level())
		}
	}
	return nil
}

// Kafka's levels; slog has no TRACE and FATAL, so they stand beside DEBUG and ERROR.
var levels = []struct {
	name  string
	level slog.Level
}{
	{"TRACE", slog.LevelDebug - 4}, {"DEBUG", slog.LevelDebug}, {"INFO", slog.LevelInfo}, {"WARN", slog.LevelWarn},
	{"ERROR", slog.LevelError}, {"FATAL", slog.LevelError + 4},
}

func levelName(l slog.Level) string {
	name := levels[0].name
	for _, k := range levels {
		if l >= k.level {
			name = k.name
		}
	}
	return name
}

func levelByName(s string) (slog.Level, bool) {
	for _, k := range levels {
		if k.name == s {
			return k.level, true
		}
	}
	return 0, false
}

// loggerEntries describes the loggers of this broker.
func (h *Configs) loggerEntries() []config.Entry {
	all := h.o.Loggers.Levels()
	var out []config.Entry
	for _, name := range slices.Sorted(maps.Keys(all)) {
		value := levelName(all[name])
		out = append(out, config.Entry{
			Def:   &config.Def{Name: name, Type: config.String},
			Value: &value, Source: config.DynamicBrokerLogger,
			Synonyms: []config.SynonymValue{{Name: name, Value: &value, Source: config.DynamicBrokerLogger}},
		})
	}
	return out
}

// alterLoggers changes levels of this broker's loggers, all or none.
func (h *Configs) alterLoggers(res resource, changes []change, validateOnly bool) error {
	if err := here("Node", h.o.Node().ID, res.name); err != nil {
		return err
	}
	if err := checkShape(changes); err != nil {
		return err
	}
	known := h.o.Loggers.Levels()
	set := make([]*slog.Level, len(changes))
	for i, c := range changes {
		if c.op != 0 && c.op != 1 { // SET and DELETE
			return api.Errorf(api.InvalidRequest, "%s operation is not allowed for the BROKER_LOGGER resource", strings.ToUpper(opName(c.op)))
		}
		if _, ok := known[c.key]; !ok {
			return api.Errorf(api.InvalidConfig, "Logger %s does not exist!", c.key)
		}
		if c.op == 1 {
			if c.key == RootLogger {
				return api.Errorf(api.InvalidRequest, "Removing the log level of the %s logger is not allowed", RootLogger)
			}
			continue
		}
		level, ok := levelByName(*c.value)
		if !ok {
			return api.Errorf(api.InvalidConfig, "Cannot set the log level of %s to %s as it is not a supported log level. Valid log levels are DEBUG, ERROR, FATAL, INFO, TRACE, WARN", c.key, *c.value)
		}
		set[i] = &level
	}
	if validateOnly {
		return nil
	}
	for i, c := range changes {
		if err := h.o.Loggers.SetLevel(c.key, set[i]); err != nil {
			return api.Errorf(api.InvalidConfig, "%w", err)
		}
	}
	return nil
}
