package cli

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/twmb/franz-go/pkg/kgo"

	"milena/internal/record"
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
			if !strings.ContainsRune("kvtpoeThM", rune(s[i])) {
				return nil, fmt.Errorf("--format: %%%c is unknown: use %%k %%v %%t %%p %%o %%e %%T %%h %%M", s[i])
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
		case 'M':
			k, v := mirrorStateText(record.Record{Key: r.Key, Value: r.Value})
			b = append(append(append(b, k...), ' '), v...)
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

// recordJSON is a record as consume --json prints it. Of key and key_base64 one is there, as of value and value_base64.
type recordJSON struct {
	Topic         string          `json:"topic"`
	Partition     int32           `json:"partition"`
	Offset        int64           `json:"offset"`
	LeaderEpoch   int32           `json:"leader_epoch"`
	Timestamp     int64           `json:"timestamp"` // milliseconds
	TimestampType string          `json:"timestamp_type"`
	Key           json.RawMessage `json:"key,omitempty"`
	KeyBase64     string          `json:"key_base64,omitempty"`
	Value         json.RawMessage `json:"value,omitempty"`
	ValueBase64   string          `json:"value_base64,omitempty"`
	Headers       []headerJSON    `json:"headers"`
}

type headerJSON struct {
	Key         json.RawMessage `json:"key,omitempty"`
	KeyBase64   string          `json:"key_base64,omitempty"`
	Value       json.RawMessage `json:"value,omitempty"`
	ValueBase64 string          `json:"value_base64,omitempty"`
}

func writeJSON(w io.Writer, r *kgo.Record) {
	encodeJSON(w, asJSON(r))
}

func encodeJSON(w io.Writer, v any) {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	_ = e.Encode(v) // the buffered writer keeps the error for Flush
}

func asJSON(r *kgo.Record) *recordJSON {
	j := recordJSON{Topic: r.Topic, Partition: r.Partition, Offset: r.Offset, LeaderEpoch: r.LeaderEpoch, Timestamp: r.Timestamp.UnixMilli(),
		TimestampType: "CreateTime", Headers: []headerJSON{}}
	if r.Attrs.TimestampType() == 1 {
		j.TimestampType = "LogAppendTime"
	}
	j.Key, j.KeyBase64 = textOrBase64(r.Key)
	j.Value, j.ValueBase64 = textOrBase64(r.Value)
	for _, h := range r.Headers {
		var hj headerJSON
		hj.Key, hj.KeyBase64 = textOrBase64([]byte(h.Key))
		hj.Value, hj.ValueBase64 = textOrBase64(h.Value)
		j.Headers = append(j.Headers, hj)
	}
	return &j
}

// textOrBase64 is a JSON string or null, or base64 for what no JSON string can hold as it is.
func textOrBase64(b []byte) (text json.RawMessage, coded string) {
	switch {
	case b == nil:
		return json.RawMessage("null"), ""
	case !utf8.Valid(b):
		return nil, base64.StdEncoding.EncodeToString(b)
	}
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	_ = e.Encode(string(b)) // a string always can be
	return bytes.TrimSuffix(out.Bytes(), []byte("\n")), ""
}
