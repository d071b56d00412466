package config

// Resource types of DescribeConfigs and the config records in the metadata log.
const (
	ResourceTopic         int8 = 2
	ResourceBroker        int8 = 4 // name "": the cluster default
	ResourceBrokerLogger  int8 = 8
	ResourceClientMetrics int8 = 16
	ResourceGroup         int8 = 32
	ResourceClusterMirror int8 = 64
)

// ResourceName is Kafka's name of a resource type, for messages.
func ResourceName(t int8) string {
	switch t {
	case ResourceTopic:
		return "TOPIC"
	case ResourceBroker:
		return "BROKER"
	case ResourceBrokerLogger:
		return "BROKER_LOGGER"
	case ResourceClientMetrics:
		return "CLIENT_METRICS"
	case ResourceGroup:
		return "GROUP"
	case ResourceClusterMirror:
		return "CLUSTER_MIRROR"
	}
	return "UNKNOWN"
}
