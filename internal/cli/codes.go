package cli

import (
	"encoding/base64"
	"errors"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"milena/internal/api"
)

// mirrorError is an answer to a request about mirrors.
type mirrorError interface {
	error
	CodeName() string
}

// isCode says whether err is the Kafka error of that name, or one of mirroring.
func isCode(err error, name string) bool {
	var ke *kerr.Error
	var me mirrorError
	return errors.As(err, &ke) && ke.Message == name || errors.As(err, &me) && me.CodeName() == name
}

// codeError is the error of a code in an answer, nil for none. It knows the codes of mirror APIs, which the client does not.
func codeError(code int16) error {
	err := kerr.ErrorForCode(code)
	if c := api.Code(code); c.IsMirror() {
		return &kerr.Error{Message: c.Name(), Code: code, Retriable: c.Retriable(), Description: c.Message()}
	}
	return err
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
				if *failed = codeError(p.ErrorCode); *failed != nil {
					return
				}
			}
		}
	}
}
