package cli

import (
	"encoding/json"
	"fmt"

	"milena/internal/mirrormsg"
	"milena/internal/record"
)

// mirrorStateText is a record of __mirror_state as text: key and value as JSON, the type and the version beside the fields, as Kafka's
// decoders for internal topics have them. What can't be decoded is shown as it is, with the reason.
func mirrorStateText(r record.Record) (key, value string) {
	k, err := mirrormsg.ParseKey(r.Key)
	if err != nil {
		return fmt.Sprintf("%q (%v)", r.Key, err), fmt.Sprintf("%q", r.Value)
	}
	key = jsonText(map[string]any{"type": k.Type, "data": map[string]any{"mirrorName": k.Mirror, "topicId": k.TopicID.String(), "partition": k.Partition}})
	if r.Value == nil {
		return key, "<DELETE>"
	}
	data := map[string]any{}
	if k.Type == mirrormsg.LastMirrorEpochsType {
		v := mirrormsg.NewLastMirrorEpochsValue()
		err = v.ReadFrom(r.Value)
		data["lastMirrorEpoch"], data["stopWishOffset"], data["lastMirrorOffset"] = v.LastMirrorEpoch, v.StopWishOffset, v.LastMirrorOffset
	} else {
		v := mirrormsg.NewMirrorPartitionStateValue()
		err = v.ReadFrom(r.Value)
		data["state"], data["previousState"] = mirrormsg.State(v.State).String(), mirrormsg.State(v.PreviousState).String()
		data["leaderEpoch"], data["stateEpoch"], data["errorMessage"], data["retryAttempt"] = v.LeaderEpoch, v.StateEpoch, v.ErrorMessage, v.RetryAttempt
	}
	if err != nil {
		return key, fmt.Sprintf("%q (%v)", r.Value, err)
	}
	return key, jsonText(map[string]any{"version": 0, "data": data})
}

// jsonText is a map of plain values as JSON, its keys sorted.
func jsonText(m map[string]any) string {
	b, err := json.Marshal(m)
	if err != nil {
		return err.Error()
	}
	return string(b)
}
