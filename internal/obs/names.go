package obs

// Labels that Kafka's MBeans have as properties.
const (
	LabelTopic     = "topic"
	LabelPartition = "partition"
	LabelRequest   = "request"
	LabelVersion   = "version"
	LabelError     = "error"
	LabelListener  = "listener"
	LabelGroup     = "group"
	LabelDir       = "logdirectory"
)

// kafka.server:type=BrokerTopicMetrics, with the label topic or none for the
// whole broker.
const (
	MessagesIn           = "kafka_server_brokertopicmetrics_messagesin_total"
	BytesIn              = "kafka_server_brokertopicmetrics_bytesin_total"
	BytesOut             = "kafka_server_brokertopicmetrics_bytesout_total"
	BytesRejected        = "kafka_server_brokertopicmetrics_bytesrejected_total"
	ReplicationBytesIn   = "kafka_server_brokertopicmetrics_replicationbytesin_total"
	ReplicationBytesOut  = "kafka_server_brokertopicmetrics_replicationbytesout_total"
	TotalProduceRequests = "kafka_server_brokertopicmetrics_totalproducerequests_total"
	TotalFetchRequests   = "kafka_server_brokertopicmetrics_totalfetchrequests_total"
	FailedProduce        = "kafka_server_brokertopicmetrics_failedproducerequests_total"
	FailedFetch          = "kafka_server_brokertopicmetrics_failedfetchrequests_total"
	InvalidMagic         = "kafka_server_brokertopicmetrics_invalidmagicnumberrecords_total"
	InvalidCRC           = "kafka_server_brokertopicmetrics_invalidmessagecrcrecords_total"
	InvalidSequence      = "kafka_server_brokertopicmetrics_invalidoffsetorsequencerecords_total"
	NoKeyCompacted       = "kafka_server_brokertopicmetrics_nokeycompactedtopicrecords_total"
)

// kafka.network:type=RequestMetrics. Times are in milliseconds.
const (
	Requests            = "kafka_network_requestmetrics_requests_total"
	RequestErrors       = "kafka_network_requestmetrics_errors_total"
	RequestTotalTime    = "kafka_network_requestmetrics_totaltimems"
	RequestQueueTime    = "kafka_network_requestmetrics_requestqueuetimems"
	RequestLocalTime    = "kafka_network_requestmetrics_localtimems"
	RequestRemoteTime   = "kafka_network_requestmetrics_remotetimems"
	ResponseQueueTime   = "kafka_network_requestmetrics_responsequeuetimems"
	ResponseSendTime    = "kafka_network_requestmetrics_responsesendtimems"
	RequestBytes        = "kafka_network_requestmetrics_requestbytes_total"
	ResponseBytes       = "kafka_network_requestmetrics_responsebytes_total"
	ConnectionCount     = "kafka_server_socket_server_metrics_connection_count"
	ConnectionsCreated  = "kafka_server_socket_server_metrics_connection_creation_total"
	ConnectionsClosed   = "kafka_server_socket_server_metrics_connection_close_total"
	ConnectionsRefused  = "kafka_server_socket_server_metrics_connection_refused_total"
	ConnectionsExpired  = "kafka_server_socket_server_metrics_expired_connections_killed_count"
	MalformedRequests   = "kafka_server_socket_server_metrics_malformed_requests_total"
	MemoryPoolUsed      = "kafka_network_socketserver_memorypoolused"
	MemoryPoolAvailable = "kafka_network_socketserver_memorypoolavailable"
)

// kafka.server:type=ReplicaManager and neighbours.
const (
	LeaderCount              = "kafka_server_replicamanager_leadercount"
	PartitionCount           = "kafka_server_replicamanager_partitioncount"
	OfflineReplicaCount      = "kafka_server_replicamanager_offlinereplicacount"
	UnderReplicated          = "kafka_server_replicamanager_underreplicatedpartitions"
	UnderMinISR              = "kafka_server_replicamanager_underminisrpartitioncount"
	AtMinISR                 = "kafka_server_replicamanager_atminisrpartitioncount"
	IsrShrinks               = "kafka_server_replicamanager_isrshrinks_total"
	IsrExpands               = "kafka_server_replicamanager_isrexpands_total"
	FailedIsrUpdates         = "kafka_server_replicamanager_failedisrupdates_total"
	FetcherMaxLag            = "kafka_server_replicafetchermanager_maxlag"
	FetcherFailedPartitions  = "kafka_server_replicafetchermanager_failedpartitionscount"
	FetchSessions            = "kafka_server_fetchsessioncache_numincrementalfetchsessions"
	FetchSessionsCached      = "kafka_server_fetchsessioncache_numincrementalfetchpartitionscached"
	FetchSessionEvictions    = "kafka_server_fetchsessioncache_incrementalfetchsessionevictions_total"
	LogSize                  = "kafka_log_log_size"
	LogStartOffset           = "kafka_log_log_logstartoffset"
	LogEndOffset             = "kafka_log_log_logendoffset"
	LogSegments              = "kafka_log_log_numlogsegments"
	OfflineLogDirectoryCount = "kafka_log_logmanager_offlinelogdirectorycount"
)
