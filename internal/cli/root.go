package cli

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"golang.org/x/term"
)

// Main runs the command line of the process and returns its exit code.
func Main(version string) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	return int(Run(ctx, &Env{
		Program: filepath.Base(os.Args[0]), Args: os.Args[1:], Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr, Version: version,
		StdoutTerminal: term.IsTerminal(int(os.Stdout.Fd())), StderrTerminal: term.IsTerminal(int(os.Stderr.Fd())), Hostname: os.Hostname,
	}))
}

// Run executes one command line. ctx ends when the process is asked to stop.
func Run(ctx context.Context, env *Env) ExitCode {
	a := &app{env: env}
	root := a.root()
	if env.Program == mirrorToolName {
		root = a.mirrorToolCommand()
	}
	root.SetArgs(env.Args)
	root.SetIn(env.Stdin)
	root.SetOut(env.Stdout)
	root.SetErr(env.Stderr)
	if root.HasSubCommands() {
		strictCompletion(root)
	}
	err := root.ExecuteContext(ctx)
	code := exitCode(err)
	if err != nil {
		if m := message(err, a.bootstrap); m != "" {
			fmt.Fprintf(env.Stderr, "%s: %s\n", root.Name(), m)
		}
	}
	return code
}

// app is one run of the command line: the environment and the flags that all client commands share.
type app struct {
	env *Env

	bootstrap     string
	commandConfig string
	json          bool
	timeout       int64
}

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "milena",
		Short: "A Kafka-compatible broker with Cluster Mirroring built in",
		Long: "Milena is a Kafka-compatible streaming broker. Point it at any Kafka cluster and it keeps a warm standby\n" +
			"whose logs are byte for byte the source's. `milena demo` shows it, `milena server start` runs it.",
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          cobra.ArbitraryArgs,
		// A word that is no command would otherwise print the help and succeed.
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usagef("unknown command %q: see milena --help", args[0])
			}
			return cmd.Help()
		},
	}
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return usagef("%w: see %s --help", err, cmd.CommandPath())
	})
	root.AddCommand(
		a.serverCommand(), a.storageCommand(), a.demoCommand(), a.topicsCommand(), a.configsCommand(), a.groupsCommand(),
		a.produceCommand(), a.consumeCommand(), a.dumpLogCommand(), a.mirrorsCommand(), a.mirrorToolCommand(), a.quorumCommand(), a.metadataCommand(), a.clusterCommand(), a.featuresCommand(), a.versionCommand(),
	)
	root.SetHelpCommand(helpCommand())
	return root
}

// helpCommand is cobra's, but refuses what is no command.
func helpCommand() *cobra.Command {
	return &cobra.Command{
		Use: "help [command]", Short: "Help about any command",
		RunE: func(cmd *cobra.Command, args []string) error {
			target, rest, err := cmd.Root().Find(args)
			switch {
			case err != nil:
				return usagef("help: %w", err)
			case len(rest) > 0:
				return usagef("help: unknown command %q: see %s --help", rest[0], target.CommandPath())
			}
			target.InitDefaultHelpFlag()
			return target.Help()
		},
	}
}

// strictCompletion adds cobra's completion command, which prints help and succeeds for a shell it doesn't know, and lets it refuse
// one. It keeps the root's output as it is now.
func strictCompletion(root *cobra.Command) {
	root.InitDefaultCompletionCmd()
	for _, c := range root.Commands() {
		if c.Name() == "completion" {
			c.Args, c.RunE = cobra.ArbitraryArgs, needsCommand
		}
	}
}

func (a *app) versionCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "version", Short: "Print the version", Args: noArgs,
		RunE: func(*cobra.Command, []string) error {
			if a.json {
				return a.printJSON(map[string]any{"version": a.env.Version, "go": runtime.Version()})
			}
			a.printf("milena %s\n", a.env.Version)
			return nil
		},
	}
	c.Flags().BoolVar(&a.json, "json", false, "print JSON instead of text")
	return c
}

// words is the command without the program's name, which stands before every error anyway.
func words(cmd *cobra.Command) string {
	_, rest, _ := strings.Cut(cmd.CommandPath(), " ")
	return rest
}

func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usagef("%s takes no argument, got %q: see %s --help", words(cmd), args[0], cmd.CommandPath())
	}
	return nil
}

// exactly wraps cobra's argument count so that a wrong one is a usage error which names what is missing.
func exactly(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) < len(names):
			return usagef("%s needs %s: see %s --help", words(cmd), names[len(args)], cmd.CommandPath())
		case len(args) > len(names):
			return usagef("%s: unexpected argument %q: see %s --help", words(cmd), args[len(names)], cmd.CommandPath())
		}
		return nil
	}
}

// values offers the values of a flag to shell completion.
func values(c *cobra.Command, flag string, vs ...string) {
	// It fails only for a flag that does not exist, or twice; a test completes each.
	_ = c.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(vs, cobra.ShellCompDirectiveNoFileComp))
}

// group is a command that only holds subcommands.
func group(use, short string, subs ...*cobra.Command) *cobra.Command {
	c := &cobra.Command{Use: use, Short: short, RunE: needsCommand}
	c.AddCommand(subs...)
	return c
}

// needsCommand is run when none of a group's subcommands is named.
func needsCommand(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usagef("%s has no command %q: see %s --help", words(cmd), args[0], cmd.CommandPath())
	}
	var names []string
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() {
			names = append(names, c.Name())
		}
	}
	return usagef("%s needs a command, one of %s: see %s --help", words(cmd), strings.Join(names, ", "), cmd.CommandPath())
}
