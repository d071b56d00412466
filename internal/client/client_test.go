package client

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/pavlo-v-chernykh/keystore-go/v4"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/youmark/pkcs8"
	"software.sslmate.com/src/go-pkcs12"
)

// Every property of Kafka 4.4's clients is in one of the three classes, and nothing else is.
func TestEveryKafkaPropertyHasAClass(t *testing.T) {
	b, err := os.ReadFile("testdata/kafka-4.4-client-properties.txt")
	if err != nil {
		t.Fatal(err)
	}
	classes := propertyClasses()
	names := strings.Fields(string(b))
	for _, n := range names {
		if _, ok := classes[n]; !ok {
			t.Errorf("%s has no class", n)
		}
		delete(classes, n)
	}
	for n := range classes {
		t.Errorf("%s is no property of Kafka 4.4's clients", n)
	}
	if len(names) < 130 {
		t.Errorf("only %d names read", len(names))
	}
}

func TestParseRefusesByName(t *testing.T) {
	for _, tc := range []struct{ name, value, want string }{
		{"security.protocoll", "SSL", "security.protocoll is not a Kafka client property"},
		{"interceptor.classes", "a.b.C", "interceptor.classes is not supported"},
		{"sasl.login.class", "a.b.C", "sasl.login.class is not supported"},
		{"ssl.engine.factory.class", "a.b.C", "ssl.engine.factory.class is not supported"},
		{"security.protocol", "TLS", "security.protocol"},
		{"request.timeout.ms", "soon", "request.timeout.ms"},
		{"request.timeout.ms", "-1", "below the lowest"},
		{"bootstrap.servers", "nowhere", `"nowhere" is not HOST:PORT`},
		{"bootstrap.servers", "host:A", `"host:A" is not HOST:PORT`},
		{"bootstrap.servers", "host:65536", `"host:65536" is not HOST:PORT`},
		{"bootstrap.servers", ":9092", `":9092" is not HOST:PORT`},
	} {
		_, err := Parse(map[string]string{tc.name: tc.value})
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s=%s: got %v, want an error with %q", tc.name, tc.value, err, tc.want)
		}
	}
}

func TestParseSASL(t *testing.T) {
	for _, tc := range []struct{ mechanism, jaas, want string }{
		{"PLAIN", plainModule + ` required username="alice" password="s3cret;";`, ""},
		{"PLAIN", plainModule + " required\n  username=alice\n  password='it\\'s';", ""},
		{"SCRAM-SHA-256", scramModule + ` required username="alice" password="x";`, ""},
		{"SCRAM-SHA-512", scramModule + ` REQUIRED username="alice" password="x" tokenauth="true";`, ""},
		{"PLAIN", scramModule + ` required username="alice" password="x";`, "does not fit"},
		{"PLAIN", plainModule + ` required username="alice" password="x"`, "final semicolon"},
		{"PLAIN", plainModule + ` maybe username="alice";`, "control flag"},
		{"PLAIN", plainModule + ` required password="x";`, "username is missing"},
		{"PLAIN", plainModule + ` required username="alice;`, "not closed"},
		{"PLAIN", plainModule + ` required serviceName="kafka" username="a";`, "serviceName is not supported"},
		{"PLAIN", "", "sasl.jaas.config: is needed"},
		{"GSSAPI", "x", "GSSAPI"},
	} {
		c, err := Parse(map[string]string{"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": tc.mechanism, "sasl.jaas.config": tc.jaas})
		switch {
		case tc.want == "" && err != nil:
			t.Errorf("%s %s: %v", tc.mechanism, tc.jaas, err)
		case tc.want == "" && c.SASL.Name() != tc.mechanism:
			t.Errorf("mechanism %s, want %s", c.SASL.Name(), tc.mechanism)
		case tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)):
			t.Errorf("%s %s: got %v, want %q", tc.mechanism, tc.jaas, err, tc.want)
		}
	}
	if _, err := Parse(map[string]string{"security.protocol": "SASL_SSL"}); err == nil || !strings.Contains(err.Error(), "sasl.mechanism") {
		t.Errorf("the unsupported default GSSAPI went through: %v", err)
	}
}

// stores is a certificate authority and a leaf signed by it, written in every store format.
type stores struct {
	dir    string
	ca     *x509.Certificate
	leaf   *x509.Certificate
	key    *ecdsa.PrivateKey
	server tls.Certificate
}

func newStores(t *testing.T) *stores {
	t.Helper()
	caKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	ca := certificate(t, "ca", nil, caKey, caKey)
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	leaf := certificate(t, "localhost", ca, key, caKey)
	return &stores{dir: t.TempDir(), ca: ca, leaf: leaf, key: key, server: tls.Certificate{Certificate: [][]byte{leaf.Raw}, PrivateKey: key}}
}

func certificate(t *testing.T, name string, parent *x509.Certificate, key, signer *ecdsa.PrivateKey) *x509.Certificate {
	t.Helper()
	tmpl := &x509.Certificate{SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: parent == nil, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, DNSNames: []string{name}}
	if parent == nil {
		parent = tmpl
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, parent, &key.PublicKey, signer)
	must(t, err)
	c, err := x509.ParseCertificate(der)
	must(t, err)
	return c
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (s *stores) file(t *testing.T, name string, data []byte) string {
	t.Helper()
	path := filepath.Join(s.dir, name)
	must(t, os.WriteFile(path, data, 0o600))
	return path
}

func certPEM(c *x509.Certificate) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Raw}))
}

func (s *stores) keyPEM(t *testing.T, password string) string {
	t.Helper()
	if password == "" {
		der, err := x509.MarshalPKCS8PrivateKey(s.key)
		must(t, err)
		return string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))
	}
	der, err := pkcs8.MarshalPrivateKey(s.key, []byte(password), nil)
	must(t, err)
	return string(pem.EncodeToMemory(&pem.Block{Type: "ENCRYPTED PRIVATE KEY", Bytes: der}))
}

// settings returns, by format, the properties of a trust store with the authority and a key store with the leaf.
func (s *stores) settings(t *testing.T) map[string]map[string]string {
	t.Helper()
	trust12, err := pkcs12.Modern2023.EncodeTrustStore([]*x509.Certificate{s.ca}, "changeit")
	must(t, err)
	key12, err := pkcs12.Modern2023.Encode(s.key, s.leaf, []*x509.Certificate{s.ca}, "changeit")
	must(t, err)
	trustJKS, keyJKS := keystore.New(), keystore.New()
	der, err := x509.MarshalPKCS8PrivateKey(s.key)
	must(t, err)
	must(t, trustJKS.SetTrustedCertificateEntry("ca", keystore.TrustedCertificateEntry{CreationTime: time.Now(), Certificate: keystore.Certificate{Type: "X509", Content: s.ca.Raw}}))
	must(t, keyJKS.SetPrivateKeyEntry("me", keystore.PrivateKeyEntry{CreationTime: time.Now(), PrivateKey: der, CertificateChain: []keystore.Certificate{{Type: "X509", Content: s.leaf.Raw}}}, []byte("keypass")))
	var tj, kj bytes.Buffer
	must(t, trustJKS.Store(&tj, []byte("changeit")))
	must(t, keyJKS.Store(&kj, []byte("changeit")))
	return map[string]map[string]string{
		"pem inline": {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": certPEM(s.ca),
			"ssl.keystore.type": "PEM", "ssl.keystore.certificate.chain": certPEM(s.leaf), "ssl.keystore.key": s.keyPEM(t, "")},
		"pem inline encrypted": {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": certPEM(s.ca), "ssl.key.password": "pw",
			"ssl.keystore.type": "PEM", "ssl.keystore.certificate.chain": certPEM(s.leaf), "ssl.keystore.key": s.keyPEM(t, "pw")},
		"pem file": {"ssl.truststore.type": "PEM", "ssl.truststore.location": s.file(t, "ca.pem", []byte(certPEM(s.ca))),
			"ssl.keystore.type": "PEM", "ssl.keystore.location": s.file(t, "key.pem", []byte(s.keyPEM(t, "")+certPEM(s.leaf)))},
		"pkcs12": {"ssl.truststore.type": "PKCS12", "ssl.truststore.location": s.file(t, "trust.p12", trust12), "ssl.truststore.password": "changeit",
			"ssl.keystore.type": "PKCS12", "ssl.keystore.location": s.file(t, "key.p12", key12), "ssl.keystore.password": "changeit"},
		"pkcs12 without java's mark of trust": {"ssl.truststore.type": "PKCS12", "ssl.truststore.location": s.file(t, "plain.p12", key12), "ssl.truststore.password": "changeit",
			"ssl.keystore.type": "PKCS12", "ssl.keystore.location": s.file(t, "key3.p12", key12), "ssl.keystore.password": "changeit"},
		"pkcs12 called jks": {"ssl.truststore.location": s.file(t, "trust2.jks", trust12), "ssl.truststore.password": "changeit",
			"ssl.keystore.location": s.file(t, "key2.jks", key12), "ssl.keystore.password": "changeit"},
		"jks": {"ssl.truststore.location": s.file(t, "trust.jks", tj.Bytes()), "ssl.truststore.password": "changeit",
			"ssl.keystore.location": s.file(t, "key.jks", kj.Bytes()), "ssl.keystore.password": "changeit", "ssl.key.password": "keypass"},
	}
}

// A TLS server that demands a client certificate is reached with every store format.
func TestDialTLSWithEveryStoreFormat(t *testing.T) {
	s := newStores(t)
	cas := x509.NewCertPool()
	cas.AddCert(s.ca)
	ln, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{s.server}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: cas})
	must(t, err)
	defer ln.Close()
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				_, _ = c.Write([]byte("x")) // completes the handshake, the verification of the client included
			}()
		}
	}()
	_, port, err := net.SplitHostPort(ln.Addr().String())
	must(t, err)
	dial := func(m map[string]string, host string) error {
		m["security.protocol"] = "SSL"
		c, err := Parse(m)
		if err != nil {
			return err
		}
		conn, err := c.Dial(context.Background(), func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "tcp", ln.Addr().String())
		}, "tcp", net.JoinHostPort(host, port))
		if err != nil {
			return err
		}
		defer conn.Close()
		_, err = conn.Read(make([]byte, 1))
		return err
	}
	for name, m := range s.settings(t) {
		if err := dial(m, "localhost"); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if err := dial(m, "elsewhere"); err == nil || !strings.Contains(err.Error(), "ssl.endpoint.identification.algorithm") {
			t.Errorf("%s: a wrong host name went through: %v", name, err)
		}
		m["ssl.endpoint.identification.algorithm"] = ""
		if err := dial(m, "elsewhere"); err != nil {
			t.Errorf("%s without host name check: %v", name, err)
		}
		other := newStores(t)
		m["ssl.truststore.type"], m["ssl.truststore.certificates"] = "PEM", certPEM(other.ca)
		delete(m, "ssl.truststore.location")
		if err := dial(m, "elsewhere"); err == nil {
			t.Errorf("%s: an unknown authority went through", name)
		}
	}
	if err := dial(map[string]string{}, "localhost"); err == nil || !strings.Contains(err.Error(), "ssl.truststore.location") {
		t.Errorf("an unknown authority, or an error without advice: %v", err)
	}
}

func TestStoreErrorsNameTheProperty(t *testing.T) {
	s := newStores(t)
	for _, tc := range []struct {
		m    map[string]string
		want string
	}{
		{map[string]string{"ssl.truststore.location": "/nowhere/trust.jks"}, "property ssl.truststore.location: open /nowhere/trust.jks: no such file or directory: check the path"},
		{map[string]string{"ssl.keystore.location": "/nowhere/key.jks"}, "property ssl.keystore.location: open /nowhere/key.jks: no such file or directory: check the path"},
		{map[string]string{"ssl.truststore.type": "BKS", "ssl.truststore.location": s.file(t, "a", []byte("x"))}, "BKS"},
		{map[string]string{"ssl.truststore.type": "PEM", "ssl.truststore.location": s.file(t, "b", []byte("no pem"))}, "no certificate"},
		{map[string]string{"ssl.keystore.type": "PEM", "ssl.keystore.certificate.chain": certPEM(s.leaf), "ssl.keystore.key": s.keyPEM(t, "pw")}, "ssl.key.password"},
		{map[string]string{"ssl.keystore.key": "x", "ssl.keystore.certificate.chain": "y"}, "ssl.keystore.type=PEM"},
		{map[string]string{"ssl.enabled.protocols": "SSLv3"}, "ssl.enabled.protocols"},
		{map[string]string{"ssl.cipher.suites": "TLS_RSA_WITH_NULL_MD5"}, "ssl.cipher.suites"},
	} {
		tc.m["security.protocol"] = "SSL"
		if _, err := Parse(tc.m); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%v: got %v, want %q", tc.m, err, tc.want)
		}
	}
}

func TestProducerAndConsumerOptions(t *testing.T) {
	parse := func(k, v string) *Config {
		t.Helper()
		c, err := Parse(map[string]string{k: v, "bootstrap.servers": "127.0.0.1:1"})
		must(t, err)
		return c
	}
	for _, tc := range []struct{ k, v, want string }{
		{"acks", "2", "acks"}, {"compression.type", "brotli", "compression.type"}, {"linger.ms", "x", "linger.ms"}, {"enable.idempotence", "yes", "enable.idempotence"},
	} {
		if _, err := parse(tc.k, tc.v).ProducerOpts(); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s=%s: %v", tc.k, tc.v, err)
		}
	}
	for _, tc := range []struct{ k, v, want string }{
		{"isolation.level", "serializable", "isolation.level"}, {"auto.offset.reset", "middle", "auto.offset.reset"},
	} {
		if _, err := parse(tc.k, tc.v).ConsumerOpts(""); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s=%s: %v", tc.k, tc.v, err)
		}
	}
	c := parse("acks", "1")
	opts, err := c.ProducerOpts()
	must(t, err)
	cl, err := kgo.NewClient(append(c.KgoOpts(nil), opts...)...)
	must(t, err)
	defer cl.Close()
	if got := cl.OptValue(kgo.RequiredAcks); got != kgo.LeaderAck() {
		t.Errorf("acks %v", got)
	}
}

// What commands ask of a set besides options, with Kafka's defaults.
func TestConsumerAndProducerProperties(t *testing.T) {
	c, err := Parse(map[string]string{})
	must(t, err)
	if c.Reset() != "latest" || c.Committed() || c.MaxRequestSize(7) != 7 {
		t.Errorf("defaults: %s %t %d", c.Reset(), c.Committed(), c.MaxRequestSize(7))
	}
	c, err = Parse(map[string]string{"auto.offset.reset": "earliest", "isolation.level": "read_committed", "max.request.size": "99999999999", "request.timeout.ms": "9223372036854775807"})
	must(t, err)
	if c.Reset() != "earliest" || !c.Committed() || c.MaxRequestSize(7) != 1<<31-1 || c.RequestTimeout <= 0 {
		t.Errorf("set: %s %t %d %s", c.Reset(), c.Committed(), c.MaxRequestSize(7), c.RequestTimeout)
	}
}
