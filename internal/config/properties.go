package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/magiconair/properties"
)

// maxProperties is the most bytes of a .properties file that are read.
const maxProperties = 1 << 20

// Property is one line of a .properties file.
type Property struct {
	Key, Value string
	Line       int // of its first character, from 1
}

// ParseProperties reads a Java .properties file: ISO 8859-1, Java's escapes, comments and continued lines; ${...} is taken as
// it stands. Properties come in the order of the file; of lines with the same key the last counts. what names the file in
// errors, which name the line too.
func ParseProperties(r io.Reader, what string) ([]Property, error) {
	text, err := io.ReadAll(io.LimitReader(r, maxProperties+1))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	if len(text) > maxProperties {
		return nil, fmt.Errorf("%s: larger than %d bytes, which no properties file needs to be", what, maxProperties)
	}
	loader := properties.Loader{Encoding: properties.ISO_8859_1, DisableExpansion: true}
	var list []Property
	var errs []error
	for line, logical := range logicalLines(text) {
		if c := bytes.TrimLeft(logical, blank); len(c) > 0 && (c[0] == '=' || c[0] == ':') {
			errs = append(errs, fmt.Errorf("%s: line %d: there is no key in front of the value", what, line))
			continue
		}
		p, err := loader.LoadBytes(logical)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: line %d: %s", what, line, reason(err)))
			continue
		}
		for _, k := range p.Keys() {
			v, _ := p.Get(k)
			list = append(list, Property{Key: k, Value: v, Line: line})
		}
	}
	return list, errors.Join(errs...)
}

// reason is the library's error without its own position, which counts from the logical line.
func reason(err error) string {
	s := err.Error()
	if rest, ok := strings.CutPrefix(s, "properties: Line "); ok {
		if _, after, ok := strings.Cut(rest, ": "); ok {
			return after
		}
	}
	return s
}

const blank = " \t\f"

// logicalLines walks lines that hold a property, each joined with the lines that continue it, and its number.
func logicalLines(text []byte) func(yield func(int, []byte) bool) {
	return func(yield func(int, []byte) bool) {
		line := 0
		for len(text) > 0 {
			first := line + 1
			var whole []byte
			for more := true; more && len(text) > 0; {
				var natural []byte
				natural, text = cutLine(text)
				line++
				if whole == nil && skipped(natural) {
					break
				}
				if more = continues(natural); more {
					natural = natural[:len(natural)-1]
				}
				if whole != nil {
					natural = bytes.TrimLeft(natural, blank)
				}
				whole = append(whole, natural...)
			}
			if whole = bytes.TrimLeft(whole, blank); skipped(whole) && len(whole) > 0 {
				whole = append([]byte{'\\'}, whole...) // what continues a line is never a comment
			}
			if len(whole) > 0 && !yield(first, whole) {
				return
			}
		}
	}
}

// cutLine cuts the first line off; lines end with \n, \r or both.
func cutLine(text []byte) (line, rest []byte) {
	i := bytes.IndexAny(text, "\r\n")
	if i < 0 {
		return text, nil
	}
	rest = text[i+1:]
	if text[i] == '\r' && len(rest) > 0 && rest[0] == '\n' {
		rest = rest[1:]
	}
	return text[:i], rest
}

func skipped(line []byte) bool {
	line = bytes.TrimLeft(line, blank)
	return len(line) == 0 || line[0] == '#' || line[0] == '!'
}

// continues reports whether a line ends with an odd number of backslashes.
func continues(line []byte) bool {
	n := 0
	for n < len(line) && line[len(line)-1-n] == '\\' {
		n++
	}
	return n%2 == 1
}
