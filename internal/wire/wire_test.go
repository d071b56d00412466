package wire

import (
	"bytes"
	"errors"
	"math"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"milena/internal/api"
	"milena/internal/ids"
)

type inner struct {
	A  int32
	S  string
	N  *string
	At int64 // tag 0, default -1
}

func (m *inner) walk(c *Codec) {
	if !c.Encoding() {
		m.At = -1
	}
	c.Int32(&m.A)
	c.String(&m.S)
	c.NullableString(&m.N)
	c.Tags(Tag(0, m.At != -1, func(c *Codec) { c.Int64(&m.At) }))
}

type outer struct {
	B    bool
	I8   int8
	I16  int16
	U16  uint16
	I64  int64
	F    float64
	UV   uint32
	V    int32
	VL   int64
	ID   ids.UUID
	Raw  []byte
	Null []byte
	In   []inner
	Opt  []int32
	Strs []string
	IDs  []ids.UUID
	Sub  *inner
	New  int32 // from version 1 on
	Tag2 []int64
	Tag5 string
}

func (m *outer) walk(c *Codec) {
	c.Bool(&m.B)
	c.Int8(&m.I8)
	c.Int16(&m.I16)
	c.Uint16(&m.U16)
	c.Int64(&m.I64)
	c.Float64(&m.F)
	c.Uvarint(&m.UV)
	c.Varint(&m.V)
	c.Varlong(&m.VL)
	c.UUID(&m.ID)
	c.Bytes(&m.Raw)
	c.NullableBytes(&m.Null)
	Array(c, &m.In, func(c *Codec, e *inner) { e.walk(c) })
	NullableArray(c, &m.Opt, (*Codec).Int32)
	c.Strings(&m.Strs)
	c.UUIDs(&m.IDs)
	Struct(c, &m.Sub, func(c *Codec, e *inner) { e.walk(c) })
	if c.Version >= 1 {
		c.Int32(&m.New)
	}
	c.Tags(
		Tag(2, m.Tag2 != nil, func(c *Codec) { c.Int64s(&m.Tag2) }),
		Tag(5, m.Tag5 != "", func(c *Codec) { c.String(&m.Tag5) }),
	)
}

func drawInner(t *rapid.T, flexible bool) inner {
	in := inner{A: rapid.Int32().Draw(t, "A"), S: rapid.StringN(0, 20, 200).Draw(t, "S"), At: -1}
	if rapid.Bool().Draw(t, "hasN") {
		s := rapid.StringN(0, 20, 200).Draw(t, "N")
		in.N = &s
	}
	if flexible && rapid.Bool().Draw(t, "hasAt") {
		in.At = rapid.Int64().Draw(t, "At")
	}
	return in
}

func drawOuter(t *rapid.T, version int16, flexible bool) outer {
	m := outer{
		B: rapid.Bool().Draw(t, "B"), I8: rapid.Int8().Draw(t, "I8"), I16: rapid.Int16().Draw(t, "I16"),
		U16: rapid.Uint16().Draw(t, "U16"), I64: rapid.Int64().Draw(t, "I64"), F: rapid.Float64().Draw(t, "F"),
		UV: rapid.Uint32().Draw(t, "UV"), V: rapid.Int32().Draw(t, "V"), VL: rapid.Int64().Draw(t, "VL"),
		Raw: rapid.SliceOfN(rapid.Byte(), 0, 300).Draw(t, "Raw"),
	}
	copy(m.ID[:], rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "ID"))
	if rapid.Bool().Draw(t, "hasNull") {
		m.Null = rapid.SliceOfN(rapid.Byte(), 0, 5).Draw(t, "Null")
	}
	for range rapid.IntRange(0, 40).Draw(t, "nIn") {
		m.In = append(m.In, drawInner(t, flexible))
	}
	if rapid.Bool().Draw(t, "hasOpt") {
		m.Opt = rapid.SliceOfN(rapid.Int32(), 0, 5).Draw(t, "Opt")
	}
	m.Strs = rapid.SliceOfN(rapid.StringN(0, 5, 50), 1, 3).Draw(t, "Strs")
	m.IDs = []ids.UUID{m.ID}
	if rapid.Bool().Draw(t, "hasSub") {
		in := drawInner(t, flexible)
		m.Sub = &in
	}
	if version >= 1 {
		m.New = rapid.Int32().Draw(t, "New")
	}
	if flexible {
		if rapid.Bool().Draw(t, "hasTag2") {
			m.Tag2 = rapid.SliceOfN(rapid.Int64(), 1, 60).Draw(t, "Tag2")
		}
		m.Tag5 = rapid.StringN(0, 5, 50).Draw(t, "Tag5")
	}
	return m
}

func TestCodecWalksBothWays(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		version, flexible := rapid.Int16Range(0, 1).Draw(t, "version"), rapid.Bool().Draw(t, "flexible")
		want := drawOuter(t, version, flexible)
		e := NewEncoder([]byte("front"), version, flexible)
		want.walk(e)
		if e.Err() != nil {
			t.Fatal(e.Err())
		}
		b, ok := bytes.CutPrefix(e.Encoded(), []byte("front"))
		if !ok {
			t.Fatal("dst is not kept")
		}
		var got outer
		d := NewDecoder(b, version, flexible)
		got.walk(d)
		if d.Err() != nil || len(d.Rest()) != 0 {
			t.Fatalf("decode: %v, %d bytes left", d.Err(), len(d.Rest()))
		}
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("got  %+v\nwant %+v", got, want)
		}
		// Cut anywhere, it is an error and not a panic.
		d = NewDecoder(b[:rapid.IntRange(0, len(b)-1).Draw(t, "cut")], version, flexible)
		(&outer{}).walk(d)
		if !errors.Is(d.Err(), ErrShort) {
			t.Fatalf("decode of a part: %v", d.Err())
		}
	})
}

func TestCodecDropsUnknownTags(t *testing.T) {
	b := []byte{2, 1, 2, 'x', 'y', 5, 2, 2, 'z'}
	var tag5 string
	d := NewDecoder(b, 0, true)
	d.Tags(Tag(5, false, func(c *Codec) { c.String(&tag5) }))
	if d.Err() != nil || tag5 != "z" || len(d.Rest()) != 0 {
		t.Fatalf("%q, %v, rest %v", tag5, d.Err(), d.Rest())
	}
}

func TestCodecRefuses(t *testing.T) {
	null := func(c *Codec) { var s string; c.String(&s) }
	nullBytes := func(c *Codec) { var b []byte; c.Bytes(&b) }
	nullArray := func(c *Codec) { var a []int32; c.Int32s(&a) }
	uv := func(c *Codec) { var u uint32; c.Uvarint(&u) }
	tags := func(c *Codec) { c.Tags(Tag(1, false, func(c *Codec) { var v int32; c.Int32(&v) })) }
	for name, x := range map[string]struct {
		in       []byte
		flexible bool
		walk     func(*Codec)
		want     error
	}{
		"null string":            {[]byte{255, 255}, false, null, ErrMalformed},
		"null compact string":    {[]byte{0}, true, null, ErrMalformed},
		"negative string length": {[]byte{255, 254}, false, null, ErrMalformed},
		"string not UTF-8":       {[]byte{0, 1, 255}, false, null, ErrMalformed},
		"string beyond the end":  {[]byte{0, 9, 'a'}, false, null, ErrShort},
		"null bytes":             {[]byte{255, 255, 255, 255}, false, nullBytes, ErrMalformed},
		"negative bytes length":  {[]byte{255, 255, 255, 0}, false, nullBytes, ErrMalformed},
		"null array":             {[]byte{255, 255, 255, 255}, false, nullArray, ErrMalformed},
		"negative count":         {[]byte{128, 0, 0, 0}, false, nullArray, ErrMalformed},
		"count beyond the end":   {[]byte{127, 255, 255, 255, 0}, false, nullArray, ErrShort},
		"huge compact count":     {[]byte{255, 255, 255, 255, 15, 0}, true, nullArray, ErrShort},
		"long varint":            {[]byte{128, 128, 128, 128, 128, 1}, true, uv, ErrMalformed},
		"varint above 32 bits":   {[]byte{255, 255, 255, 255, 31}, true, uv, ErrMalformed},
		"endless varlong": {bytes.Repeat([]byte{255}, 20), true,
			func(c *Codec) { var v int64; c.Varlong(&v) }, ErrMalformed},
		"tag too short":     {[]byte{1, 1, 3, 0, 0, 0}, true, tags, ErrShort},
		"tag too long":      {[]byte{1, 1, 5, 0, 0, 0, 0, 0}, true, tags, ErrMalformed},
		"tag twice":         {[]byte{2, 1, 4, 0, 0, 0, 0, 1, 4, 0, 0, 0, 0}, true, tags, ErrMalformed},
		"tags out of order": {[]byte{2, 3, 0, 1, 4, 0, 0, 0, 0}, true, tags, ErrMalformed},
		"four billion tags": {[]byte{255, 255, 255, 255, 15}, true, tags, ErrShort},
	} {
		d := NewDecoder(x.in, 0, x.flexible)
		x.walk(d)
		if !errors.Is(d.Err(), x.want) {
			t.Errorf("%s: %v, want %v", name, d.Err(), x.want)
		}
	}
}

func TestCodecRefusesALongStringOnWriting(t *testing.T) {
	s := strings.Repeat("x", math.MaxInt16+1)
	e := NewEncoder(nil, 0, true)
	e.String(&s)
	if e.Err() == nil {
		t.Error("no error")
	}
	p := &s
	e = NewEncoder(nil, 0, false)
	e.NullableString(&p)
	if e.Err() == nil {
		t.Error("no error")
	}
}

// An array makes room for what it has read, not for what it claims.
func TestArrayGrowsWithItsElements(t *testing.T) {
	type wide [1 << 10]int64
	in := append([]byte{0, 16, 0, 0}, make([]byte, 1<<20)...) // a million elements of a byte each
	in[4+100] = 0xff                                          // the hundredth one is bad
	var v []wide
	n := 0
	d := NewDecoder(in, 0, false)
	got := testing.AllocsPerRun(1, func() {
		n = 0
		d = NewDecoder(in, 0, false)
		Array(d, &v, func(c *Codec, e *wide) {
			var b int8
			if c.Int8(&b); b != 0 {
				c.Fail(ErrMalformed)
			}
			n++
		})
	})
	if d.Err() == nil || v != nil || n != 101 || got > 20 {
		t.Errorf("error %v, %d elements read, %v allocations", d.Err(), n, got)
	}
}

func TestRequestHeaders(t *testing.T) {
	client := "me"
	for _, x := range []struct {
		key      api.Key
		version  int16
		client   *string
		flexible bool
	}{
		{api.Heartbeat, 3, &client, false}, {api.Heartbeat, 4, &client, true}, {api.Heartbeat, 4, nil, true},
		{api.ApiVersions, 3, &client, true}, {api.SASLHandshake, 1, nil, false},
	} {
		b := append(AppendRequestHeader(nil, int16(x.key), x.version, 77, x.client, x.flexible), "body"...)
		h, body, err := ParseRequestHeader(b, api.Milena)
		if err != nil || h.Key != x.key || h.Version != x.version || h.CorrelationID != 77 || string(body) != "body" ||
			(h.ClientID == nil) != (x.client == nil) || x.client != nil && string(h.ClientID) != client || h.Row.Key != x.key {
			t.Errorf("%s v%d: %+v, body %q, %v", x.key, x.version, h, body, err)
		}
	}
}

func TestRequestHeaderTagsAreSkipped(t *testing.T) {
	b := AppendRequestHeader(nil, int16(api.Heartbeat), 4, 1, nil, true)
	b = append(b[:len(b)-1], 1, 9, 2, 'x', 'y', 'B')
	if _, body, err := ParseRequestHeader(b, api.Milena); err != nil || string(body) != "B" {
		t.Errorf("body %q, %v", body, err)
	}
}

func TestRequestHeaderOfUnknownThings(t *testing.T) {
	old := AppendRequestHeader(nil, int16(api.ControlledShutdown), 0, 5, nil, false)
	if len(old) != 8 {
		t.Errorf("ControlledShutdown v0 has a header of %d bytes, not of version 0", len(old))
	}
	for _, b := range [][]byte{old, AppendRequestHeader(nil, 999, 0, 5, nil, false), AppendRequestHeader(nil, -1, 0, 5, nil, false)} {
		if h, _, err := ParseRequestHeader(b, api.Milena); !errors.Is(err, ErrUnknownKey) || h.CorrelationID != 5 {
			t.Errorf("%v: %+v, %v", b, h, err)
		}
	}
	// A newer ApiVersions than anybody knows still gets its correlation id read.
	future := []byte{0, 18, 0, 99, 0, 0, 0, 5, 1, 0xff}
	if h, _, err := ParseRequestHeader(future, api.Milena); err != nil || h.CorrelationID != 5 || h.Version != 99 {
		t.Errorf("future ApiVersions: %+v, %v", h, err)
	}
}

func TestRequestHeaderCodePoints(t *testing.T) {
	b := AppendRequestHeader(nil, 94, 0, 1, nil, true)
	if h, _, err := ParseRequestHeader(b, api.Prototype); err != nil || h.Key != api.CreateClusterMirror {
		t.Errorf("94 by the prototype's numbers: %v, %v", h.Key, err)
	}
	if _, _, err := ParseRequestHeader(b, api.Milena); !errors.Is(err, ErrUnknownKey) {
		t.Errorf("94 by Milena's numbers: %v", err)
	}
	b = AppendRequestHeader(nil, 1094, 0, 1, nil, true)
	if _, _, err := ParseRequestHeader(b, api.Prototype); !errors.Is(err, ErrUnknownKey) {
		t.Errorf("1094 by the prototype's numbers: %v", err)
	}
}

// The response to ApiVersions never has tags in its header: the client may not
// know the version it gets (KIP-511).
func TestResponseHeaders(t *testing.T) {
	for _, x := range []struct {
		key      api.Key
		flexible bool
		size     int
	}{{api.Heartbeat, false, 4}, {api.Heartbeat, true, 5}, {api.ApiVersions, true, 4}, {api.ApiVersions, false, 4}} {
		b := AppendResponseHeader(nil, x.key, 9, x.flexible)
		if len(b) != x.size {
			t.Errorf("%s flexible %v: %d bytes", x.key, x.flexible, len(b))
		}
		id, body, err := ParseResponseHeader(append(b, 'B'), x.key, x.flexible)
		if err != nil || id != 9 || string(body) != "B" {
			t.Errorf("%s: %d %q %v", x.key, id, body, err)
		}
		if _, _, err := ParseResponseHeader(b[:3], x.key, x.flexible); !errors.Is(err, ErrShort) {
			t.Errorf("%s cut: %v", x.key, err)
		}
	}
}

func TestPoolClasses(t *testing.T) {
	for n := 1; n < 300<<20; n += n/7 + 1 {
		c := classFor(n)
		if c >= poolClasses {
			if n <= classSize(poolClasses-1) {
				t.Fatalf("%d bytes fit the largest class", n)
			}
			continue
		}
		if size := classSize(c); size < n || c > 0 && classSize(c-1) >= n {
			t.Fatalf("%d bytes are in class %d of %d", n, c, size)
		}
	}
	var p Pool
	for _, n := range []int{0, 1, 512, 513, 768, 769, 1 << 20, 1<<20 + 1} {
		b := p.Get(n)
		if len(b.B) != n {
			t.Errorf("Get(%d) has %d bytes", n, len(b.B))
		}
		b.Release()
	}
	// What append made larger is kept as what it is now.
	b := p.Get(10)
	b.B = append(b.B, make([]byte, 5000)...)
	b.Release()
	for range 10 {
		if b = p.Get(512); cap(b.B) < 512 {
			t.Fatal("a buffer is smaller than its class")
		}
		b = p.Get(4096)
		if cap(b.B) < 4096 {
			t.Fatal("a buffer is smaller than its class")
		}
	}
	(*Buf)(nil).Release()
	(&Buf{B: make([]byte, 600)}).Release()
	big := p.Get(200 << 20)
	big.Release()
}

func TestReaderStopsAtTheFirstError(t *testing.T) {
	r := NewReader([]byte{1})
	if r.Int32() != 0 || r.Int8() != 0 || r.Int64() != 0 || r.Uvarint() != 0 || r.Rest() != nil || !errors.Is(r.Err(), ErrShort) {
		t.Errorf("after an error: %v", r.Err())
	}
}

func FuzzRequestDecode(f *testing.F) {
	eachRequest(func(row api.Row, v int16) {
		if v != row.AdvertisedMin && v != row.KafkaMax() {
			return
		}
		req := newRequest(row.Key, v)
		fill(req, 1)
		f.Add(req.AppendTo([]byte{byte(row.Key >> 8), byte(row.Key), byte(v >> 8), byte(v)}))
	})
	f.Fuzz(func(t *testing.T, in []byte) {
		r := NewReader(in)
		key, version := api.Key(r.Int16()), r.Int16()
		row, ok := api.Lookup(key)
		if r.Err() != nil || !ok || row.Key.IsMirror() || version < row.AdvertisedMin || version > row.KafkaMax() {
			return
		}
		body := r.Rest()
		err := CheckRequest(key, version, body)
		req := newRequest(key, version)
		if err != nil {
			return // refused before any memory was taken
		}
		if req.ReadFrom(body) != nil {
			return
		}
		// What was decoded can be encoded, and is the same to the next reader.
		again := req.AppendTo(nil)
		if err := CheckRequest(key, version, again); err != nil {
			t.Fatalf("%s v%d: encoding what was decoded gives %x: %v", row.Name, version, again, err)
		}
		second := newRequest(key, version)
		if err := second.ReadFrom(again); err != nil {
			t.Fatalf("%s v%d: %x: %v", row.Name, version, again, err)
		}
		if third := second.AppendTo(nil); !bytes.Equal(third, again) {
			t.Fatalf("%s v%d: %x became %x", row.Name, version, again, third)
		}
	})
}
