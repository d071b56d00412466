package client

import (
	"errors"
	"fmt"
	"strings"
)

// login is one parsed JAAS line: the login module's class name and its options.
type login struct {
	module  string
	options map[string]string
}

const (
	plainModule = "org.apache.kafka.common.security.plain.PlainLoginModule"
	scramModule = "org.apache.kafka.common.security.scram.ScramLoginModule"
)

// parseJAAS reads the value of sasl.jaas.config: one login module, a control flag, options, a semicolon, as in
//
//	org.apache.kafka.common.security.plain.PlainLoginModule required username="a" password="b";
//
// Quoted values may hold any character; a backslash takes the next one literally.
func parseJAAS(s string) (login, error) {
	toks, err := jaasTokens(s)
	if err != nil {
		return login{}, err
	}
	if len(toks) < 3 {
		return login{}, errors.New("expected a login module, a control flag, options and a final semicolon")
	}
	l := login{module: toks[0], options: map[string]string{}}
	switch strings.ToLower(toks[1]) {
	case "required", "requisite", "sufficient", "optional":
	default:
		return login{}, fmt.Errorf("control flag %q is not one of required, requisite, sufficient, optional", toks[1])
	}
	rest := toks[2:]
	for len(rest) > 0 && rest[0] != ";" {
		if len(rest) < 3 || rest[1] != "=" {
			return login{}, fmt.Errorf("option %q has no value", rest[0])
		}
		l.options[rest[0]] = strings.TrimPrefix(rest[2], `"`)
		rest = rest[3:]
	}
	if len(rest) == 0 {
		return login{}, errors.New("the final semicolon is missing")
	}
	if len(rest) > 1 {
		return login{}, errors.New("more than one login module: Kafka clients take exactly one")
	}
	return l, nil
}

// jaasTokens splits into words, "=", ";" and quoted strings; a quoted string keeps its opening quote as a mark,
// so that a quoted ";" is not taken for the end.
func jaasTokens(s string) ([]string, error) {
	var toks []string
	for i := 0; i < len(s); {
		switch c := s[i]; {
		case c == ' ' || c == '\t' || c == '\n' || c == '\r':
			i++
		case c == '=' || c == ';':
			toks = append(toks, string(c))
			i++
		case c == '"' || c == '\'':
			var b strings.Builder
			b.WriteByte('"')
			j := i + 1
			for ; j < len(s) && s[j] != c; j++ {
				if s[j] == '\\' && j+1 < len(s) {
					j++
				}
				b.WriteByte(s[j])
			}
			if j >= len(s) {
				return nil, errors.New("a quotation mark is not closed")
			}
			toks = append(toks, b.String())
			i = j + 1
		default:
			j := i
			for j < len(s) && !strings.ContainsRune(" \t\r\n=;\"'", rune(s[j])) {
				j++
			}
			toks = append(toks, s[i:j])
			i = j
		}
	}
	return toks, nil
}
