package config

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// value is a parsed value; which field counts follows from the type.
type value struct {
	i    int64
	f    float64
	s    string // String, Class, Password: trimmed
	b    bool
	list []string
}

// parse reads text as a value of type t, by the rules (and with the messages) of Kafka's ConfigDef. Passwords are not repeated in errors.
func parse(name, text string, t Type) (value, error) {
	trimmed := strings.TrimFunc(text, javaSpace)
	switch t {
	case Boolean:
		switch strings.ToLower(trimmed) {
		case "true":
			return value{b: true, i: 1}, nil
		case "false":
			return value{}, nil
		}
		return value{}, invalid(name, text, "Expected value to be either true or false")
	case Int:
		return parseInt(name, text, trimmed, 32, t)
	case Short:
		return parseInt(name, text, trimmed, 16, t)
	case Long:
		return parseInt(name, text, trimmed, 64, t)
	case Double:
		f, ok := parseJavaDouble(trimmed)
		if !ok {
			return value{}, invalid(name, text, "Not a number of type DOUBLE")
		}
		return value{f: f}, nil
	case List:
		return value{list: splitList(text), s: trimmed}, nil
	}
	return value{s: trimmed}, nil
}

func parseInt(name, text, trimmed string, bits int, t Type) (value, error) {
	// strconv with base 10 takes what Java's parseInt takes: an optional sign and digits.
	n, err := strconv.ParseInt(trimmed, 10, bits)
	if err != nil {
		return value{}, invalid(name, text, "Not a number of type "+t.String())
	}
	return value{i: n}, nil
}

// parseJavaDouble takes what Double.parseDouble takes, hexadecimal forms apart: overflow is infinity, a suffix d or f is allowed.
func parseJavaDouble(s string) (float64, bool) {
	s = strings.TrimRight(strings.TrimSuffix(strings.TrimSuffix(strings.TrimSuffix(strings.TrimSuffix(s, "d"), "D"), "f"), "F"), " ")
	switch s {
	case "NaN", "+NaN", "-NaN":
		return math.NaN(), true
	case "Infinity", "+Infinity":
		return math.Inf(1), true
	case "-Infinity":
		return math.Inf(-1), true
	}
	if s == "" || strings.ContainsAny(s, "xX_iInN") {
		return 0, false
	}
	f, err := strconv.ParseFloat(s, 64)
	if err != nil && !math.IsInf(f, 0) {
		return 0, false
	}
	return f, true
}

// splitList splits a list at commas, white space around items dropped; the empty text is the empty list.
func splitList(text string) []string {
	text = strings.TrimFunc(text, javaSpace)
	if text == "" {
		return nil
	}
	items := strings.Split(text, ",")
	for i := range items {
		items[i] = strings.TrimSpace(items[i])
	}
	return items
}

// javaSpace is what String.trim drops.
func javaSpace(r rune) bool { return r <= ' ' }

func invalid(name, text, reason string) error {
	return fmt.Errorf("Invalid value %s for configuration %s: %s", text, name, reason)
}
