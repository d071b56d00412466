package api

// Code is an error code of the Kafka protocol. The mirror errors stand here
// under Milena's own numbers; [CodePoints] translates them to what goes over
// the wire.
type Code int16

// Kafka's error codes, all up to Apache Kafka 4.4.
const (
	UnknownServerError                     Code = -1
	NoError                                Code = 0
	OffsetOutOfRange                       Code = 1
	CorruptMessage                         Code = 2
	UnknownTopicOrPartition                Code = 3
	InvalidFetchSize                       Code = 4
	LeaderNotAvailable                     Code = 5
	NotLeaderOrFollower                    Code = 6
	RequestTimedOut                        Code = 7
	BrokerNotAvailable                     Code = 8
	ReplicaNotAvailable                    Code = 9
	MessageTooLarge                        Code = 10
	StaleControllerEpoch                   Code = 11
	OffsetMetadataTooLarge                 Code = 12
	NetworkException                       Code = 13
	CoordinatorLoadInProgress              Code = 14
	CoordinatorNotAvailable                Code = 15
	NotCoordinator                         Code = 16
	InvalidTopicException                  Code = 17
	RecordListTooLarge                     Code = 18
	NotEnoughReplicas                      Code = 19
	NotEnoughReplicasAfterAppend           Code = 20
	InvalidRequiredAcks                    Code = 21
	IllegalGeneration                      Code = 22
	InconsistentGroupProtocol              Code = 23
	InvalidGroupID                         Code = 24
	UnknownMemberID                        Code = 25
	InvalidSessionTimeout                  Code = 26
	RebalanceInProgress                    Code = 27
	InvalidCommitOffsetSize                Code = 28
	TopicAuthorizationFailed               Code = 29
	GroupAuthorizationFailed               Code = 30
	ClusterAuthorizationFailed             Code = 31
	InvalidTimestamp                       Code = 32
	UnsupportedSaslMechanism               Code = 33
	IllegalSaslState                       Code = 34
	UnsupportedVersion                     Code = 35
	TopicAlreadyExists                     Code = 36
	InvalidPartitions                      Code = 37
	InvalidReplicationFactor               Code = 38
	InvalidReplicaAssignment               Code = 39
	InvalidConfig                          Code = 40
	NotController                          Code = 41
	InvalidRequest                         Code = 42
	UnsupportedForMessageFormat            Code = 43
	PolicyViolation                        Code = 44
	OutOfOrderSequenceNumber               Code = 45
	DuplicateSequenceNumber                Code = 46
	InvalidProducerEpoch                   Code = 47
	InvalidTxnState                        Code = 48
	InvalidProducerIDMapping               Code = 49
	InvalidTransactionTimeout              Code = 50
	ConcurrentTransactions                 Code = 51
	TransactionCoordinatorFenced           Code = 52
	TransactionalIDAuthorizationFailed     Code = 53
	SecurityDisabled                       Code = 54
	OperationNotAttempted                  Code = 55
	KafkaStorageError                      Code = 56
	LogDirNotFound                         Code = 57
	SaslAuthenticationFailed               Code = 58
	UnknownProducerID                      Code = 59
	ReassignmentInProgress                 Code = 60
	DelegationTokenAuthDisabled            Code = 61
	DelegationTokenNotFound                Code = 62
	DelegationTokenOwnerMismatch           Code = 63
	DelegationTokenRequestNotAllowed       Code = 64
	DelegationTokenAuthorizationFailed     Code = 65
	DelegationTokenExpired                 Code = 66
	InvalidPrincipalType                   Code = 67
	NonEmptyGroup                          Code = 68
	GroupIDNotFound                        Code = 69
	FetchSessionIDNotFound                 Code = 70
	InvalidFetchSessionEpoch               Code = 71
	ListenerNotFound                       Code = 72
	TopicDeletionDisabled                  Code = 73
	FencedLeaderEpoch                      Code = 74
	UnknownLeaderEpoch                     Code = 75
	UnsupportedCompressionType             Code = 76
	StaleBrokerEpoch                       Code = 77
	OffsetNotAvailable                     Code = 78
	MemberIDRequired                       Code = 79
	PreferredLeaderNotAvailable            Code = 80
	GroupMaxSizeReached                    Code = 81
	FencedInstanceID                       Code = 82
	EligibleLeadersNotAvailable            Code = 83
	ElectionNotNeeded                      Code = 84
	NoReassignmentInProgress               Code = 85
	GroupSubscribedToTopic                 Code = 86
	InvalidRecord                          Code = 87
	UnstableOffsetCommit                   Code = 88
	ThrottlingQuotaExceeded                Code = 89
	ProducerFenced                         Code = 90
	ResourceNotFound                       Code = 91
	DuplicateResource                      Code = 92
	UnacceptableCredential                 Code = 93
	InconsistentVoterSet                   Code = 94
	InvalidUpdateVersion                   Code = 95
	FeatureUpdateFailed                    Code = 96
	PrincipalDeserializationFailure        Code = 97
	SnapshotNotFound                       Code = 98
	PositionOutOfRange                     Code = 99
	UnknownTopicID                         Code = 100
	DuplicateBrokerRegistration            Code = 101
	BrokerIDNotRegistered                  Code = 102
	InconsistentTopicID                    Code = 103
	InconsistentClusterID                  Code = 104
	TransactionalIDNotFound                Code = 105
	FetchSessionTopicIDError               Code = 106
	IneligibleReplica                      Code = 107
	NewLeaderElected                       Code = 108
	OffsetMovedToTieredStorage             Code = 109
	FencedMemberEpoch                      Code = 110
	UnreleasedInstanceID                   Code = 111
	UnsupportedAssignor                    Code = 112
	StaleMemberEpoch                       Code = 113
	MismatchedEndpointType                 Code = 114
	UnsupportedEndpointType                Code = 115
	UnknownControllerID                    Code = 116
	UnknownSubscriptionID                  Code = 117
	TelemetryTooLarge                      Code = 118
	InvalidRegistration                    Code = 119
	TransactionAbortable                   Code = 120
	InvalidRecordState                     Code = 121
	ShareSessionNotFound                   Code = 122
	InvalidShareSessionEpoch               Code = 123
	FencedStateEpoch                       Code = 124
	InvalidVoterKey                        Code = 125
	DuplicateVoter                         Code = 126
	VoterNotFound                          Code = 127
	InvalidRegularExpression               Code = 128
	RebootstrapRequired                    Code = 129
	StreamsInvalidTopology                 Code = 130
	StreamsInvalidTopologyEpoch            Code = 131
	StreamsTopologyFenced                  Code = 132
	ShareSessionLimitReached               Code = 133
	GroupDeletionFailed                    Code = 134
	StreamsTopologyDescriptionUpdateFailed Code = 135
	ControllerIDNotRegistered              Code = 136
)

// The mirror errors, by Milena's numbers.
const (
	ReadOnlyTopic                    Code = 1134
	ClusterMirrorAlreadyExists       Code = 1136
	UnknownClusterMirror             Code = 1137
	TopicAlreadyInClusterMirror      Code = 1138
	TopicNotInClusterMirror          Code = 1139
	ClusterMirrorAuthorizationFailed Code = 1144
	InvalidClusterMirrorStates       Code = 1145
)

// codeFacts is what is known about one error code.
type codeFacts struct {
	name      string
	message   string
	retriable bool
}

// facts returns what is known about c; ok is false for a number that is
// neither Kafka's nor Milena's.
func (c Code) facts() (f codeFacts, ok bool) {
	if i := int(c) + 1; i >= 0 && i < len(kafkaCodes) {
		return kafkaCodes[i], true
	}
	f, ok = mirrorCodes[c]
	return f, ok
}

// kafkaCodes has the facts of code c at index c+1, since the first code is -1.
var kafkaCodes = [...]codeFacts{
	{"UNKNOWN_SERVER_ERROR", "The broker failed in a way it did not foresee; its log says more.", false},
	{"NONE", "No error.", false},
	{"OFFSET_OUT_OF_RANGE", "The offset lies outside the range the partition holds.", false},
	{"CORRUPT_MESSAGE", "The records fail their checksum, have an invalid size, lack a key in a compacted topic, or are damaged otherwise.", true},
	{"UNKNOWN_TOPIC_OR_PARTITION", "The broker has no such topic or partition.", true},
	{"INVALID_FETCH_SIZE", "The fetch size is not valid.", false},
	{"LEADER_NOT_AVAILABLE", "The partition has no leader at the moment.", true},
	{"NOT_LEADER_OR_FOLLOWER", "The broker is not the leader, or not a replica, of the partition.", true},
	{"REQUEST_TIMED_OUT", "The request was not done within its time limit.", true},
	{"BROKER_NOT_AVAILABLE", "The broker can't be reached.", false},
	{"REPLICA_NOT_AVAILABLE", "The replica can't be reached.", true},
	{"MESSAGE_TOO_LARGE", "The records are larger than the broker takes.", false},
	{"STALE_CONTROLLER_EPOCH", "The controller has moved to another node.", false},
	{"OFFSET_METADATA_TOO_LARGE", "The metadata string of the committed offset is too long.", false},
	{"NETWORK_EXCEPTION", "The connection was lost before the answer came.", true},
	{"COORDINATOR_LOAD_IN_PROGRESS", "The coordinator is still loading its state.", true},
	{"COORDINATOR_NOT_AVAILABLE", "The coordinator can't be reached.", true},
	{"NOT_COORDINATOR", "The broker is not the coordinator asked for.", true},
	{"INVALID_TOPIC_EXCEPTION", "The topic name is not valid, or the topic does not allow the operation.", false},
	{"RECORD_LIST_TOO_LARGE", "The record batch is larger than a segment may be.", false},
	{"NOT_ENOUGH_REPLICAS", "Too few replicas are in sync for the write to be taken.", true},
	{"NOT_ENOUGH_REPLICAS_AFTER_APPEND", "The records were written, but to fewer in-sync replicas than required.", true},
	{"INVALID_REQUIRED_ACKS", "acks must be -1, 0 or 1.", false},
	{"ILLEGAL_GENERATION", "The generation is not the group's current one.", false},
	{"INCONSISTENT_GROUP_PROTOCOL", "The member's protocols have none in common with the group's, or it named none.", false},
	{"INVALID_GROUP_ID", "The group id is not valid.", false},
	{"UNKNOWN_MEMBER_ID", "The coordinator does not know this member.", false},
	{"INVALID_SESSION_TIMEOUT", "The session timeout lies outside the bounds the broker sets.", false},
	{"REBALANCE_IN_PROGRESS", "The group is rebalancing; the member has to join again.", false},
	{"INVALID_COMMIT_OFFSET_SIZE", "The committed offsets take more room than allowed.", false},
	{"TOPIC_AUTHORIZATION_FAILED", "The principal lacks permission on the topic.", false},
	{"GROUP_AUTHORIZATION_FAILED", "The principal lacks permission on the group.", false},
	{"CLUSTER_AUTHORIZATION_FAILED", "The principal lacks permission on the cluster.", false},
	{"INVALID_TIMESTAMP", "The record timestamp lies outside the allowed range.", false},
	{"UNSUPPORTED_SASL_MECHANISM", "The broker does not offer this SASL mechanism.", false},
	{"ILLEGAL_SASL_STATE", "The request does not fit the state of the SASL exchange.", false},
	{"UNSUPPORTED_VERSION", "The broker does not serve this version of the API.", false},
	{"TOPIC_ALREADY_EXISTS", "A topic of that name exists already.", false},
	{"INVALID_PARTITIONS", "The number of partitions is not valid.", false},
	{"INVALID_REPLICATION_FACTOR", "The replication factor is below 1 or above the number of brokers that can take replicas.", false},
	{"INVALID_REPLICA_ASSIGNMENT", "The replica assignment is not valid.", false},
	{"INVALID_CONFIG", "The configuration is not valid.", false},
	{"NOT_CONTROLLER", "The node is not the active controller.", true},
	{"INVALID_REQUEST", "The request is malformed or contradicts itself.", false},
	{"UNSUPPORTED_FOR_MESSAGE_FORMAT", "The message format does not support the request.", false},
	{"POLICY_VIOLATION", "A policy of the broker forbids the request.", false},
	{"OUT_OF_ORDER_SEQUENCE_NUMBER", "The producer's sequence number is not the one expected next.", false},
	{"DUPLICATE_SEQUENCE_NUMBER", "The producer's sequence number was used already.", false},
	{"INVALID_PRODUCER_EPOCH", "The producer's epoch is older than the current one.", false},
	{"INVALID_TXN_STATE", "The transaction is not in a state that allows the operation.", false},
	{"INVALID_PRODUCER_ID_MAPPING", "The producer id does not belong to the transactional id.", false},
	{"INVALID_TRANSACTION_TIMEOUT", "The transaction timeout is above the broker's limit.", false},
	{"CONCURRENT_TRANSACTIONS", "Another operation on the same transaction is still going on.", true},
	{"TRANSACTION_COORDINATOR_FENCED", "The transaction coordinator that sent the marker has been replaced.", false},
	{"TRANSACTIONAL_ID_AUTHORIZATION_FAILED", "The principal lacks permission on the transactional id.", false},
	{"SECURITY_DISABLED", "Security features are switched off.", false},
	{"OPERATION_NOT_ATTEMPTED", "The operation was not tried, because others of the request failed.", false},
	{"KAFKA_STORAGE_ERROR", "The broker's disk failed.", true},
	{"LOG_DIR_NOT_FOUND", "The broker has no such log directory.", false},
	{"SASL_AUTHENTICATION_FAILED", "SASL authentication failed.", false},
	{"UNKNOWN_PRODUCER_ID", "The broker has no state for this producer id.", false},
	{"REASSIGNMENT_IN_PROGRESS", "The partition is being reassigned.", false},
	{"DELEGATION_TOKEN_AUTH_DISABLED", "Delegation tokens are switched off.", false},
	{"DELEGATION_TOKEN_NOT_FOUND", "The broker has no such delegation token.", false},
	{"DELEGATION_TOKEN_OWNER_MISMATCH", "The delegation token belongs to another principal.", false},
	{"DELEGATION_TOKEN_REQUEST_NOT_ALLOWED", "Delegation token requests are not allowed on this connection.", false},
	{"DELEGATION_TOKEN_AUTHORIZATION_FAILED", "The principal lacks permission on the delegation token.", false},
	{"DELEGATION_TOKEN_EXPIRED", "The delegation token has expired.", false},
	{"INVALID_PRINCIPAL_TYPE", "The type of the principal is not supported.", false},
	{"NON_EMPTY_GROUP", "The group has members.", false},
	{"GROUP_ID_NOT_FOUND", "The broker has no such group.", false},
	{"FETCH_SESSION_ID_NOT_FOUND", "The broker has no such fetch session.", true},
	{"INVALID_FETCH_SESSION_EPOCH", "The epoch of the fetch session is not the expected one.", true},
	{"LISTENER_NOT_FOUND", "The leader has no listener of the name the request came by.", true},
	{"TOPIC_DELETION_DISABLED", "Deleting topics is switched off.", false},
	{"FENCED_LEADER_EPOCH", "The leader epoch of the request is older than the broker's.", true},
	{"UNKNOWN_LEADER_EPOCH", "The leader epoch of the request is newer than the broker's.", true},
	{"UNSUPPORTED_COMPRESSION_TYPE", "The client does not support the codec of the partition.", false},
	{"STALE_BROKER_EPOCH", "The broker epoch is not the current one.", false},
	{"OFFSET_NOT_AVAILABLE", "The new leader's high watermark has not caught up yet.", true},
	{"MEMBER_ID_REQUIRED", "The member needs an id from the coordinator before it joins.", false},
	{"PREFERRED_LEADER_NOT_AVAILABLE", "The preferred leader can't lead at the moment.", true},
	{"GROUP_MAX_SIZE_REACHED", "The group has as many members as it may have.", false},
	{"FENCED_INSTANCE_ID", "Another member has registered under the same group.instance.id.", false},
	{"ELIGIBLE_LEADERS_NOT_AVAILABLE", "No replica that may lead is available.", true},
	{"ELECTION_NOT_NEEDED", "The partition needs no election.", true},
	{"NO_REASSIGNMENT_IN_PROGRESS", "The partition is not being reassigned.", false},
	{"GROUP_SUBSCRIBED_TO_TOPIC", "The group subscribes to the topic, so its offsets can't be deleted.", false},
	{"INVALID_RECORD", "The broker refuses the record, which is not valid.", false},
	{"UNSTABLE_OFFSET_COMMIT", "A transaction has offsets pending for the partition.", true},
	{"THROTTLING_QUOTA_EXCEEDED", "The quota is used up.", true},
	{"PRODUCER_FENCED", "A newer producer has taken over the transactional id.", false},
	{"RESOURCE_NOT_FOUND", "The resource does not exist.", false},
	{"DUPLICATE_RESOURCE", "The request names a resource twice.", false},
	{"UNACCEPTABLE_CREDENTIAL", "The credential does not meet the requirements.", false},
	{"INCONSISTENT_VOTER_SET", "Sender or receiver is not a voter of the quorum.", false},
	{"INVALID_UPDATE_VERSION", "The version of the update is not valid.", false},
	{"FEATURE_UPDATE_FAILED", "The features could not be updated.", false},
	{"PRINCIPAL_DESERIALIZATION_FAILURE", "The forwarded principal can't be read.", false},
	{"SNAPSHOT_NOT_FOUND", "The snapshot does not exist.", false},
	{"POSITION_OUT_OF_RANGE", "The position lies outside the snapshot.", false},
	{"UNKNOWN_TOPIC_ID", "The broker has no topic with this id.", true},
	{"DUPLICATE_BROKER_REGISTRATION", "Another broker is registered under this id.", false},
	{"BROKER_ID_NOT_REGISTERED", "No broker is registered under this id.", false},
	{"INCONSISTENT_TOPIC_ID", "The topic id differs from that of the partition's log.", true},
	{"INCONSISTENT_CLUSTER_ID", "The cluster id is not that of this cluster.", false},
	{"TRANSACTIONAL_ID_NOT_FOUND", "The broker has no such transactional id.", false},
	{"FETCH_SESSION_TOPIC_ID_ERROR", "The fetch session mixes requests with and without topic ids.", true},
	{"INELIGIBLE_REPLICA", "A replica of the proposed ISR may not be in it.", false},
	{"NEW_LEADER_ELECTED", "The partition changed as asked, and has another leader now.", false},
	{"OFFSET_MOVED_TO_TIERED_STORAGE", "The offset has moved to tiered storage.", false},
	{"FENCED_MEMBER_EPOCH", "The member epoch is fenced; the member has to join again.", false},
	{"UNRELEASED_INSTANCE_ID", "The instance id is still held by another member.", false},
	{"UNSUPPORTED_ASSIGNOR", "The group does not support the assignor.", false},
	{"STALE_MEMBER_EPOCH", "The member epoch is stale.", false},
	{"MISMATCHED_ENDPOINT_TYPE", "The endpoint is of the wrong type for the request.", false},
	{"UNSUPPORTED_ENDPOINT_TYPE", "The endpoint type is not supported.", false},
	{"UNKNOWN_CONTROLLER_ID", "No controller has this id.", false},
	{"UNKNOWN_SUBSCRIPTION_ID", "The telemetry subscription is unknown or outdated.", false},
	{"TELEMETRY_TOO_LARGE", "The telemetry data is larger than the broker takes.", false},
	{"INVALID_REGISTRATION", "The controller refuses the broker's registration.", false},
	{"TRANSACTION_ABORTABLE", "The transaction has to be aborted before the transactional id can go on.", false},
	{"INVALID_RECORD_STATE", "The record is not in a state that can be acknowledged so.", false},
	{"SHARE_SESSION_NOT_FOUND", "The broker has no such share session.", true},
	{"INVALID_SHARE_SESSION_EPOCH", "The epoch of the share session is not the expected one.", true},
	{"FENCED_STATE_EPOCH", "The state epoch of the request is older than the coordinator's.", false},
	{"INVALID_VOTER_KEY", "The voter key is not that of the node.", false},
	{"DUPLICATE_VOTER", "The voter is in the quorum already.", false},
	{"VOTER_NOT_FOUND", "The voter is not in the quorum.", false},
	{"INVALID_REGULAR_EXPRESSION", "The regular expression is not valid.", false},
	{"REBOOTSTRAP_REQUIRED", "The client's metadata is too old; it has to start from its bootstrap servers.", false},
	{"STREAMS_INVALID_TOPOLOGY", "The streams topology is not valid.", false},
	{"STREAMS_INVALID_TOPOLOGY_EPOCH", "The epoch of the streams topology is not valid.", false},
	{"STREAMS_TOPOLOGY_FENCED", "The epoch of the streams topology is outdated.", false},
	{"SHARE_SESSION_LIMIT_REACHED", "The broker has no room for another share session.", true},
	{"GROUP_DELETION_FAILED", "The group could not be deleted.", false},
	{"STREAMS_TOPOLOGY_DESCRIPTION_UPDATE_FAILED", "The description of the streams topology could not be processed.", false},
	{"CONTROLLER_ID_NOT_REGISTERED", "No controller is registered under this id.", false},
}

var mirrorCodes = map[Code]codeFacts{
	ReadOnlyTopic:                    {"READ_ONLY_TOPIC", "The partition belongs to a mirror and is not stopped, so it takes no client writes.", false},
	ClusterMirrorAlreadyExists:       {"CLUSTER_MIRROR_ALREADY_EXISTS", "A cluster mirror of that name exists already.", false},
	UnknownClusterMirror:             {"UNKNOWN_CLUSTER_MIRROR", "There is no cluster mirror of that name.", false},
	TopicAlreadyInClusterMirror:      {"TOPIC_ALREADY_IN_CLUSTER_MIRROR", "The topic is active in another cluster mirror.", false},
	TopicNotInClusterMirror:          {"TOPIC_NOT_IN_CLUSTER_MIRROR", "The topic is not part of the named cluster mirror.", false},
	ClusterMirrorAuthorizationFailed: {"CLUSTER_MIRROR_AUTHORIZATION_FAILED", "The principal lacks permission on the cluster mirror.", false},
	InvalidClusterMirrorStates:       {"INVALID_CLUSTER_MIRROR_STATES", "A topic or partition is in a state that does not allow the operation.", false},
}
