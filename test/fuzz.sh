#!/usr/bin/env bash
# Runs every fuzz target of the module for a time each: test/fuzz.sh 30m [name…]. What a run finds lands in the package's
# testdata/fuzz and is replayed by `make test` from then on. Without the short minimisation go spends most of its time there.
set -euo pipefail
cd "$(dirname "$0")/.."
each=${1:-30m}
shift || true
want=("$@")
failed=0

# targets prints a line "package name" for each fuzz target; most packages have none.
targets() {
  go list ./... | while read -r p; do
    go test -list '^Fuzz' "$p" | sed -n "s#^\(Fuzz.*\)#$p \1#p"
  done
}

while read -r pkg name; do
  if [ ${#want[@]} -gt 0 ] && [[ ! " ${want[*]} " == *" $name "* ]]; then continue; fi
  echo "=== $name ($pkg) for $each"
  go test "$pkg" -run '^$' -fuzz "^$name\$" -fuzztime "$each" -fuzzminimizetime 10x || { failed=1; echo "=== $name FAILED"; }
done < <(targets)
exit $failed
