package client

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
)

// tlsConfig builds the client side of TLS from the ssl.* properties.
func tlsConfig(p *props) *tls.Config {
	c := &tls.Config{MinVersion: tls.VersionTLS12, MaxVersion: tls.VersionTLS13}
	protocolVersions(p, c)
	cipherSuites(p, c)
	roots, err := trustStore(p)
	if err != nil {
		p.fail("ssl.truststore", "%v", err)
		return nil
	}
	c.RootCAs = roots
	cert, err := keyStore(p)
	if err != nil {
		p.fail("ssl.keystore", "%v", err)
		return nil
	}
	if cert != nil {
		c.Certificates = []tls.Certificate{*cert}
	}
	switch alg := p.str("ssl.endpoint.identification.algorithm", "https"); alg {
	case "https", "HTTPS":
	case "":
		// Kafka's meaning of the empty string: the chain is verified, the host name is not.
		c.InsecureSkipVerify = true
		c.VerifyConnection = func(cs tls.ConnectionState) error { return verifyChain(cs, roots) }
	default:
		p.fail("ssl.endpoint.identification.algorithm", "%q is not supported: use https, or leave it empty to skip the host name check", alg)
	}
	return c
}

func verifyChain(cs tls.ConnectionState, roots *x509.CertPool) error {
	if len(cs.PeerCertificates) == 0 {
		return errors.New("the server sent no certificate")
	}
	inter := x509.NewCertPool()
	for _, c := range cs.PeerCertificates[1:] {
		inter.AddCert(c)
	}
	_, err := cs.PeerCertificates[0].Verify(x509.VerifyOptions{Roots: roots, Intermediates: inter})
	return err
}

func protocolVersions(p *props, c *tls.Config) {
	number := func(key, name string) uint16 {
		switch name {
		case "TLSv1.2":
			return tls.VersionTLS12
		case "TLSv1.3", "TLS":
			return tls.VersionTLS13
		}
		p.fail(key, "%q is not supported: use TLSv1.2 or TLSv1.3", name)
		return 0
	}
	number("ssl.protocol", p.str("ssl.protocol", "TLSv1.3"))
	enabled := p.list("ssl.enabled.protocols")
	if len(enabled) == 0 {
		return
	}
	var nums []uint16
	for _, e := range enabled {
		nums = append(nums, number("ssl.enabled.protocols", e))
	}
	c.MinVersion, c.MaxVersion = slices.Min(nums), slices.Max(nums)
}

func cipherSuites(p *props, c *tls.Config) {
	for _, name := range p.list("ssl.cipher.suites") {
		i := slices.IndexFunc(tls.CipherSuites(), func(s *tls.CipherSuite) bool { return s.Name == name })
		if i < 0 {
			p.fail("ssl.cipher.suites", "%s is unknown or considered insecure", name)
			return
		}
		// TLS 1.3 suites are fixed in Go: naming one is accepted, since all three are always offered.
		if s := tls.CipherSuites()[i]; slices.Contains(s.SupportedVersions, tls.VersionTLS12) {
			c.CipherSuites = append(c.CipherSuites, s.ID)
		}
	}
	if names := p.list("ssl.cipher.suites"); len(names) > 0 && len(c.CipherSuites) == 0 {
		c.MinVersion = tls.VersionTLS13
	}
}

// describeCertificateError adds what usually helps to the errors of a first TLS contact.
func describeCertificateError(err error) error {
	var unknown x509.UnknownAuthorityError
	var host x509.HostnameError
	switch {
	case errors.As(err, &unknown):
		return fmt.Errorf("%w: set ssl.truststore.location (or ssl.truststore.certificates) to the certificate authority of the cluster", err)
	case errors.As(err, &host):
		return fmt.Errorf("%w: connect by a name in the certificate, or set ssl.endpoint.identification.algorithm to the empty string", err)
	}
	return err
}
