package cli

import (
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kgo"
)

// formatPart is literal text, or a verb with text empty.
type formatPart struct {
	verb byte
	text string
}

func parseFormat(s string) ([]formatPart, error) {
	var out []formatPart
	var text strings.Builder
	flush := func() {
		if text.Len() > 0 {
			out = append(out, formatPart{text: text.String()})
			text.Reset()
		}
	}
	for i := 0; i < len(s); i++ {
		c := s[i]
		if (c == '%' || c == '\\') && i+1 == len(s) {
			return nil, fmt.Errorf("--format %q ends in the middle of an escape", s)
		}
		switch c {
		case '%':
			i++
			if s[i] == '%' {
				text.WriteByte('%')
				continue
			}
			if !strings.ContainsRune("kvtpoeTh", rune(s[i])) {
				return nil, fmt.Errorf("--format: %%%c is unknown: use %%k %%v %%t %%p %%o %%e %%T %%h", s[i])
			}
			flush()
			out = append(out, formatPart{verb: s[i]})
		case '\\':
			i++
			esc := map[byte]byte{'n': '\n', 't': '\t', '\\': '\\', 'r': '\r', '0': 0}
			r, ok := esc[s[i]]
			if !ok {
				return nil, fmt.Errorf("--format: \\%c is unknown", s[i])
			}
			text.WriteByte(r)
		default:
			text.WriteByte(c)
		}
	}
	flush()
	return out, nil
}

func writeRecord(w io.Writer, format []formatPart, r *kgo.Record) {
	var b []byte
	for _, p := range format {
		switch p.verb {
		case 0:
			b = append(b, p.text...)
		case 'k':
			b = append(b, r.Key...)
		case 'v':
			b = append(b, r.Value...)
		case 't':
			b = append(b, r.Topic...)
		case 'p':
			b = strconv.AppendInt(b, int64(r.Partition), 10)
		case 'o':
			b = strconv.AppendInt(b, r.Offset, 10)
		case 'e':
			b = strconv.AppendInt(b, int64(r.LeaderEpoch), 10)
		case 'T':
			b = strconv.AppendInt(b, r.Timestamp.UnixMilli(), 10)
		case 'h':
			for i, h := range r.Headers {
				if i > 0 {
					b = append(b, ',')
				}
				b = append(append(append(b, h.Key...), '='), h.Value...)
			}
		}
	}
	_, _ = w.Write(append(b, '\n')) // the buffered writer keeps the error for Flush
}
