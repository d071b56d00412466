// Package obs holds what components share in being observed: the names and
// label names of metrics, and cheap metric types.
//
// Metric names are those that the Prometheus JMX exporter's usual rules make of
// Kafka's MBeans: domain_type_name in lower case, a meter's PerSec becomes
// _total, a histogram has quantiles, _count and _sum. A component has a struct
// of its metrics, built from a prometheus.Registerer that is passed in, so many
// instances live in one process.
package obs
