package api

// Key is an API key: the number a request header begins with. The mirror APIs
// stand here under Milena's own numbers; [CodePoints] translates them to what
// goes over the wire.
type Key int16

// Kafka's API keys, all up to Apache Kafka 4.4, whether or not Milena serves
// them.
const (
	Produce                               Key = 0
	Fetch                                 Key = 1
	ListOffsets                           Key = 2
	Metadata                              Key = 3
	LeaderAndISR                          Key = 4
	StopReplica                           Key = 5
	UpdateMetadata                        Key = 6
	ControlledShutdown                    Key = 7
	OffsetCommit                          Key = 8
	OffsetFetch                           Key = 9
	FindCoordinator                       Key = 10
	JoinGroup                             Key = 11
	Heartbeat                             Key = 12
	LeaveGroup                            Key = 13
	SyncGroup                             Key = 14
	DescribeGroups                        Key = 15
	ListGroups                            Key = 16
	SASLHandshake                         Key = 17
	ApiVersions                           Key = 18
	CreateTopics                          Key = 19
	DeleteTopics                          Key = 20
	DeleteRecords                         Key = 21
	InitProducerID                        Key = 22
	OffsetForLeaderEpoch                  Key = 23
	AddPartitionsToTxn                    Key = 24
	AddOffsetsToTxn                       Key = 25
	EndTxn                                Key = 26
	WriteTxnMarkers                       Key = 27
	TxnOffsetCommit                       Key = 28
	DescribeACLs                          Key = 29
	CreateACLs                            Key = 30
	DeleteACLs                            Key = 31
	DescribeConfigs                       Key = 32
	AlterConfigs                          Key = 33
	AlterReplicaLogDirs                   Key = 34
	DescribeLogDirs                       Key = 35
	SASLAuthenticate                      Key = 36
	CreatePartitions                      Key = 37
	CreateDelegationToken                 Key = 38
	RenewDelegationToken                  Key = 39
	ExpireDelegationToken                 Key = 40
	DescribeDelegationToken               Key = 41
	DeleteGroups                          Key = 42
	ElectLeaders                          Key = 43
	IncrementalAlterConfigs               Key = 44
	AlterPartitionAssignments             Key = 45
	ListPartitionReassignments            Key = 46
	OffsetDelete                          Key = 47
	DescribeClientQuotas                  Key = 48
	AlterClientQuotas                     Key = 49
	DescribeUserSCRAMCredentials          Key = 50
	AlterUserSCRAMCredentials             Key = 51
	Vote                                  Key = 52
	BeginQuorumEpoch                      Key = 53
	EndQuorumEpoch                        Key = 54
	DescribeQuorum                        Key = 55
	AlterPartition                        Key = 56
	UpdateFeatures                        Key = 57
	Envelope                              Key = 58
	FetchSnapshot                         Key = 59
	DescribeCluster                       Key = 60
	DescribeProducers                     Key = 61
	BrokerRegistration                    Key = 62
	BrokerHeartbeat                       Key = 63
	UnregisterBroker                      Key = 64
	DescribeTransactions                  Key = 65
	ListTransactions                      Key = 66
	AllocateProducerIDs                   Key = 67
	ConsumerGroupHeartbeat                Key = 68
	ConsumerGroupDescribe                 Key = 69
	ControllerRegistration                Key = 70
	GetTelemetrySubscriptions             Key = 71
	PushTelemetry                         Key = 72
	AssignReplicasToDirs                  Key = 73
	ListConfigResources                   Key = 74
	DescribeTopicPartitions               Key = 75
	ShareGroupHeartbeat                   Key = 76
	ShareGroupDescribe                    Key = 77
	ShareFetch                            Key = 78
	ShareAcknowledge                      Key = 79
	AddRaftVoter                          Key = 80
	RemoveRaftVoter                       Key = 81
	UpdateRaftVoter                       Key = 82
	InitializeShareGroupState             Key = 83
	ReadShareGroupState                   Key = 84
	WriteShareGroupState                  Key = 85
	DeleteShareGroupState                 Key = 86
	ReadShareGroupStateSummary            Key = 87
	StreamsGroupHeartbeat                 Key = 88
	StreamsGroupDescribe                  Key = 89
	DescribeShareGroupOffsets             Key = 90
	AlterShareGroupOffsets                Key = 91
	DeleteShareGroupOffsets               Key = 92
	StreamsGroupTopologyDescriptionUpdate Key = 93
	UnregisterController                  Key = 94
)

// The mirror APIs, by Milena's numbers.
const (
	CreateClusterMirror    Key = 1094
	StartMirrorTopics      Key = 1095
	StopMirrorTopics       Key = 1096
	ListClusterMirrors     Key = 1098
	DescribeClusterMirrors Key = 1099
	ReadMirrorStates       Key = 1100
	WriteMirrorStates      Key = 1101
	PauseMirrorTopics      Key = 1102
	ResumeMirrorTopics     Key = 1103
	DeleteClusterMirror    Key = 1104
	BumpLeaderEpochs       Key = 1105
	ReadMirrorOffsets      Key = 1106
	RecoverMirrorTopics    Key = 1107
)

// RaftMessages carries messages between the voters of the metadata quorum. It is private
// to Milena: the number lies outside of what Kafka assigns, and no client uses it.
const RaftMessages Key = 1200

// MirrorCuts tells of the records that cuts of mirror partitions have set aside on a broker's disks. It is
// private to Milena as well, asked by its tools.
const MirrorCuts Key = 1201

// ClampGroupOffsets takes committed offsets back to where a partition was cut. It is private to
// Milena's brokers.
const ClampGroupOffsets Key = 1202

// CheckMirrorSource has a broker try whether it reaches a cluster by the configs of a mirror. It is private to
// Milena, asked by its tools.
const CheckMirrorSource Key = 1203

// SoftwareName is what Milena's nodes, mirrors and tools call themselves in ApiVersions (KIP-511).
const SoftwareName = "milena"

// IsPrivate reports whether k is an API that only Milena's own nodes and tools use.
func (k Key) IsPrivate() bool { return k >= RaftMessages && k <= CheckMirrorSource }
