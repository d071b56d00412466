package offline

import (
	"encoding/binary"
	"fmt"
	"reflect"
	"strings"
	"unicode"

	"milena/internal/meta"
)

// kafkaName returns the name that Kafka's record schemas have for a field where it isn't
// that of the field of package meta.
func kafkaName(typ, field string) (string, bool) {
	switch typ + "." + field {
	case "TopicRecord.TopicName", "ConfigRecord.Key", "FeatureLevelRecord.Feature", "BeginTransactionRecord.TransactionName":
		return "name", true
	case "FeatureLevelRecord.Level":
		return "featureLevel", true
	case "FeatureRange.Min":
		return "minSupportedVersion", true
	case "FeatureRange.Max":
		return "maxSupportedVersion", true
	}
	switch field {
	case "Removing":
		return "removingReplicas", true
	case "Adding":
		return "addingReplicas", true
	case "ELR":
		return "eligibleLeaderReplicas", true
	case "LastKnownELR":
		return "lastKnownElr", true
	}
	return "", false
}

// Record is a metadata record as Kafka's tools print it.
type Record struct {
	Type    string         `json:"type"`
	Version int16          `json:"version"`
	Data    map[string]any `json:"data"`
}

// describeRecord decodes the value of a metadata record.
func describeRecord(value []byte) (Record, error) {
	r, err := meta.Decode(value)
	if err != nil {
		return Record{}, err
	}
	return Record{Type: typeName(r.Name()), Version: recordVersion(value), Data: fields(reflect.ValueOf(r).Elem())}, nil
}

// recordVersion reads the third varint: frame version, api key, version (KIP-631).
func recordVersion(value []byte) int16 {
	var v uint64
	for range 3 {
		var n int
		if v, n = binary.Uvarint(value); n <= 0 {
			return -1
		}
		value = value[n:]
	}
	return int16(v)
}

// typeName is PARTITION_CHANGE_RECORD for PartitionChangeRecord.
func typeName(name string) string {
	var b strings.Builder
	for i, c := range name {
		if i > 0 && unicode.IsUpper(c) {
			b.WriteByte('_')
		}
		b.WriteRune(unicode.ToUpper(c))
	}
	return b.String()
}

func fields(v reflect.Value) map[string]any {
	out := map[string]any{}
	t := v.Type()
	for i := range t.NumField() {
		f := t.Field(i)
		if !f.IsExported() {
			continue
		}
		if x, ok := plain(v.Field(i)); ok {
			out[fieldName(t.Name(), f.Name)] = x
		}
	}
	return out
}

// plain turns a field into what encoding/json prints as Kafka does; ok is false for
// lists and strings that are null.
func plain(v reflect.Value) (x any, ok bool) {
	switch v.Kind() {
	case reflect.Pointer:
		if v.IsNil() {
			return nil, false
		}
		return plain(v.Elem())
	case reflect.Struct:
		return fields(v), true
	case reflect.Slice:
		if v.IsNil() {
			return nil, false
		}
		list := []any{}
		for i := range v.Len() {
			if e, ok := plain(v.Index(i)); ok {
				list = append(list, e)
			}
		}
		return list, true
	case reflect.Array: // an id
		return fmt.Sprint(v.Interface()), true
	default:
		return v.Interface(), true
	}
}

// fieldName is Kafka's name of a field: in general the same words, in lower camel case.
func fieldName(typ, name string) string {
	if n, ok := kafkaName(typ, name); ok {
		return n
	}
	for _, abbreviation := range []string{"ID", "ISR"} {
		name = strings.ReplaceAll(name, abbreviation, abbreviation[:1]+strings.ToLower(abbreviation[1:]))
	}
	return strings.ToLower(name[:1]) + name[1:]
}
