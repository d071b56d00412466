package client

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"

	"milena/internal/api"
)

// Dialer opens the network connections of a client; a test replaces it.
type Dialer func(ctx context.Context, network, addr string) (net.Conn, error)

// Config is a validated set of Kafka client properties.
type Config struct {
	// Bootstrap are the addresses of bootstrap.servers, host:port each.
	Bootstrap []string
	// ClientID is client.id, empty if unset.
	ClientID string
	// TLS is nil for PLAINTEXT and SASL_PLAINTEXT.
	TLS *tls.Config
	// SASL is nil for PLAINTEXT and SSL.
	SASL sasl.Mechanism
	// RequestTimeout is request.timeout.ms: how long one request may take.
	RequestTimeout time.Duration
	// OperationTimeout is default.api.timeout.ms: how long an operation with its retries may take.
	OperationTimeout time.Duration
	// ConnectTimeout is socket.connection.setup.timeout.ms: how long a connection may take to open.
	ConnectTimeout time.Duration
	// MaxIdle is connections.max.idle.ms.
	MaxIdle time.Duration
	// Retries is how often a retriable failure is tried again.
	Retries int
	// Ignored are the properties of the set that have no meaning for Milena's clients, sorted.
	Ignored []string

	props *props
}

// Parse validates Kafka client properties. The first property that is unknown, refused or has a bad value is an
// error that names it and says what to do.
func Parse(m map[string]string) (*Config, error) {
	ignored, err := check(m)
	if err != nil {
		return nil, err
	}
	p := &props{m: maps.Clone(m)}
	c := &Config{
		Bootstrap:        p.list("bootstrap.servers"),
		ClientID:         p.str("client.id", ""),
		RequestTimeout:   p.millis("request.timeout.ms", 30*time.Second),
		OperationTimeout: p.millis("default.api.timeout.ms", time.Minute),
		ConnectTimeout:   p.millis("socket.connection.setup.timeout.ms", 10*time.Second),
		MaxIdle:          p.millis("connections.max.idle.ms", 9*time.Minute),
		Retries:          int(min(p.integer("retries", 20, 0), 1000)),
		Ignored:          ignored,
		props:            p,
	}
	for _, b := range c.Bootstrap {
		host, port, err := net.SplitHostPort(b)
		n, perr := strconv.ParseUint(port, 10, 16)
		if err != nil || perr != nil || n == 0 || host == "" {
			p.fail("bootstrap.servers", "%q is not HOST:PORT", b)
		}
	}
	protocol := strings.ToUpper(p.str("security.protocol", "PLAINTEXT"))
	switch protocol {
	case "PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL":
	default:
		p.fail("security.protocol", "%q is not one of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL", protocol)
	}
	if strings.HasSuffix(protocol, "SSL") {
		c.TLS = tlsConfig(p)
	}
	if strings.HasPrefix(protocol, "SASL") {
		c.SASL = mechanism(p)
	}
	if p.err != nil {
		return nil, p.err
	}
	return c, nil
}

// Dial opens a connection to addr (host:port), wrapped in TLS if the properties ask for it, within ConnectTimeout.
// dial nil means the system's dialer. The SASL exchange is the caller's.
func (c *Config) Dial(ctx context.Context, dial Dialer, network, addr string) (net.Conn, error) {
	if dial == nil {
		dial = (&net.Dialer{}).DialContext
	}
	if c.ConnectTimeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, c.ConnectTimeout)
		defer cancel()
	}
	conn, err := dial(ctx, network, addr)
	if err != nil || c.TLS == nil {
		return conn, err
	}
	conf := c.TLS.Clone()
	if conf.ServerName == "" {
		host, _, err := net.SplitHostPort(addr)
		if err != nil {
			return nil, errors.Join(err, conn.Close())
		}
		conf.ServerName = host
	}
	t := tls.Client(conn, conf)
	if err := t.HandshakeContext(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("TLS with %s: %w", addr, describeCertificateError(err)), conn.Close())
	}
	return t, nil
}

// KgoOpts are the options of a kgo client for these properties. dial nil means the system's dialer. The mirror
// APIs have keys unknown to kgo, so versions are not capped: they come from the cluster's ApiVersions.
func (c *Config) KgoOpts(dial Dialer) []kgo.Opt {
	opts := []kgo.Opt{
		kgo.SeedBrokers(c.Bootstrap...),
		kgo.MaxVersions(nil),
		kgo.Dialer(func(ctx context.Context, network, addr string) (net.Conn, error) {
			return c.Dial(ctx, dial, network, addr)
		}),
		kgo.RequestTimeoutOverhead(c.RequestTimeout),
		kgo.RetryTimeout(c.OperationTimeout),
		kgo.RequestRetries(c.Retries),
		kgo.ConnIdleTimeout(max(c.MaxIdle, time.Second)),
	}
	if c.ClientID != "" {
		opts = append(opts, kgo.ClientID(c.ClientID))
	}
	if c.SASL != nil {
		opts = append(opts, kgo.SASL(c.SASL))
	}
	return opts
}

// OwnSoftware has a client call itself Milena's: it is never sent to another cluster, see milena.redirect.clients.until.ms.
func OwnSoftware() kgo.Opt { return kgo.SoftwareNameAndVersion(api.SoftwareName, "1") }
