package controller

import "milena/internal/api"

// hashed says of the internal topics, whose partition is chosen by a hash of what is kept there, what that is, and which key gives their
// number of partitions. Kafka lets that be changed, and then looks for what there was in other partitions (KIP-895).
func hashed(topic string) (what, key string, ok bool) {
	switch topic {
	case "__consumer_offsets":
		return "a group", "offsets.topic.num.partitions", true
	case "__transaction_state":
		return "a transactional id", "transaction.state.log.num.partitions", true
	case "__share_group_state":
		return "a share group", "share.coordinator.state.topic.num.partitions", true
	case "__mirror_state":
		return "a mirrored partition", "mirror.state.topic.num.partitions", true
	}
	return "", "", false
}

// cleanupKey is the topic config that says what becomes of old records.
const cleanupKey = "cleanup.policy"

// checkGrowth refuses to give an internal topic more partitions.
func checkGrowth(topic string) *api.Error {
	what, key, ok := hashed(topic)
	if !ok {
		return nil
	}
	return api.Errorf(api.InvalidTopicException, "the number of partitions of %s can't be changed: the state of %s is in the partition that the hash of its name gives by that number, "+
		"and would be looked for in another one; %s counts when the topic is made", topic, what, key)
}

// checkCleanup refuses a cleanup policy by which an internal topic would lose the newest record of a key, which is state. entries are those
// that the topic is about to have.
func checkCleanup(topic string, entries map[string]string) *api.Error {
	switch topic {
	case "__consumer_offsets", "__transaction_state", "__mirror_state":
		if policy, ok := entries[cleanupKey]; !ok || policy != "compact" {
			what, _, _ := hashed(topic)
			return api.Errorf(api.InvalidConfig, "%s of %s must be compact: with %s the state of %s would be deleted with age", cleanupKey, topic, policyText(policy, ok), what)
		}
	}
	return nil
}

func policyText(policy string, ok bool) string {
	if !ok {
		return "the brokers' default"
	}
	return policy
}
