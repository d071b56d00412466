#!/usr/bin/env bash
# Runs one of Apache Kafka's own commands from the jars that setup.sh fetched:
#   kafka.sh topics --bootstrap-server 127.0.0.1:9092 --list
# The command is Kafka's script name without "kafka-" and ".sh", or zookeeper, or connect-mirror-maker. JVM options go into
# KAFKA_OPTS; KAFKA_VERSION chooses among the versions that setup.sh fetched.
set -euo pipefail
top=$(cd "$(dirname "$0")/../.." && pwd)
cache=${MILENA_INTEROP_CACHE:-$top/.cache/interop}
jars=$cache/kafka-${KAFKA_VERSION:-4.4.0}
name=${1:?name of the command}
shift
case "$name" in
  connect-mirror-maker) main=org.apache.kafka.connect.mirror.MirrorMaker jars=$cache/mm2-4.3.0 ;;
  server) main=kafka.Kafka ;;
  zookeeper) main=org.apache.zookeeper.server.quorum.QuorumPeerMain ;;
  storage) main=kafka.tools.StorageTool ;;
  topics) main=org.apache.kafka.tools.TopicCommand ;;
  configs) main=org.apache.kafka.tools.ConfigCommand ;;
  consumer-groups) main=org.apache.kafka.tools.consumer.group.ConsumerGroupCommand ;;
  groups) main=org.apache.kafka.tools.GroupsCommand ;;
  console-producer) main=org.apache.kafka.tools.ConsoleProducer ;;
  console-consumer) main=org.apache.kafka.tools.consumer.ConsoleConsumer ;;
  verifiable-producer) main=org.apache.kafka.tools.VerifiableProducer ;;
  verifiable-consumer) main=org.apache.kafka.tools.VerifiableConsumer ;;
  producer-perf-test) main=org.apache.kafka.tools.ProducerPerformance ;;
  consumer-perf-test) main=org.apache.kafka.tools.ConsumerPerformance ;;
  get-offsets) main=org.apache.kafka.tools.GetOffsetShell ;;
  delete-records) main=org.apache.kafka.tools.DeleteRecordsCommand ;;
  dump-log) main=org.apache.kafka.tools.DumpLogSegments ;;
  log-dirs) main=org.apache.kafka.tools.LogDirsCommand ;;
  broker-api-versions) main=org.apache.kafka.tools.BrokerApiVersionsCommand ;;
  features) main=org.apache.kafka.tools.FeatureCommand ;;
  cluster) main=org.apache.kafka.tools.ClusterTool ;;
  metadata-quorum) main=org.apache.kafka.tools.MetadataQuorumCommand ;;
  reassign-partitions) main=org.apache.kafka.tools.reassign.ReassignPartitionsCommand ;;
  leader-election) main=org.apache.kafka.tools.LeaderElectionCommand ;;
  *) echo "kafka.sh: no command $name; see the list in this file" >&2; exit 2 ;;
esac
[ -f "$jars/.complete" ] || { echo "kafka.sh: $jars is missing: run test/interop/setup.sh" >&2; exit 2; }
# A heap of its own keeps several JVMs on a small machine from claiming a quarter of it each.
exec java -Xmx"${KAFKA_HEAP:-256m}" -XX:+UseSerialGC -XX:TieredStopAtLevel="${KAFKA_TIER:-1}" ${KAFKA_OPTS:-} \
  -Dorg.slf4j.simpleLogger.defaultLogLevel="${KAFKA_LOG_LEVEL:-warn}" -cp "$jars/*" "$main" "$@"
