package peertest

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// Security is what a SASL_SSL listener and its clients need: a certificate authority, the broker's certificate,
// and one user for each of PLAIN, SCRAM-SHA-256 and SCRAM-SHA-512.
type Security struct {
	// User and Password are valid with every mechanism.
	User, Password string
	// StorePassword protects the stores and the keys in them.
	StorePassword string
	// CAPEM is the authority's certificate as PEM; TrustJKS and TrustPKCS12 hold the same as stores.
	CAPEM, TrustJKS, TrustPKCS12 string

	brokerJKS string
}

// NewSecurity makes keys, certificates and stores in dir. The stores are made by openssl and keytool, so that they
// are what Java users have.
func NewSecurity(ctx context.Context, dir string) (*Security, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	s := &Security{
		User: "mirror", Password: "secret with spaces $1", StorePassword: "changeit-1",
		CAPEM: filepath.Join(dir, "ca.pem"), TrustJKS: filepath.Join(dir, "trust.jks"), TrustPKCS12: filepath.Join(dir, "trust.p12"),
		brokerJKS: filepath.Join(dir, "broker.jks"),
	}
	certPEM, keyPEM, brokerP12 := filepath.Join(dir, "broker.pem"), filepath.Join(dir, "broker.key"), filepath.Join(dir, "broker.p12")
	if err := writeCertificates(s.CAPEM, certPEM, keyPEM); err != nil {
		return nil, err
	}
	pass := s.StorePassword
	for _, c := range []Command{
		{Path: "openssl", Args: []string{"pkcs12", "-export", "-in", certPEM, "-inkey", keyPEM, "-certfile", s.CAPEM,
			"-name", "broker", "-out", brokerP12, "-passout", "pass:" + pass}},
		{Path: "keytool", Args: []string{"-importkeystore", "-noprompt", "-srckeystore", brokerP12, "-srcstoretype", "PKCS12",
			"-srcstorepass", pass, "-destkeystore", s.brokerJKS, "-deststoretype", "JKS", "-deststorepass", pass}},
		{Path: "keytool", Args: []string{"-importcert", "-noprompt", "-alias", "ca", "-file", s.CAPEM,
			"-keystore", s.TrustJKS, "-storetype", "JKS", "-storepass", pass}},
		{Path: "keytool", Args: []string{"-importcert", "-noprompt", "-alias", "ca", "-file", s.CAPEM,
			"-keystore", s.TrustPKCS12, "-storetype", "PKCS12", "-storepass", pass}},
	} {
		if _, err := Run(ctx, c); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// writeCertificates makes an authority and a certificate of it for the loopback addresses.
func writeCertificates(caPath, certPath, keyPath string) error {
	caKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	now := time.Now()
	ca := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "interop test authority"},
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(48 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	caDER, err := x509.CreateCertificate(rand.Reader, ca, ca, &caKey.PublicKey, caKey)
	if err != nil {
		return err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	leaf := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "localhost"},
		DNSNames: []string{"localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback},
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(48 * time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	leafDER, err := x509.CreateCertificate(rand.Reader, leaf, ca, &key.PublicKey, caKey)
	if err != nil {
		return err
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	for _, f := range []struct {
		path, kind string
		der        []byte
	}{{caPath, "CERTIFICATE", caDER}, {certPath, "CERTIFICATE", leafDER}, {keyPath, "PRIVATE KEY", keyDER}} {
		if err := os.WriteFile(f.path, pem.EncodeToMemory(&pem.Block{Type: f.kind, Bytes: f.der}), 0o600); err != nil {
			return err
		}
	}
	return nil
}

func (s *Security) brokerProperties() map[string]string {
	const listener = "listener.name.sasl_ssl."
	jaas := fmt.Sprintf(`org.apache.kafka.common.security.plain.PlainLoginModule required user_%s="%s";`, s.User, s.Password)
	scram := `org.apache.kafka.common.security.scram.ScramLoginModule required;`
	return map[string]string{
		"ssl.keystore.location":                     s.brokerJKS,
		"ssl.keystore.password":                     s.StorePassword,
		"ssl.key.password":                          s.StorePassword,
		"ssl.keystore.type":                         "JKS",
		listener + "sasl.enabled.mechanisms":        "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
		listener + "plain.sasl.jaas.config":         jaas,
		listener + "scram-sha-256.sasl.jaas.config": scram,
		listener + "scram-sha-512.sasl.jaas.config": scram,
		"sasl.mechanism.controller.protocol":        "PLAIN",
	}
}

func (s *Security) formatArgs() []string {
	return []string{
		"--add-scram", fmt.Sprintf("SCRAM-SHA-256=[name=%s,password=%s]", s.User, s.Password),
		"--add-scram", fmt.Sprintf("SCRAM-SHA-512=[name=%s,password=%s]", s.User, s.Password),
	}
}

// ClientProperties are a Kafka client's properties for the SASL_SSL listener. store is "JKS", "PKCS12" or "PEM".
func (s *Security) ClientProperties(mechanism, store string) map[string]string {
	module := "org.apache.kafka.common.security.scram.ScramLoginModule"
	if mechanism == "PLAIN" {
		module = "org.apache.kafka.common.security.plain.PlainLoginModule"
	}
	props := map[string]string{
		"security.protocol": "SASL_SSL",
		"sasl.mechanism":    mechanism,
		"sasl.jaas.config":  fmt.Sprintf(`%s required username="%s" password="%s";`, module, s.User, s.Password),
	}
	switch store {
	case "PEM":
		props["ssl.truststore.type"], props["ssl.truststore.location"] = "PEM", s.CAPEM
	case "PKCS12":
		props["ssl.truststore.type"], props["ssl.truststore.location"], props["ssl.truststore.password"] = "PKCS12", s.TrustPKCS12, s.StorePassword
	default:
		props["ssl.truststore.type"], props["ssl.truststore.location"], props["ssl.truststore.password"] = "JKS", s.TrustJKS, s.StorePassword
	}
	return props
}
