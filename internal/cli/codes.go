package cli

import (
	"encoding/base64"
	"errors"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
)

// isCode says whether err is the Kafka error of that name.
func isCode(err error, name string) bool {
	var ke *kerr.Error
	return errors.As(err, &ke) && ke.Message == name
}

// kafkaID prints a topic id as Kafka's tools do: base64url without padding.
func kafkaID(id kadm.TopicID) string { return base64.RawURLEncoding.EncodeToString(id[:]) }
