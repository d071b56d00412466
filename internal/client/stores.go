package client

import (
	"bytes"
	"crypto"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"os"

	"github.com/pavlo-v-chernykh/keystore-go/v4"
	"github.com/youmark/pkcs8"
	"software.sslmate.com/src/go-pkcs12"
)

// trustStore reads the certificate authorities: PEM text in ssl.truststore.certificates, or a PEM, PKCS12 or JKS
// file. nil means the system's.
func trustStore(p *props) (*x509.CertPool, error) {
	kind := p.str("ssl.truststore.type", "JKS")
	inline, inlined := p.m["ssl.truststore.certificates"]
	file := p.str("ssl.truststore.location", "")
	if inlined {
		if kind != "PEM" {
			return nil, fmt.Errorf("ssl.truststore.certificates needs ssl.truststore.type=PEM, not %s", kind)
		}
		if file != "" {
			return nil, errors.New("both ssl.truststore.certificates and ssl.truststore.location are set")
		}
		return pool(pemCertificates([]byte(inline)))
	}
	if file == "" {
		return nil, nil
	}
	data, err := p.readFile("ssl.truststore.location", file)
	if err != nil {
		return nil, err
	}
	password := p.str("ssl.truststore.password", "")
	switch kind {
	case "PEM":
		return pool(pemCertificates(data))
	case "PKCS12":
		return pool(pkcs12Certificates(data, password))
	case "JKS":
		return pool(jksCertificates(data, password))
	}
	return nil, fmt.Errorf("ssl.truststore.type %q is not one of PEM, PKCS12, JKS", kind)
}

// readFile reads the file that the property names; an error is noted under that property.
func (p *props) readFile(property, file string) ([]byte, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		p.fail(property, "%v: check the path", err)
	}
	return data, err
}

func pool(certs []*x509.Certificate, err error) (*x509.CertPool, error) {
	if err != nil {
		return nil, err
	}
	if len(certs) == 0 {
		return nil, errors.New("the trust store holds no certificate")
	}
	cp := x509.NewCertPool()
	for _, c := range certs {
		cp.AddCert(c)
	}
	return cp, nil
}

func pemCertificates(data []byte) ([]*x509.Certificate, error) {
	var out []*x509.Certificate
	for {
		var b *pem.Block
		if b, data = pem.Decode(data); b == nil {
			return out, nil
		}
		if b.Type != "CERTIFICATE" {
			continue
		}
		c, err := x509.ParseCertificate(b.Bytes)
		if err != nil {
			return nil, err
		}
		out = append(out, c)
	}
}

func pkcs12Certificates(data []byte, password string) ([]*x509.Certificate, error) {
	certs, err := pkcs12.DecodeTrustStore(data, password)
	if err == nil {
		return certs, nil
	}
	// A store made by openssl lacks Java's mark of a trusted entry: take its certificates as they are.
	blocks, err2 := pkcs12.ToPEM(data, password) //nolint:staticcheck // deprecated for how it writes keys; only certificates are taken here
	if err2 != nil {
		return nil, err
	}
	for _, b := range blocks {
		if b.Type != "CERTIFICATE" {
			continue
		}
		c, err := x509.ParseCertificate(b.Bytes)
		if err != nil {
			return nil, err
		}
		certs = append(certs, c)
	}
	return certs, nil
}

// loadJKS opens a JKS file. An empty password skips the integrity check, as Java does for a trust store.
func loadJKS(data []byte, password string) (keystore.KeyStore, error) {
	ks := keystore.New()
	err := ks.Load(bytes.NewReader(data), []byte(password))
	if err != nil && password == "" && len(ks.Aliases()) > 0 {
		return ks, nil
	}
	return ks, err
}

func jksCertificates(data []byte, password string) ([]*x509.Certificate, error) {
	if isPKCS12(data) { // since Java 9 "JKS" files made by keytool are PKCS12, and Java reads either
		return pkcs12Certificates(data, password)
	}
	ks, err := loadJKS(data, password)
	if err != nil {
		return nil, err
	}
	var out []*x509.Certificate
	for _, alias := range ks.Aliases() {
		if !ks.IsTrustedCertificateEntry(alias) {
			continue
		}
		e, err := ks.GetTrustedCertificateEntry(alias)
		if err != nil {
			return nil, err
		}
		c, err := x509.ParseCertificate(e.Certificate.Content)
		if err != nil {
			return nil, fmt.Errorf("entry %s: %w", alias, err)
		}
		out = append(out, c)
	}
	return out, nil
}

// isPKCS12 looks at the first byte: a DER sequence, where a JKS file starts with 0xFEEDFEED.
func isPKCS12(data []byte) bool { return len(data) > 0 && data[0] == 0x30 }

// keyStore reads the client's own certificate and key, nil if none is configured.
func keyStore(p *props) (*tls.Certificate, error) {
	kind := p.str("ssl.keystore.type", "JKS")
	file := p.str("ssl.keystore.location", "")
	inlineKey, hasKey := p.m["ssl.keystore.key"]
	inlineChain, hasChain := p.m["ssl.keystore.certificate.chain"]
	storePass := p.str("ssl.keystore.password", "")
	keyPass := p.str("ssl.key.password", storePass)
	if hasKey || hasChain {
		switch {
		case kind != "PEM":
			return nil, fmt.Errorf("ssl.keystore.key needs ssl.keystore.type=PEM, not %s", kind)
		case file != "":
			return nil, errors.New("both ssl.keystore.key and ssl.keystore.location are set")
		case !hasKey || !hasChain:
			return nil, errors.New("ssl.keystore.key and ssl.keystore.certificate.chain go together")
		}
		return pemPair([]byte(inlineChain), []byte(inlineKey), keyPass)
	}
	if file == "" {
		return nil, nil
	}
	data, err := p.readFile("ssl.keystore.location", file)
	if err != nil {
		return nil, err
	}
	switch {
	case kind == "PEM":
		return pemPair(data, data, p.str("ssl.key.password", ""))
	case kind == "PKCS12" || kind == "JKS" && isPKCS12(data):
		key, leaf, chain, err := pkcs12.DecodeChain(data, storePass)
		if err != nil {
			return nil, err
		}
		return pair(key, append([]*x509.Certificate{leaf}, chain...))
	case kind == "JKS":
		return jksPair(data, storePass, keyPass)
	}
	return nil, fmt.Errorf("ssl.keystore.type %q is not one of PEM, PKCS12, JKS", kind)
}

func pair(key any, chain []*x509.Certificate) (*tls.Certificate, error) {
	if _, ok := key.(crypto.Signer); !ok {
		return nil, fmt.Errorf("a private key of type %T cannot sign", key)
	}
	if len(chain) == 0 {
		return nil, errors.New("the key store holds a key but no certificate")
	}
	c := &tls.Certificate{PrivateKey: key, Leaf: chain[0]}
	for _, x := range chain {
		c.Certificate = append(c.Certificate, x.Raw)
	}
	return c, nil
}

func pemPair(chainPEM, keyPEM []byte, password string) (*tls.Certificate, error) {
	chain, err := pemCertificates(chainPEM)
	if err != nil {
		return nil, err
	}
	for {
		var b *pem.Block
		if b, keyPEM = pem.Decode(keyPEM); b == nil {
			return nil, errors.New("no private key in PKCS#8 PEM form found")
		}
		var key any
		switch b.Type {
		case "PRIVATE KEY":
			key, err = x509.ParsePKCS8PrivateKey(b.Bytes)
		case "ENCRYPTED PRIVATE KEY":
			if password == "" {
				return nil, errors.New("the private key is encrypted: set ssl.key.password")
			}
			key, err = pkcs8.ParsePKCS8PrivateKey(b.Bytes, []byte(password))
		case "RSA PRIVATE KEY":
			key, err = x509.ParsePKCS1PrivateKey(b.Bytes)
		case "EC PRIVATE KEY":
			key, err = x509.ParseECPrivateKey(b.Bytes)
		default:
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("private key: %w", err)
		}
		return pair(key, chain)
	}
}

func jksPair(data []byte, storePass, keyPass string) (*tls.Certificate, error) {
	ks, err := loadJKS(data, storePass)
	if err != nil {
		return nil, err
	}
	for _, alias := range ks.Aliases() {
		if !ks.IsPrivateKeyEntry(alias) {
			continue
		}
		e, err := ks.GetPrivateKeyEntry(alias, []byte(keyPass))
		if err != nil {
			return nil, fmt.Errorf("entry %s: %w", alias, err)
		}
		key, err := x509.ParsePKCS8PrivateKey(e.PrivateKey)
		if err != nil {
			return nil, fmt.Errorf("entry %s: %w", alias, err)
		}
		var chain []*x509.Certificate
		for _, c := range e.CertificateChain {
			x, err := x509.ParseCertificate(c.Content)
			if err != nil {
				return nil, fmt.Errorf("entry %s: %w", alias, err)
			}
			chain = append(chain, x)
		}
		return pair(key, chain)
	}
	return nil, errors.New("the key store holds no private key")
}
