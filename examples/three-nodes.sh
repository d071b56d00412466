#!/usr/bin/env bash
# Three nodes on this machine, each broker and controller, below ./three-nodes: docs/operations.md has the same block.
set -eu
milena=${MILENA:-milena}
cluster=$("$milena" storage random-uuid)
voters=
for n in 1 2 3; do
  voters=${voters:+$voters,}$n@127.0.0.1:1${n}093:$("$milena" storage random-uuid)
done
for n in 1 2 3; do
  dir=$PWD/three-nodes/$n
  mkdir -p "$dir"
  cat > "$dir/server.properties" <<END
process.roles=broker,controller
node.id=$n
controller.quorum.bootstrap.servers=127.0.0.1:11093,127.0.0.1:12093,127.0.0.1:13093
controller.listener.names=CONTROLLER
listeners=PLAINTEXT://127.0.0.1:1${n}092,CONTROLLER://127.0.0.1:1${n}093
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs=$dir/data
default.replication.factor=3
min.insync.replicas=2
milena.http.listen=127.0.0.1:1${n}644
END
  "$milena" storage format --config "$dir/server.properties" --cluster-id "$cluster" --initial-controllers "$voters"
  nohup "$milena" server start --config "$dir/server.properties" > "$dir/log" 2>&1 &
  echo $! > "$dir/pid"
done
until "$milena" quorum describe --bootstrap-server 127.0.0.1:11092 2> three-nodes/not-yet; do sleep 1; done
echo 'Stop them with: kill $(cat three-nodes/*/pid)'
