package ids

import (
	"bytes"
	"crypto/rand"
	"strings"
	"testing"
)

func TestTextForm(t *testing.T) {
	for text, want := range map[string]UUID{
		"AAAAAAAAAAAAAAAAAAAAAA": Zero,
		"AAAAAAAAAAAAAAAAAAAAAQ": MetadataTopic,
		"_____________________w": {255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255},
	} {
		got, err := Parse(text)
		if err != nil || got != want {
			t.Errorf("Parse(%q) = %v, %v; want %v", text, got, err, want)
		}
		if want.String() != text {
			t.Errorf("%v.String() = %q, want %q", [16]byte(want), want.String(), text)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	for _, text := range []string{
		"", "AAAA", "AAAAAAAAAAAAAAAAAAAAAQ==", "AAAAAAAAAAAAAAAAAAAAA+",
		"AAAAAAAAAAAAAAAAAAAAA\n", "AAAAAAAAAAAAAAAAAAAAAB", strings.Repeat("A", 5000),
	} {
		if u, err := Parse(text); err == nil {
			t.Errorf("Parse(%q) = %v, want an error", text, u)
		} else if len(err.Error()) > 200 {
			t.Errorf("error for a long input has %d bytes", len(err.Error()))
		}
	}
}

func TestNewAvoidsADash(t *testing.T) {
	dash := bytes.Repeat([]byte{62 << 2}, 16)
	good := bytes.Repeat([]byte{7}, 16)
	u, err := New(bytes.NewReader(append(dash, good...)))
	if err != nil || strings.HasPrefix(u.String(), "-") {
		t.Fatalf("New = %v, %v", u, err)
	}
	if u[0] != 7 {
		t.Fatalf("New kept the id that begins with a dash: %v", u)
	}
	if _, err := New(bytes.NewReader(dash)); err == nil {
		t.Fatal("New on an exhausted source: want its error")
	}
}

func TestNewIsNeverReserved(t *testing.T) {
	zeros := make([]byte, 16)
	u, err := New(bytes.NewReader(zeros))
	if err != nil || u.IsReserved() || u.IsZero() {
		t.Fatalf("New from zeros = %v, %v", u, err)
	}
	if !MetadataTopic.IsReserved() || !Zero.IsReserved() {
		t.Fatal("the reserved ids are reserved")
	}
	for range 1000 {
		u, err := New(rand.Reader)
		if err != nil || u.String()[0] == '-' {
			t.Fatalf("New = %v, %v", u, err)
		}
		back, err := Parse(u.String())
		if err != nil || back != u {
			t.Fatalf("round trip of %v = %v, %v", u, back, err)
		}
	}
}

func TestTextMarshalling(t *testing.T) {
	var u UUID
	if err := u.UnmarshalText([]byte("AAAAAAAAAAAAAAAAAAAAAQ")); err != nil || u != MetadataTopic {
		t.Fatalf("UnmarshalText = %v, %v", u, err)
	}
	if err := u.UnmarshalText([]byte("nope")); err == nil || u != MetadataTopic {
		t.Fatalf("UnmarshalText of a bad id = %v, %v; want an error and no change", u, err)
	}
	if b, err := u.MarshalText(); err != nil || string(b) != "AAAAAAAAAAAAAAAAAAAAAQ" {
		t.Fatalf("MarshalText = %q, %v", b, err)
	}
}
