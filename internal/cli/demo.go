package cli

import (
	"log/slog"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"milena/internal/demo"
)

func (a *app) demoCommand() *cobra.Command {
	var once bool
	var level string
	var steady time.Duration
	c := &cobra.Command{
		Use: "demo", Short: "Show a mirror at work: two clusters in one process", Args: noArgs,
		Long: "Starts two clusters on loopback with temporary data, a producer and a consumer group on the first, and a mirror on\n" +
			"the second. It shows states, offsets and lag while they run, loses the first cluster, and goes on on the second.\n" +
			"--once plays it in seconds without a terminal and succeeds only if everything was verified: the batches in both\n" +
			"sides' segment files byte for byte, the groups' offsets, and a write to the standby that was read back.",
		Example: "  milena demo\n  milena demo --once --json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			log, err := a.demoLogger(level)
			if err != nil {
				return err
			}
			o := demo.Options{Out: a.env.Stdout, Terminal: a.env.StdoutTerminal, Logger: log, Version: a.env.Version, Steady: steady}
			if a.json {
				o.Out, o.Terminal = a.env.Stderr, false // standard output is the one line
			}
			play := demo.Live
			if once {
				play = demo.Once
			}
			res, err := play(cmd.Context(), o)
			if a.json {
				if err := a.printJSON(res); err != nil {
					return err
				}
			}
			if err != nil {
				return &exitError{ExitFailed, err}
			}
			return nil
		},
	}
	c.Flags().BoolVar(&once, "once", false, "play it once, verify everything, and end")
	c.Flags().BoolVar(&a.json, "json", false, "end with one line of JSON on standard output; the story goes to standard error")
	c.Flags().StringVar(&level, "log-level", "off", "show the clusters' own logs on standard error: debug, info, warn, error or off")
	c.Flags().DurationVar(&steady, "steady", 20*time.Second, "without --once: how long to mirror before the first cluster is lost")
	return c
}

func (a *app) demoLogger(level string) (*slog.Logger, error) {
	if level == "off" {
		return slog.New(slog.DiscardHandler), nil
	}
	log, _, err := a.logger(&serverFlags{level: strings.ToLower(level), format: "text"})
	return log, err
}
