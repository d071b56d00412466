package fetchwire

import (
	"milena/internal/api"
	"milena/internal/record"
	"milena/internal/wire"
)

// DecodeResponse decodes the body of a Fetch response. Record bytes alias body.
// The error wraps wire.ErrShort or wire.ErrMalformed.
func DecodeResponse(body []byte, version int16) (*Response, error) {
	if err := checkVersion(version); err != nil {
		return nil, err
	}
	c := wire.NewDecoder(body, version, version >= flexibleVersion)
	r := &Response{}
	c.Int32(&r.ThrottleMillis)
	if version >= 7 {
		readCode(c, &r.ErrorCode)
		c.Int32(&r.SessionID)
	}
	wire.Array(c, &r.Topics, readTopic)
	c.Tags(wire.Tag(0, false, func(c *wire.Codec) { wire.Array(c, &r.Brokers, readEndpoint) }))
	if err := c.Err(); err != nil {
		return nil, err
	}
	return r, nil
}

func readCode(c *wire.Codec, code *api.Code) { c.Int16((*int16)(code)) }

func readTopic(c *wire.Codec, t *ResponseTopic) {
	if c.Version >= topicIDVersion {
		c.UUID(&t.TopicID)
	} else {
		c.String(&t.Topic)
	}
	wire.Array(c, &t.Partitions, readPartition)
	c.Tags()
}

func readPartition(c *wire.Codec, p *ResponsePartition) {
	*p = NewResponsePartition(0)
	c.Int32(&p.Partition)
	readCode(c, &p.ErrorCode)
	c.Int64(&p.HighWatermark)
	c.Int64(&p.LastStableOffset)
	if c.Version >= 5 {
		c.Int64(&p.LogStartOffset)
	}
	wire.NullableArray(c, &p.AbortedTransactions, readAborted)
	if c.Version >= 11 {
		c.Int32(&p.PreferredReadReplica)
	}
	var records []byte
	c.NullableBytes(&records)
	if len(records) > 0 {
		p.Records = []record.Span{record.MemSpan(records)}
	}
	c.Tags(
		wire.Tag(0, false, func(c *wire.Codec) {
			p.DivergingEpoch = &EpochEndOffset{}
			c.Int32(&p.DivergingEpoch.Epoch)
			c.Int64(&p.DivergingEpoch.EndOffset)
			c.Tags()
		}),
		wire.Tag(1, false, func(c *wire.Codec) {
			p.CurrentLeader = &LeaderAndEpoch{}
			c.Int32(&p.CurrentLeader.LeaderID)
			c.Int32(&p.CurrentLeader.LeaderEpoch)
			c.Tags()
		}),
		wire.Tag(2, false, func(c *wire.Codec) {
			p.SnapshotID = &EpochEndOffset{}
			c.Int64(&p.SnapshotID.EndOffset)
			c.Int32(&p.SnapshotID.Epoch)
			c.Tags()
		}),
	)
}

func readAborted(c *wire.Codec, a *AbortedTransaction) {
	c.Int64(&a.ProducerID)
	c.Int64(&a.FirstOffset)
	c.Tags()
}

func readEndpoint(c *wire.Codec, b *NodeEndpoint) {
	c.Int32(&b.NodeID)
	c.String(&b.Host)
	c.Int32(&b.Port)
	c.NullableString(&b.Rack)
	c.Tags()
}
