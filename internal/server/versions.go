package server

import (
	"cmp"
	"slices"

	"milena/internal/api"
	"milena/internal/fetchwire"
	"milena/internal/wire"
)

// VersionRange is a line of an ApiVersions response; Key is the number on the
// wire.
type VersionRange struct {
	Key      int16
	Min, Max int16
}

// APIs lists what a listener serves, by key on the wire; nil for a listener
// that isn't there.
func (s *Server) APIs(listener string) []VersionRange {
	for _, l := range s.listeners {
		if l.Name == listener {
			return l.table.APIs(s.o.CodePoints)
		}
	}
	return nil
}

// APIs lists what the table serves, by key on the wire.
func (t Table) APIs(points api.CodePoints) []VersionRange {
	var out []VersionRange
	for _, row := range api.Table() {
		if _, ok := t[row.Key]; ok {
			out = append(out, VersionRange{Key: points.WireKey(row.Key), Min: row.AdvertisedMin, Max: row.Max})
		}
	}
	slices.SortFunc(out, func(a, b VersionRange) int { return cmp.Compare(a.Key, b.Key) })
	return out
}

// VersionsFallback answers an ApiVersions request whose version is not served
// (KIP-511): a version 0 response with UNSUPPORTED_VERSION that names the
// versions of ApiVersions itself, so that the client can ask again.
func VersionsFallback() Response {
	row, _ := api.Lookup(api.ApiVersions)
	b := wire.AppendInt16(nil, int16(api.UnsupportedVersion))
	b = wire.AppendArrayLen(b, 1, false)
	b = wire.AppendInt16(b, int16(row.Key))
	b = wire.AppendInt16(b, row.AdvertisedMin)
	b = wire.AppendInt16(b, row.Max)
	return Response{Pieces: []fetchwire.Piece{{Bytes: b}}, Code: api.UnsupportedVersion}
}
