package mirrormsg

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"milena/internal/api"
	"milena/internal/wire"
)

// Operations of MirrorCuts.
const (
	ListCuts  int8 = 0
	ReadCut   int8 = 1
	PurgeCuts int8 = 2
)

// MirrorCutsRequest is the request of API MirrorCuts, version 0: a broker tells of what cuts of mirror partitions set aside on its
// disks (spec D4). It is Milena's own.
type MirrorCutsRequest struct {
	// Operation: ListCuts, ReadCut of the first name, or PurgeCuts of all names.
	Operation int8
	// Names: The files that it is about.
	Names []string
	// Position: Where to read, in bytes.
	Position int64
	// MaxBytes: Most bytes to read, but for a first batch that has more.
	MaxBytes int32
}

func walkMirrorCutsRequest(c *wire.Codec, m *MirrorCutsRequest) {
	c.Int8(&m.Operation)
	c.Strings(&m.Names)
	c.Int64(&m.Position)
	c.Int32(&m.MaxBytes)
	c.Tags()
}

// MirrorCutsResponse is the response of API MirrorCuts, version 0.
type MirrorCutsResponse struct {
	// ThrottleTimeMs: How long a quota asks the client to wait, in milliseconds.
	ThrottleTimeMs int32
	// ErrorCode: Top-level error, 0 if none.
	ErrorCode int16
	// ErrorMessage: Detail of the error, or null.
	ErrorMessage *string
	// Cuts: To ListCuts, the files on the broker, the oldest first.
	Cuts []MirrorCut
	// Data: To ReadCut, whole batches; none at the file's end.
	Data []byte
}

func walkMirrorCutsResponse(c *wire.Codec, m *MirrorCutsResponse) {
	c.Int32(&m.ThrottleTimeMs)
	c.Int16(&m.ErrorCode)
	c.NullableString(&m.ErrorMessage)
	wire.Array(c, &m.Cuts, walkMirrorCut)
	c.Bytes(&m.Data)
	c.Tags()
}

// MirrorCut is one element of Cuts: a file of records that were set aside.
type MirrorCut struct {
	// Name: The file's, unique on its broker.
	Name string
	// Dir: The log directory that it lies in.
	Dir string
	// MirrorName, TopicName, TopicID, PartitionIndex: Where the records were. The name is empty in files of older releases.
	MirrorName     string
	TopicName      string
	TopicID        string
	PartitionIndex int32
	// FirstOffset, EndOffset: The first offset, and the one after the last.
	FirstOffset int64
	EndOffset   int64
	// Records, Bytes: How many.
	Records int64
	Bytes   int64
	// CreatedMs: When, in milliseconds since 1970.
	CreatedMs int64
	// LeaderEpoch: Under which the broker cut; -1: not known.
	LeaderEpoch int32
	// Reason: Why.
	Reason string
}

func walkMirrorCut(c *wire.Codec, m *MirrorCut) {
	c.String(&m.Name)
	c.String(&m.Dir)
	c.String(&m.MirrorName)
	c.String(&m.TopicName)
	c.String(&m.TopicID)
	c.Int32(&m.PartitionIndex)
	c.Int64(&m.FirstOffset)
	c.Int64(&m.EndOffset)
	c.Int64(&m.Records)
	c.Int64(&m.Bytes)
	c.Int64(&m.CreatedMs)
	c.Int32(&m.LeaderEpoch)
	c.String(&m.Reason)
	c.Tags()
}

// Key is the API key, in either set of numbers.
func (*MirrorCutsRequest) Key() int16 { return int16(api.MirrorCuts) }

// MaxVersion is the newest version there is.
func (*MirrorCutsRequest) MaxVersion() int16 { return 0 }

// SetVersion does nothing: there is one version.
func (*MirrorCutsRequest) SetVersion(int16) {}

// GetVersion is the version that is written and read.
func (*MirrorCutsRequest) GetVersion() int16 { return 0 }

// IsFlexible says that tagged fields are used.
func (*MirrorCutsRequest) IsFlexible() bool { return true }

// AppendTo appends the message's body to dst.
func (m *MirrorCutsRequest) AppendTo(dst []byte) []byte {
	return encode(dst, m, walkMirrorCutsRequest)
}

// ReadFrom reads the message's body; it keeps nothing of src.
func (m *MirrorCutsRequest) ReadFrom(src []byte) error { return decode(src, m, walkMirrorCutsRequest) }

// ResponseKind is an empty response to read the answer into.
func (*MirrorCutsRequest) ResponseKind() kmsg.Response { return &MirrorCutsResponse{} }

// Key is the API key, in either set of numbers.
func (*MirrorCutsResponse) Key() int16 { return int16(api.MirrorCuts) }

// MaxVersion is the newest version there is.
func (*MirrorCutsResponse) MaxVersion() int16 { return 0 }

// SetVersion does nothing: there is one version.
func (*MirrorCutsResponse) SetVersion(int16) {}

// GetVersion is the version that is written and read.
func (*MirrorCutsResponse) GetVersion() int16 { return 0 }

// IsFlexible says that tagged fields are used.
func (*MirrorCutsResponse) IsFlexible() bool { return true }

// AppendTo appends the message's body to dst.
func (m *MirrorCutsResponse) AppendTo(dst []byte) []byte {
	return encode(dst, m, walkMirrorCutsResponse)
}

// ReadFrom reads the message's body; it keeps nothing of src.
func (m *MirrorCutsResponse) ReadFrom(src []byte) error {
	return decode(src, m, walkMirrorCutsResponse)
}

// RequestKind is an empty request of this API.
func (*MirrorCutsResponse) RequestKind() kmsg.Request { return &MirrorCutsRequest{} }
