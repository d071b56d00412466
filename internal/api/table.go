package api

// Row is what is known about one API that Milena serves.
type Row struct {
	Key  Key
	Name string // Kafka's name of the API, as in its metrics

	// Min and Max bound the versions that are served.
	Min, Max int16
	// Own is how many of the last versions Kafka doesn't have: they are KIP-1279's.
	Own int16
	// AdvertisedMin is the lowest version ApiVersions names. It is Min but
	// for Produce, whose versions 0 to 2 are listed and refused when used:
	// librdkafka before 2.10 takes a missing version 0 for a broker that
	// can't do compression (KAFKA-18659).
	AdvertisedMin int16
	// Flexible is the first version whose request has tagged fields and
	// header version 2 (KIP-482), -1 if there is none.
	Flexible int16

	// Broker and Controller say on which kind of listener the API is served.
	Broker, Controller bool
	// Forward: a broker passes the request on to the controller (KIP-590).
	Forward bool
}

// IsFlexible reports whether requests of version v have tagged fields.
func (r Row) IsFlexible(v int16) bool { return r.Flexible >= 0 && v >= r.Flexible }

// KafkaMax is the last version that Kafka has too.
func (r Row) KafkaMax() int16 { return r.Max - r.Own }

// Serves reports whether version v is one that is served.
func (r Row) Serves(v int16) bool { return v >= r.Min && v <= r.Max }

// Table returns the rows of all APIs that Milena serves, by key. The caller
// may change the result.
func Table() []Row { return append([]Row(nil), rows...) }

// Lookup returns the row of k; ok is false if Milena doesn't serve it.
func Lookup(k Key) (row Row, ok bool) {
	lo, hi := 0, len(rows)
	for lo < hi {
		if mid := int(uint(lo+hi) >> 1); rows[mid].Key < k {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	if lo < len(rows) && rows[lo].Key == k {
		return rows[lo], true
	}
	return Row{}, false
}

// String returns Kafka's name of an API that Milena serves, else the number.
func (k Key) String() string {
	if row, ok := Lookup(k); ok {
		return row.Name
	}
	return "api key " + itoa(int(k))
}

// rows is ordered by key. The versions are those of Apache Kafka 4.4, stable
// ones only; a test compares them with what its client jar says. Own counts
// those that are not.
var rows = []Row{
	{Key: Produce, Name: "Produce", Min: 3, Max: 13, AdvertisedMin: 0, Flexible: 9, Broker: true},
	{Key: Fetch, Name: "Fetch", Min: 4, Max: 18, AdvertisedMin: 4, Flexible: 12, Broker: true, Controller: true},
	{Key: ListOffsets, Name: "ListOffsets", Min: 1, Max: 11, AdvertisedMin: 1, Flexible: 6, Broker: true},
	{Key: Metadata, Name: "Metadata", Min: 0, Max: 13, AdvertisedMin: 0, Flexible: 9, Broker: true},
	{Key: OffsetCommit, Name: "OffsetCommit", Min: 2, Max: 10, AdvertisedMin: 2, Flexible: 8, Broker: true},
	{Key: OffsetFetch, Name: "OffsetFetch", Min: 1, Max: 10, AdvertisedMin: 1, Flexible: 6, Broker: true},
	{Key: FindCoordinator, Name: "FindCoordinator", Min: 0, Max: 6, AdvertisedMin: 0, Flexible: 3, Broker: true},
	{Key: JoinGroup, Name: "JoinGroup", Min: 0, Max: 9, AdvertisedMin: 0, Flexible: 6, Broker: true},
	{Key: Heartbeat, Name: "Heartbeat", Min: 0, Max: 4, AdvertisedMin: 0, Flexible: 4, Broker: true},
	{Key: LeaveGroup, Name: "LeaveGroup", Min: 0, Max: 5, AdvertisedMin: 0, Flexible: 4, Broker: true},
	{Key: SyncGroup, Name: "SyncGroup", Min: 0, Max: 5, AdvertisedMin: 0, Flexible: 4, Broker: true},
	{Key: DescribeGroups, Name: "DescribeGroups", Min: 0, Max: 6, AdvertisedMin: 0, Flexible: 5, Broker: true},
	{Key: ListGroups, Name: "ListGroups", Min: 0, Max: 5, AdvertisedMin: 0, Flexible: 3, Broker: true},
	{Key: SASLHandshake, Name: "SaslHandshake", Min: 0, Max: 1, AdvertisedMin: 0, Flexible: -1, Broker: true, Controller: true},
	{Key: ApiVersions, Name: "ApiVersions", Min: 0, Max: 5, AdvertisedMin: 0, Flexible: 3, Broker: true, Controller: true},
	{Key: CreateTopics, Name: "CreateTopics", Min: 2, Max: 8, Own: 1, AdvertisedMin: 2, Flexible: 5, Broker: true, Controller: true, Forward: true},
	{Key: DeleteTopics, Name: "DeleteTopics", Min: 1, Max: 6, AdvertisedMin: 1, Flexible: 4, Broker: true, Controller: true, Forward: true},
	{Key: DeleteRecords, Name: "DeleteRecords", Min: 0, Max: 2, AdvertisedMin: 0, Flexible: 2, Broker: true},
	{Key: InitProducerID, Name: "InitProducerId", Min: 0, Max: 5, AdvertisedMin: 0, Flexible: 2, Broker: true},
	{Key: OffsetForLeaderEpoch, Name: "OffsetForLeaderEpoch", Min: 2, Max: 4, AdvertisedMin: 2, Flexible: 4, Broker: true},
	{Key: DescribeConfigs, Name: "DescribeConfigs", Min: 1, Max: 4, AdvertisedMin: 1, Flexible: 4, Broker: true, Controller: true},
	{Key: AlterConfigs, Name: "AlterConfigs", Min: 0, Max: 2, AdvertisedMin: 0, Flexible: 2, Broker: true, Controller: true, Forward: true},
	{Key: AlterReplicaLogDirs, Name: "AlterReplicaLogDirs", Min: 1, Max: 2, AdvertisedMin: 1, Flexible: 2, Broker: true},
	{Key: DescribeLogDirs, Name: "DescribeLogDirs", Min: 1, Max: 5, AdvertisedMin: 1, Flexible: 2, Broker: true},
	{Key: SASLAuthenticate, Name: "SaslAuthenticate", Min: 0, Max: 2, AdvertisedMin: 0, Flexible: 2, Broker: true, Controller: true},
	{Key: CreatePartitions, Name: "CreatePartitions", Min: 0, Max: 3, AdvertisedMin: 0, Flexible: 2, Broker: true, Controller: true, Forward: true},
	{Key: DeleteGroups, Name: "DeleteGroups", Min: 0, Max: 3, AdvertisedMin: 0, Flexible: 2, Broker: true},
	{Key: ElectLeaders, Name: "ElectLeaders", Min: 0, Max: 2, AdvertisedMin: 0, Flexible: 2, Broker: true, Controller: true, Forward: true},
	{Key: IncrementalAlterConfigs, Name: "IncrementalAlterConfigs", Min: 0, Max: 1, AdvertisedMin: 0, Flexible: 1, Broker: true, Controller: true, Forward: true},
	{Key: AlterPartitionAssignments, Name: "AlterPartitionReassignments", Min: 0, Max: 1, AdvertisedMin: 0, Flexible: 0, Broker: true, Controller: true, Forward: true},
	{Key: ListPartitionReassignments, Name: "ListPartitionReassignments", Min: 0, Max: 0, AdvertisedMin: 0, Flexible: 0, Broker: true, Controller: true, Forward: true},
	{Key: OffsetDelete, Name: "OffsetDelete", Min: 0, Max: 0, AdvertisedMin: 0, Flexible: -1, Broker: true},
	{Key: DescribeQuorum, Name: "DescribeQuorum", Min: 0, Max: 2, AdvertisedMin: 0, Flexible: 0, Broker: true, Controller: true, Forward: true},
	{Key: AlterPartition, Name: "AlterPartition", Min: 2, Max: 3, AdvertisedMin: 2, Flexible: 2, Controller: true},
	{Key: UpdateFeatures, Name: "UpdateFeatures", Min: 0, Max: 2, AdvertisedMin: 0, Flexible: 0, Broker: true, Controller: true, Forward: true},
	{Key: Envelope, Name: "Envelope", Min: 0, Max: 0, AdvertisedMin: 0, Flexible: 0, Controller: true},
	{Key: FetchSnapshot, Name: "FetchSnapshot", Min: 0, Max: 1, AdvertisedMin: 0, Flexible: 0, Controller: true},
	{Key: DescribeCluster, Name: "DescribeCluster", Min: 0, Max: 2, AdvertisedMin: 0, Flexible: 0, Broker: true, Controller: true},
	{Key: DescribeProducers, Name: "DescribeProducers", Min: 0, Max: 0, AdvertisedMin: 0, Flexible: 0, Broker: true},
	{Key: BrokerRegistration, Name: "BrokerRegistration", Min: 0, Max: 4, AdvertisedMin: 0, Flexible: 0, Controller: true},
	{Key: BrokerHeartbeat, Name: "BrokerHeartbeat", Min: 0, Max: 2, AdvertisedMin: 0, Flexible: 0, Controller: true},
	{Key: UnregisterBroker, Name: "UnregisterBroker", Min: 0, Max: 0, AdvertisedMin: 0, Flexible: 0, Broker: true, Controller: true, Forward: true},
	{Key: AllocateProducerIDs, Name: "AllocateProducerIds", Min: 0, Max: 0, AdvertisedMin: 0, Flexible: 0, Controller: true, Forward: true},
	{Key: ControllerRegistration, Name: "ControllerRegistration", Min: 0, Max: 0, AdvertisedMin: 0, Flexible: 0, Controller: true},
	{Key: AssignReplicasToDirs, Name: "AssignReplicasToDirs", Min: 0, Max: 0, AdvertisedMin: 0, Flexible: 0, Controller: true},
	{Key: ListConfigResources, Name: "ListConfigResources", Min: 0, Max: 1, AdvertisedMin: 0, Flexible: 0, Broker: true},
	{Key: DescribeTopicPartitions, Name: "DescribeTopicPartitions", Min: 0, Max: 0, AdvertisedMin: 0, Flexible: 0, Broker: true},
	{Key: AddRaftVoter, Name: "AddRaftVoter", Min: 0, Max: 1, AdvertisedMin: 0, Flexible: 0, Broker: true, Controller: true, Forward: true},
	{Key: RemoveRaftVoter, Name: "RemoveRaftVoter", Min: 0, Max: 0, AdvertisedMin: 0, Flexible: 0, Broker: true, Controller: true, Forward: true},
	{Key: UpdateRaftVoter, Name: "UpdateRaftVoter", Min: 0, Max: 0, AdvertisedMin: 0, Flexible: 0, Controller: true},
	{Key: CreateClusterMirror, Name: "CreateClusterMirror", Min: 0, Max: 0, AdvertisedMin: 0, Flexible: 0, Broker: true, Controller: true, Forward: true},
	{Key: StartMirrorTopics, Name: "StartMirrorTopics", Min: 0, Max: 0, AdvertisedMin: 0, Flexible: 0, Broker: true, Controller: true, Forward: true},
	{Key: StopMirrorTopics, Name: "StopMirrorTopics", Min: 0, Max: 0, AdvertisedMin: 0, Flexible: 0, Broker: true, Controller: true, Forward: true},
	{Key: ListClusterMirrors, Name: "ListClusterMirrors", Min: 0, Max: 0, AdvertisedMin: 0, Flexible: 0, Broker: true},
	{Key: DescribeClusterMirrors, Name: "DescribeClusterMirrors", Min: 0, Max: 0, AdvertisedMin: 0, Flexible: 0, Broker: true},
	{Key: ReadMirrorStates, Name: "ReadMirrorStates", Min: 0, Max: 0, AdvertisedMin: 0, Flexible: 0, Broker: true},
	{Key: WriteMirrorStates, Name: "WriteMirrorStates", Min: 0, Max: 0, AdvertisedMin: 0, Flexible: 0, Broker: true},
	{Key: PauseMirrorTopics, Name: "PauseMirrorTopics", Min: 0, Max: 0, AdvertisedMin: 0, Flexible: 0, Broker: true, Controller: true, Forward: true},
	{Key: ResumeMirrorTopics, Name: "ResumeMirrorTopics", Min: 0, Max: 0, AdvertisedMin: 0, Flexible: 0, Broker: true, Controller: true, Forward: true},
	{Key: DeleteClusterMirror, Name: "DeleteClusterMirror", Min: 0, Max: 0, AdvertisedMin: 0, Flexible: 0, Broker: true, Controller: true, Forward: true},
	{Key: BumpLeaderEpochs, Name: "BumpLeaderEpochs", Min: 0, Max: 0, AdvertisedMin: 0, Flexible: 0, Controller: true},
	{Key: ReadMirrorOffsets, Name: "ReadMirrorOffsets", Min: 0, Max: 0, AdvertisedMin: 0, Flexible: 0, Broker: true},
	{Key: RecoverMirrorTopics, Name: "RecoverMirrorTopics", Min: 0, Max: 0, AdvertisedMin: 0, Flexible: 0, Broker: true},
	{Key: RaftMessages, Name: "RaftMessages", Min: 0, Max: 0, AdvertisedMin: 0, Flexible: 0, Controller: true},
	{Key: MirrorCuts, Name: "MirrorCuts", Min: 0, Max: 0, AdvertisedMin: 0, Flexible: 0, Broker: true},
	{Key: ClampGroupOffsets, Name: "ClampGroupOffsets", Min: 0, Max: 0, AdvertisedMin: 0, Flexible: 0, Broker: true},
	{Key: CheckMirrorSource, Name: "CheckMirrorSource", Min: 0, Max: 0, AdvertisedMin: 0, Flexible: 0, Broker: true},
}
