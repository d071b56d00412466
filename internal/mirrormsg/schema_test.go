package mirrormsg

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kmsg"

	"milena/internal/api"
	"milena/internal/ids"
	"milena/internal/wire"
)

type schema struct {
	APIKey           int     `json:"apiKey"`
	Type             string  `json:"type"`
	Name             string  `json:"name"`
	FlexibleVersions string  `json:"flexibleVersions"`
	Fields           []field `json:"fields"`
}

type field struct {
	Name, Type       string
	NullableVersions string
	TaggedVersions   string
	Tag              *uint64
	Default          string
	Fields           []field
}

func load(t *testing.T, name string) schema {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", name+".json"))
	if err != nil {
		t.Fatal(err)
	}
	var s schema
	if err := json.Unmarshal(b, &s); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return s
}

// encodeBySchema writes the Go struct v as the schema's fields say, without the walks under test.
func encodeBySchema(dst []byte, fields []field, v reflect.Value, flexible bool) []byte {
	var tagged []field
	for _, f := range fields {
		if f.Tag != nil {
			tagged = append(tagged, f)
			continue
		}
		dst = encodeField(dst, f, member(v, f.Name), flexible)
	}
	if !flexible {
		return dst
	}
	slices.SortFunc(tagged, func(a, b field) int { return int(*a.Tag) - int(*b.Tag) })
	var set []field
	for _, f := range tagged {
		if !isDefault(f, member(v, f.Name)) {
			set = append(set, f)
		}
	}
	dst = binary.AppendUvarint(dst, uint64(len(set)))
	for _, f := range set {
		body := encodeField(nil, f, member(v, f.Name), flexible)
		dst = binary.AppendUvarint(dst, *f.Tag)
		dst = binary.AppendUvarint(dst, uint64(len(body)))
		dst = append(dst, body...)
	}
	return dst
}

func member(v reflect.Value, name string) reflect.Value {
	m := v.FieldByNameFunc(func(n string) bool { return strings.EqualFold(n, name) })
	if !m.IsValid() {
		panic(fmt.Sprintf("%s has no field %s", v.Type(), name))
	}
	return m
}

func isDefault(f field, v reflect.Value) bool {
	switch v.Kind() {
	case reflect.Slice:
		return v.Len() == 0
	case reflect.Pointer:
		return v.IsNil()
	case reflect.Int64, reflect.Int32, reflect.Int16, reflect.Int8:
		d, _ := strconv.ParseInt(f.Default, 10, 64)
		return v.Int() == d
	}
	return v.IsZero()
}

func encodeField(dst []byte, f field, v reflect.Value, flexible bool) []byte {
	length := func(n int) []byte { // of an array or string
		if flexible {
			return binary.AppendUvarint(dst, uint64(n+1))
		}
		if f.Type == "string" {
			return binary.BigEndian.AppendUint16(dst, uint16(n))
		}
		return binary.BigEndian.AppendUint32(dst, uint32(n))
	}
	if e, ok := strings.CutPrefix(f.Type, "[]"); ok {
		if v.IsNil() && f.NullableVersions != "" {
			return length(-1)
		}
		dst = length(v.Len())
		for i := range v.Len() {
			if len(f.Fields) > 0 {
				dst = encodeBySchema(dst, f.Fields, v.Index(i), flexible)
			} else {
				dst = encodeField(dst, field{Type: e}, v.Index(i), flexible)
			}
		}
		return dst
	}
	switch f.Type {
	case "string":
		if v.Kind() == reflect.Pointer {
			if v.IsNil() {
				return length(-1)
			}
			v = v.Elem()
		}
		return append(length(v.Len()), v.String()...)
	case "uuid":
		u := v.Interface().(ids.UUID)
		return append(dst, u[:]...)
	case "bool":
		if v.Bool() {
			return append(dst, 1)
		}
		return append(dst, 0)
	case "int8":
		return append(dst, byte(v.Int()))
	case "int16":
		return binary.BigEndian.AppendUint16(dst, uint16(v.Int()))
	case "int32":
		return binary.BigEndian.AppendUint32(dst, uint32(v.Int()))
	case "int64":
		return binary.BigEndian.AppendUint64(dst, uint64(v.Int()))
	}
	panic("type " + f.Type)
}

// fill gives every field a value of its own, so that swapped fields show.
func fill(v reflect.Value, next *int) {
	*next++
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), next)
	case reflect.Struct:
		for i := range v.NumField() {
			fill(v.Field(i), next)
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		for i := range 2 {
			fill(v.Index(i), next)
		}
	case reflect.Array:
		for i := range v.Len() {
			v.Index(i).SetUint(uint64(*next + i))
		}
	case reflect.String:
		v.SetString(fmt.Sprintf("text %d", *next))
	case reflect.Bool:
		v.SetBool(true)
	default:
		v.SetInt(int64(*next % math.MaxInt8))
	}
}

func messages() map[string]interface {
	Key() int16
	AppendTo([]byte) []byte
	ReadFrom([]byte) error
} {
	m := map[string]interface {
		Key() int16
		AppendTo([]byte) []byte
		ReadFrom([]byte) error
	}{}
	for name, r := range map[string]kmsg.Request{
		"CreateClusterMirror": &CreateClusterMirrorRequest{}, "StartMirrorTopics": &StartMirrorTopicsRequest{}, "StopMirrorTopics": &StopMirrorTopicsRequest{},
		"PauseMirrorTopics": &PauseMirrorTopicsRequest{}, "ResumeMirrorTopics": &ResumeMirrorTopicsRequest{}, "DeleteClusterMirror": &DeleteClusterMirrorRequest{},
		"ListClusterMirrors": &ListClusterMirrorsRequest{}, "DescribeClusterMirrors": &DescribeClusterMirrorsRequest{}, "ReadMirrorStates": &ReadMirrorStatesRequest{},
		"WriteMirrorStates": &WriteMirrorStatesRequest{}, "ReadMirrorOffsets": &ReadMirrorOffsetsRequest{}, "BumpLeaderEpochs": &BumpLeaderEpochsRequest{},
		"RecoverMirrorTopics": &RecoverMirrorTopicsRequest{},
	} {
		m[name+"Request"], m[name+"Response"] = r, r.ResponseKind()
	}
	return m
}

// Every message is written as its schema says, and read back as it was.
func TestMessagesFollowTheirSchemas(t *testing.T) {
	for name, m := range messages() {
		s := load(t, name)
		if got := int(m.Key()); got != s.APIKey+1000 {
			t.Errorf("%s has key %d, want the schema's %d + 1000", name, got, s.APIKey)
		}
		for _, full := range []bool{false, true} {
			v := reflect.ValueOf(m).Elem()
			v.SetZero()
			if full {
				n := 0
				fill(v, &n)
			}
			want := encodeBySchema(nil, s.Fields, v, true)
			got := m.AppendTo(nil)
			if d := cmp.Diff(want, got); d != "" {
				t.Errorf("%s (filled: %t) differs from its schema (-schema +walk):\n%s", name, full, d)
				continue
			}
			back := reflect.New(v.Type())
			if err := back.Interface().(interface{ ReadFrom([]byte) error }).ReadFrom(got); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			if full {
				if d := cmp.Diff(v.Interface(), back.Elem().Interface()); d != "" {
					t.Errorf("%s changed on the way (-sent +read):\n%s", name, d)
				}
			}
			for cut := range got {
				// Cut input is an error or, where only absent tags were cut, not; it never panics.
				_ = reflect.New(v.Type()).Interface().(interface{ ReadFrom([]byte) error }).ReadFrom(got[:cut])
			}
		}
	}
}

// Defaults that are not zero are what New sets and what an absent tag reads as.
func TestDefaultsFollowTheSchemas(t *testing.T) {
	if m := NewStartMirrorTopicsRequest(); m.StateOffset != -1 {
		t.Errorf("StateOffset %d", m.StateOffset)
	}
	r := NewReadMirrorStatesRequestDefaults()
	var back ReadMirrorStatesRequest
	if err := back.ReadFrom(r); err != nil {
		t.Fatal(err)
	}
	if got := back.Topics[0].Partitions[0].LeaderEpoch; got != -1 {
		t.Errorf("an absent LeaderEpoch reads as %d, want -1", got)
	}
}

// NewReadMirrorStatesRequestDefaults is a request written by a peer that does not know the tag.
func NewReadMirrorStatesRequestDefaults() []byte {
	m := ReadMirrorStatesRequest{MirrorName: "m"}
	m.Topics = make([]ReadMirrorStatesTopic, 1)
	m.Topics[0].Partitions = []ReadMirrorStatesPartition{NewReadMirrorStatesPartition()}
	return m.AppendTo(nil)
}

func TestRecordsFollowTheirSchemas(t *testing.T) {
	id := ids.UUID{1, 2, 3}
	for _, tc := range []struct {
		schema   string
		lead     int16
		flexible bool
		m        interface{ AppendTo([]byte) []byte }
	}{
		{"MirrorPartitionStateKey", MirrorPartitionStateType, false, &MirrorPartitionStateKey{MirrorName: "dr", TopicID: id, Partition: 7}},
		{"LastMirrorEpochsKey", LastMirrorEpochsType, false, &LastMirrorEpochsKey{MirrorName: "dr", TopicID: id, Partition: 7}},
		{"MirrorPartitionStateValue", 0, true, &MirrorPartitionStateValue{State: 3, LeaderEpoch: 4, StateEpoch: 5, RetryAttempt: 6, PreviousState: 7}},
		{"LastMirrorEpochsValue", 0, true, &LastMirrorEpochsValue{LastMirrorEpoch: 8, StopWishOffset: 9, LastMirrorOffset: 10}},
	} {
		s := load(t, tc.schema)
		want := encodeBySchema(binary.BigEndian.AppendUint16(nil, uint16(tc.lead)), s.Fields, reflect.ValueOf(tc.m).Elem(), tc.flexible)
		got := tc.m.AppendTo(nil)
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%s differs from its schema (-schema +walk):\n%s", tc.schema, d)
		}
		if !tc.flexible {
			k, err := ParseKey(got)
			if err != nil || k != (Key{tc.lead, "dr", id, 7}) {
				t.Errorf("%s reads as %+v, %v", tc.schema, k, err)
			}
			continue
		}
		back := reflect.New(reflect.TypeOf(tc.m).Elem())
		if err := back.Interface().(interface{ ReadFrom([]byte) error }).ReadFrom(got); err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(tc.m, back.Interface()); d != "" {
			t.Errorf("%s changed on the way:\n%s", tc.schema, d)
		}
	}
	if _, err := ParseKey(wire.AppendInt16(nil, 9)); err == nil {
		t.Error("a key of an unknown type was read")
	}
	if err := new(LastMirrorEpochsValue).ReadFrom(wire.AppendInt16(nil, 3)); err == nil {
		t.Error("a value of a newer version was read")
	}
}

// The two columns of numbers are those of the specification's table.
func TestCodePoints(t *testing.T) {
	b, err := os.ReadFile("testdata/code-points.json")
	if err != nil {
		t.Fatal(err)
	}
	var table struct {
		APIs []struct {
			Name              string
			Milena, Prototype int16
		} `json:"apis"`
	}
	if err := json.Unmarshal(b, &table); err != nil {
		t.Fatal(err)
	}
	ms := messages()
	if len(table.APIs) != len(ms)/2 {
		t.Errorf("%d APIs in the table, %d here", len(table.APIs), len(ms)/2)
	}
	for _, a := range table.APIs {
		m := ms[a.Name+"Request"]
		if m == nil {
			t.Errorf("no message for %s", a.Name)
			continue
		}
		if m.Key() != a.Milena {
			t.Errorf("%s: key %d, want %d", a.Name, m.Key(), a.Milena)
		}
		if row, ok := api.Lookup(api.Key(a.Milena)); !ok || row.Name != a.Name {
			t.Errorf("%s is not in the API table", a.Name)
		}
	}
}
