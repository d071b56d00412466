#!/usr/bin/env bash
# Fetches the peers and clients the interop tests and benchmarks run against, each pinned by version:
# Apache Kafka from Maven Central, librdkafka's and kafka-python's Python packages from PyPI, kcat from Debian.
# What is there already is left alone. Everything but kcat lands in .cache/interop of this checkout.
set -euo pipefail
top=$(cd "$(dirname "$0")/../.." && pwd)
cache=${MILENA_INTEROP_CACHE:-$top/.cache/interop}
kafka=4.4.0
mm2=4.3.0
mkdir -p "$cache"

need() { command -v "$1" >/dev/null || { echo "setup: $1 is missing: $2" >&2; exit 1; }; }
need java "install a Java 17 runtime"
need keytool "it comes with the Java runtime"
need openssl "install openssl"
need mvn "install Maven 3.8 or newer"
need python3 "install Python 3.9 or newer with venv"

if [ ! -f "$cache/kafka-$kafka/.complete" ]; then
  rm -rf "$cache/kafka-$kafka"
  mvn -q -B -f "$top/test/interop/pom.xml" dependency:copy-dependencies \
    -Dkafka.version="$kafka" -DoutputDirectory="$cache/kafka-$kafka"
  touch "$cache/kafka-$kafka/.complete"
fi

# MirrorMaker 2 has its own folder: it brings other versions of what the server runs on, and 4.4.0 of it isn't on Maven Central.
if [ ! -f "$cache/mm2-$mm2/.complete" ]; then
  rm -rf "$cache/mm2-$mm2"
  mvn -q -B -f "$top/test/interop/mm2.xml" dependency:copy-dependencies \
    -Dkafka.version="$mm2" -DoutputDirectory="$cache/mm2-$mm2"
  touch "$cache/mm2-$mm2/.complete"
fi

# Old sources of mirrors, which keep their metadata in ZooKeeper: version of Kafka, of Scala, of ZooKeeper. The ZooKeeper that came
# with 2.1 can't resolve addresses on a present Java (ZOOKEEPER-3779); its successor's classes serve as well.
while read -r version scala zookeeper; do
  [ -f "$cache/kafka-$version/.complete" ] && continue
  rm -rf "$cache/kafka-$version"
  mvn -q -B -f "$top/test/interop/old.xml" dependency:copy-dependencies \
    -Dkafka.version="$version" -Dscala.version="$scala" -Dzookeeper.version="$zookeeper" -DoutputDirectory="$cache/kafka-$version" </dev/null
  touch "$cache/kafka-$version/.complete"
done <<'VERSIONS'
3.9.1 2.13 3.8.4
2.8.2 2.13 3.5.9
2.1.1 2.12 3.5.9
VERSIONS

want=$(sha256sum "$top/test/interop/requirements.txt" | cut -c1-16)
if [ ! -f "$cache/venv/.complete-$want" ]; then
  rm -rf "$cache/venv"
  python3 -m venv "$cache/venv"
  "$cache/venv/bin/pip" -q --disable-pip-version-check install -r "$top/test/interop/requirements.txt"
  touch "$cache/venv/.complete-$want"
fi

if ! command -v kcat >/dev/null; then
  sudo=""
  [ "$(id -u)" = 0 ] || sudo=sudo
  $sudo apt-get update -qq
  $sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq kcat >/dev/null
fi
