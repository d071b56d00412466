// Package ids holds Kafka's 128-bit identifiers: topic ids, directory ids,
// cluster ids and incarnation ids.
//
// Their text form is the unpadded URL-safe base64 of the 16 bytes, 22
// characters long. Ids whose first eight bytes are zero and whose last eight
// are below 100 are reserved; [New] never returns one of those, nor one whose
// text begins with '-', since that would read as an option on a command line.
package ids

import (
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"io"
)

// UUID is a 128-bit identifier in network byte order.
type UUID [16]byte

// Zero is the id that stands for "none".
var Zero = UUID{}

// MetadataTopic is the id of the topic __cluster_metadata.
var MetadataTopic = reserved(1)

// Reserved directory ids (KIP-858): where a replica's directory is not a
// registered one.
var (
	// MigratingDir: the replica comes from before directories had ids.
	MigratingDir = reserved(0)
	// UnassignedDir: the broker has not said yet in which directory a replica is.
	UnassignedDir = reserved(1)
	// LostDir: the replica is in a directory that is offline.
	LostDir = reserved(2)
)

// TextLen is the length of the text form of a UUID.
const TextLen = 22

func reserved(n byte) UUID { return UUID{15: n} }

// Parse reads the text form. It refuses text that isn't 22 characters of
// canonical base64url, padding included.
func Parse(s string) (UUID, error) {
	var u UUID
	if len(s) != TextLen {
		return Zero, fmt.Errorf("id %q has %d characters, an id has %d of base64url", clip(s), len(s), TextLen)
	}
	if _, err := base64.RawURLEncoding.Strict().Decode(u[:], []byte(s)); err != nil {
		return Zero, fmt.Errorf("id %q is not base64url: %w", s, err)
	}
	return u, nil
}

func clip(s string) string {
	const max = 64
	if len(s) > max {
		return s[:max] + "..."
	}
	return s
}

// String returns the text form.
func (u UUID) String() string { return base64.RawURLEncoding.EncodeToString(u[:]) }

// IsZero reports whether u is [Zero].
func (u UUID) IsZero() bool { return u == Zero }

// IsReserved reports whether u is one of the first hundred ids, which Kafka
// keeps for itself.
func (u UUID) IsReserved() bool {
	return binary.BigEndian.Uint64(u[:8]) == 0 && binary.BigEndian.Uint64(u[8:]) < 100
}

// MarshalText implements encoding.TextMarshaler.
func (u UUID) MarshalText() ([]byte, error) { return []byte(u.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (u *UUID) UnmarshalText(b []byte) error {
	v, err := Parse(string(b))
	if err != nil {
		return err
	}
	*u = v
	return nil
}

// New draws a random (version 4) id from r. The error is r's.
func New(r io.Reader) (UUID, error) {
	for {
		var u UUID
		if _, err := io.ReadFull(r, u[:]); err != nil {
			return Zero, fmt.Errorf("random source for a new id: %w", err)
		}
		u[6] = u[6]&0x0f | 0x40
		u[8] = u[8]&0x3f | 0x80
		// The first character of the text is the top six bits; '-' is 62.
		if u[0]>>2 != 62 {
			return u, nil
		}
	}
}
