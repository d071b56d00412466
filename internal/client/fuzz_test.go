package client

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
)

// seeds are properties as people write them, with what each kind of store, key and mechanism needs.
func seeds() []string {
	return []string{
		"bootstrap.servers=a:9092,b:9092\nclient.id=x\nrequest.timeout.ms=5000\nretries=3",
		"security.protocol=SSL\nssl.truststore.location=x.jks\nssl.truststore.password=secret\nssl.endpoint.identification.algorithm=",
		"security.protocol=SSL\nssl.truststore.type=PEM\nssl.truststore.location=x.pem\nssl.enabled.protocols=TLSv1.2,TLSv1.3\nssl.protocol=TLSv1.3",
		"security.protocol=SSL\nssl.keystore.type=PKCS12\nssl.keystore.location=x.p12\nssl.keystore.password=secret\nssl.key.password=secret",
		"security.protocol=SSL\nssl.keystore.type=PEM\nssl.keystore.key=-----BEGIN PRIVATE KEY-----\nssl.keystore.certificate.chain=-----BEGIN CERTIFICATE-----",
		"security.protocol=SASL_SSL\nsasl.mechanism=SCRAM-SHA-512\nsasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required username=\"u\" password='p\\'q';",
		"security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required username=\"u\" password=\"p\" ;",
		"acks=all\nlinger.ms=5\ncompression.type=zstd\ngroup.id=g\nauto.offset.reset=earliest\nisolation.level=read_committed\nfetch.max.bytes=1000",
		"interceptor.classes=x", "request.timeout.ms=99999999999999999999", "bootstrap.servers=[::1]:9092,,",
	}
}

// FuzzParse: no properties and no key or trust store make Parse panic, hang or lie: it returns a Config that a client accepts,
// or an error that names a property. Files are the fuzzer's, wherever the properties say they are.
func FuzzParse(f *testing.F) {
	for _, s := range seeds() {
		f.Add(s, []byte("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"))
	}
	f.Add(seeds()[1], []byte("\xfe\xed\xfe\xed\x00\x00\x00\x02\x00\x00\x00\x01"))
	f.Add(seeds()[3], []byte("0\x82\x01\x00\x02\x01\x03"))
	f.Fuzz(func(t *testing.T, text string, store []byte) {
		file := filepath.Join(t.TempDir(), "store")
		if err := os.WriteFile(file, store, 0o600); err != nil {
			t.Fatal(err)
		}
		m := map[string]string{}
		for line := range strings.Lines(text) {
			k, v, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "=")
			if strings.HasSuffix(k, ".location") {
				v = file
			}
			m[k] = v
		}
		c, err := Parse(m)
		switch {
		case err != nil && c != nil:
			t.Fatalf("both a config and an error: %v", err)
		case err != nil:
			for k := range m {
				if strings.Contains(err.Error(), k) {
					return
				}
			}
			if !strings.Contains(err.Error(), "ssl.") && !strings.Contains(err.Error(), "sasl.") {
				t.Fatalf("the error names no property: %v", err)
			}
		default:
			if err := kgo.ValidateOpts(c.KgoOpts(nil)...); err != nil && len(c.Bootstrap) > 0 {
				t.Fatalf("kgo refuses the options of %q: %v", m, err)
			}
		}
	})
}
