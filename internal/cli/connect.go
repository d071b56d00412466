package cli

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"milena/internal/client"
	"milena/internal/config"
)

// clientFlags adds the flags that every client command has.
func (a *app) clientFlags(c *cobra.Command) *cobra.Command {
	f := c.Flags()
	f.StringVar(&a.bootstrap, "bootstrap-server", "127.0.0.1:9092", "the cluster, `HOST:PORT[,…]`")
	f.StringVar(&a.commandConfig, "command-config", "", "Kafka client properties `FILE`")
	f.BoolVar(&a.json, "json", false, "print JSON instead of text")
	f.Int64Var(&a.timeout, "timeout-ms", 60000, "give up after so many milliseconds")
	return c
}

// settings reads --command-config and lets --bootstrap-server win over its bootstrap.servers.
func (a *app) settings(cmd *cobra.Command) (*client.Config, error) {
	props := map[string]string{}
	if a.commandConfig != "" {
		m, err := propertiesFile(a.commandConfig)
		if err != nil {
			return nil, usagef("--command-config: %w", err)
		}
		props = m
	}
	if _, ok := props["bootstrap.servers"]; !ok || cmd.Flags().Changed("bootstrap-server") {
		props["bootstrap.servers"] = a.bootstrap
	}
	a.bootstrap = props["bootstrap.servers"]
	if _, ok := props["client.id"]; !ok {
		props["client.id"] = "milena-cli"
	}
	if _, ok := props["default.api.timeout.ms"]; !ok {
		props["default.api.timeout.ms"] = fmt.Sprint(a.timeout)
	}
	c, err := client.Parse(props)
	if err != nil {
		return nil, &usageError{err}
	}
	return c, nil
}

// connect opens a client with the command's settings and checks that the cluster answers, so that an address nobody
// listens on is an error within seconds and not after the retries of the first request.
func (a *app) connect(cmd *cobra.Command, extra ...kgo.Opt) (*kgo.Client, error) {
	c, err := a.settings(cmd)
	if err != nil {
		return nil, err
	}
	return a.open(cmd.Context(), c, extra...)
}

func (a *app) open(ctx context.Context, c *client.Config, extra ...kgo.Opt) (*kgo.Client, error) {
	cl, err := kgo.NewClient(append(c.KgoOpts(nil), extra...)...)
	if err != nil {
		return nil, &usageError{err}
	}
	ctx, cancel := context.WithTimeout(ctx, min(c.OperationTimeout, 15*time.Second))
	defer cancel()
	if err := cl.Ping(ctx); err != nil {
		cl.Close()
		return nil, &exitError{ExitUnreachable, fmt.Errorf("cannot reach the cluster at %s: %w: check --bootstrap-server and --command-config", a.bootstrap, rootCause(err))}
	}
	return cl, nil
}

// admin is an admin client and the kgo client below it, for requests that kadm does not offer.
type admin struct {
	*kadm.Client
	raw *kgo.Client
}

// admin runs f with an admin client within the command's time-out.
func (a *app) admin(cmd *cobra.Command, f func(ctx context.Context, adm *admin) error) error {
	cl, err := a.connect(cmd, client.OwnSoftware())
	if err != nil {
		return err
	}
	defer cl.Close()
	timeout := time.Duration(a.timeout) * time.Millisecond
	ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
	defer cancel()
	controllers := askControllers(ctx, cl, timeout/2)
	return a.unanswered(f(ctx, &admin{Client: kadm.NewClient(cl), raw: cl}), timeout, controllers, changes(cmd))
}

// propertiesFile reads a Java properties file into a map.
func propertiesFile(path string) (map[string]string, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	ps, err := config.ParseProperties(f, path)
	if err != nil {
		return nil, err
	}
	m := make(map[string]string, len(ps))
	for _, p := range ps {
		m[p.Key] = p.Value
	}
	return m, nil
}
