package metafollow

import (
	"encoding/binary"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// tagMetadataOffset is a tagged field that our controllers add to responses: an int64,
// the offset that the committed metadata log had reached. Whoever doesn't know it skips it.
const tagMetadataOffset = 10_000

// tagGeneration is another one, of Fetch responses: an uint64, the generation of the quorum, which a restore from a backup changes.
const tagGeneration = 10_001

// tagCut is another one, of the partitions in AlterPartition requests: an int64, the offset that the leader's log was cut to.
const tagCut = 10_002

// SetCut adds the offset that a log was cut to to the tagged fields of a partition in an AlterPartition request.
func SetCut(tags *kmsg.Tags, offset int64) {
	tags.Set(tagCut, binary.BigEndian.AppendUint64(nil, uint64(offset)))
}

// Cut is the offset in the tagged fields of a partition in an AlterPartition request, nil if there is none.
func Cut(tags *kmsg.Tags) *int64 {
	var offset *int64
	tags.Each(func(tag uint32, v []byte) {
		if tag == tagCut && len(v) == 8 {
			to := int64(binary.BigEndian.Uint64(v))
			offset = &to
		}
	})
	return offset
}

// SetGeneration adds the quorum's generation to a response's tagged fields.
func SetGeneration(tags *kmsg.Tags, generation uint64) {
	tags.Set(tagGeneration, binary.BigEndian.AppendUint64(nil, generation))
}

// generationOf is the generation in a response's tagged fields, if there is one.
func generationOf(tags *kmsg.Tags) (generation uint64, ok bool) {
	tags.Each(func(tag uint32, v []byte) {
		if tag == tagGeneration && len(v) == 8 {
			generation, ok = binary.BigEndian.Uint64(v), true
		}
	})
	return generation, ok
}

// SetMetadataOffset adds the offset to a response's tagged fields.
func SetMetadataOffset(tags *kmsg.Tags, offset int64) {
	tags.Set(tagMetadataOffset, binary.BigEndian.AppendUint64(nil, uint64(offset)))
}

// MetadataOffset is the offset in a response's tagged fields, -1 if there is none.
func MetadataOffset(tags *kmsg.Tags) int64 {
	offset := int64(-1)
	tags.Each(func(tag uint32, v []byte) {
		if tag == tagMetadataOffset && len(v) == 8 {
			offset = int64(binary.BigEndian.Uint64(v))
		}
	})
	return offset
}
