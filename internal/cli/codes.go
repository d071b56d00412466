package cli

import (
	"encoding/base64"
	"errors"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// isCode says whether err is the Kafka error of that name.
func isCode(err error, name string) bool {
	var ke *kerr.Error
	return errors.As(err, &ke) && ke.Message == name
}

// kafkaID prints a topic id as Kafka's tools do: base64url without padding.
func kafkaID(id kadm.TopicID) string { return base64.RawURLEncoding.EncodeToString(id[:]) }

// retriable says whether a cluster's answer is one that goes away by itself.
func retriable(err error) bool {
	var ke *kerr.Error
	return errors.As(err, &ke) && ke.Retriable
}

// commitResult keeps the first error of a commit in *failed.
func commitResult(failed *error) func(*kgo.Client, *kmsg.OffsetCommitRequest, *kmsg.OffsetCommitResponse, error) {
	return func(_ *kgo.Client, _ *kmsg.OffsetCommitRequest, resp *kmsg.OffsetCommitResponse, err error) {
		if *failed = err; err != nil {
			return
		}
		for _, t := range resp.Topics {
			for _, p := range t.Partitions {
				if *failed = kerr.ErrorForCode(p.ErrorCode); *failed != nil {
					return
				}
			}
		}
	}
}
