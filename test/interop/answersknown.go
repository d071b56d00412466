package main

// knownDifferences are all that remain between Kafka's answers and Milena's, each with its reason.
func knownDifferences() []difference {
	return []difference{
		{`(produce.*|nothing for API 0) v[0-2]`, ``, "Kafka closes the connection; an answer with UNSUPPORTED_VERSION says why"},
		{`produce codec 6 .*`, `.*(ErrorCode|LogStartOffset)`, "Kafka: UNKNOWN_SERVER_ERROR"},
		{`idempotent .*: (the first again|third again: five back) v9`, `.*LogAppendTime`, "Kafka tells the batch's last timestamp, which the producer takes for its record's; -1 lets it keep its own"},
		{`idempotent .*: negative epoch v9`, `.*ErrorCode`, "a batch that has an id and no epoch is refused as such"},
		{`groups.*|nothing for API 16 .*`, `.Groups.refused..*`, "Kafka keeps an empty group after a refused join"},
		{`create.*|.*configs of .*`, `.*min.insync.replicas.*`, "Kafka sets min.insync.replicas for the cluster when eligible leader replicas are turned on; here they always are"},
		{`older alter, cluster default v.`, `.*ErrorCode`, "the same: the older request would take it away"},
		{`configs of 4 "" .*`, `.*Configs`, "the same: there is no other key"},
		{`create.*|all configs of a topic.*`, `.*Configs.(mirror|milena)[.].*`, "keys of KIP-1279 and our own"},
		{`create only to look v7`, `.*look..TopicID`, "Kafka makes up an id that no topic will have"},
		{`alter, op 9.*`, `.*ErrorCode`, "Kafka: UNKNOWN_SERVER_ERROR"},
		{`elect all, .*|nothing for API 43 .*`, `.Topics.*`, "Kafka lists topics without partitions where no election was needed"},
		{`partitions v0`, `.*AuthorizedOperations`, "Kafka tells operations on topics that don't exist"},
		{`quorum v.`, `.*(HighWatermark|LogEndOffset|LeaderEpoch|Listeners.*|ReplicaDirectoryID)`, "logs of their own; a single node here has a directory id and no controller listener"},
		{`nothing for API 35 v.`, `.*__consumer_offsets.*Size`, "records of groups are their brokers' own"},
		{`quorum of a topic v.`, `.*(HighWatermark|LeaderEpoch|LeaderID)`, "unknown is -1 here, 0 there"},
		{`feature no way v.`, `.ErrorCode`, "Kafka: INVALID_UPDATE_VERSION for an upgrade type that doesn't exist"},
	}
}
