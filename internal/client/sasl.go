package client

import (
	"fmt"

	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

// mechanism builds the SASL mechanism from sasl.mechanism and sasl.jaas.config. PLAIN and SCRAM are there.
func mechanism(p *props) sasl.Mechanism {
	name := p.str("sasl.mechanism", "GSSAPI")
	if _, set := p.m["sasl.mechanism"]; !set {
		p.fail("sasl.mechanism", "is not set and its default GSSAPI is not supported: set PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512")
		return nil
	}
	want := plainModule
	switch name {
	case "PLAIN":
	case "SCRAM-SHA-256", "SCRAM-SHA-512":
		want = scramModule
	default:
		p.fail("sasl.mechanism", "%q is not supported: use PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512", name)
		return nil
	}
	line := p.str("sasl.jaas.config", "")
	if line == "" {
		p.fail("sasl.jaas.config", "is needed by sasl.mechanism %s", name)
		return nil
	}
	l, err := parseJAAS(line)
	if err == nil && l.module != want {
		err = fmt.Errorf("login module %s does not fit sasl.mechanism %s: use %s", l.module, name, want)
	}
	if err != nil {
		p.fail("sasl.jaas.config", "%v", err)
		return nil
	}
	token := false
	for k, v := range l.options {
		switch {
		case k == "username" || k == "password":
		case k == "tokenauth" && want == scramModule:
			token = v == "true"
		default:
			p.fail("sasl.jaas.config", "option %s is not supported", k)
			return nil
		}
	}
	user, pass := l.options["username"], l.options["password"]
	if user == "" {
		p.fail("sasl.jaas.config", "option username is missing")
		return nil
	}
	switch name {
	case "PLAIN":
		return plain.Auth{User: user, Pass: pass}.AsMechanism()
	case "SCRAM-SHA-256":
		return scram.Auth{User: user, Pass: pass, IsToken: token}.AsSha256Mechanism()
	default:
		return scram.Auth{User: user, Pass: pass, IsToken: token}.AsSha512Mechanism()
	}
}
