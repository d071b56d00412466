#!/usr/bin/env bash
# Runs every fuzz target of the module for a time each: test/fuzz.sh 30m [name…]. What a run finds lands in the package's
# testdata/fuzz and is replayed by `make test` from then on. Without the short minimisation go spends most of its time there.
set -euo pipefail
cd "$(dirname "$0")/.."
each=${1:-30m}
shift || true
want=("$@")
failed=0
while read -r pkg name; do
  if [ ${#want[@]} -gt 0 ] && [[ ! " ${want[*]} " == *" $name "* ]]; then continue; fi
  echo "=== $name ($pkg) for $each"
  go test "$pkg" -run '^$' -fuzz "^$name\$" -fuzztime "$each" -fuzzminimizetime 10x || { failed=1; echo "=== $name FAILED"; }
done < <(go list ./... | while read -r p; do go test -list '^Fuzz' "$p" 2>/dev/null | grep '^Fuzz' | sed "s#^#$p #"; done)
exit $failed
