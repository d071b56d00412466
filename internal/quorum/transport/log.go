package transport

import (
	"errors"
	"log/slog"

	"milena/internal/api"
	"milena/internal/quorum"
)

// levelOf is Warn for what an operator has to look at: a refusal; a node that is away is
// Info.
func levelOf(err error) slog.Level {
	var refused *api.Error
	if errors.As(err, &refused) {
		return slog.LevelWarn
	}
	return slog.LevelInfo
}

func attrs(to quorum.Voter, err error) []slog.Attr {
	out := []slog.Attr{slog.Int("broker", int(to.ID))}
	if len(to.Endpoints) > 0 {
		out = append(out, slog.String("address", to.Endpoints[0].Addr()))
	}
	if err != nil {
		out = append(out, slog.Any("error", err))
	}
	return out
}
