#!/bin/sh
# Proves that the simulation can fail: builds it with each deliberate fault (build tags mutant_*, files mutant_*.go of
# the packages concerned) and runs up to 500 seeds of the cores, or of two clusters for what concerns mirrors. A fault
# that none of them catches fails the run. MUTANTS names those to try, if not all.
set -u
cd "$(dirname "$0")/.." || exit 1
seeds=${SEEDS:-500}
status=0
bin=$(mktemp) || exit 1
trap 'rm -f "$bin"' EXIT
for m in ${MUTANTS:-$(find internal -name 'mutant_*.go' ! -name 'mutant_off.go' | sed 's/.*mutant_\(.*\)\.go/\1/' | sort -u)}; do
	case $m in
	lag) run=TestMirrors count=-sim.mirrorseeds ;;
	ahead | clamp | elect | lmelate | lmeskip | stale) run=TestMirrorCores count=-sim.mcseeds ;;
	*) run=TestCores count=-sim.seeds ;;
	esac
	if ! ${GO:-go} test -c -tags "synctests mutant_$m" -o "$bin" ./internal/sim; then
		echo "$m: does not build"
		status=1
		continue
	fi
	out=$("$bin" -test.run "$run" -test.failfast "$count=$seeds" -sim.reruns=0 2>&1)
	if [ $? -eq 0 ]; then
		echo "$m: NOT CAUGHT in $seeds seeds"
		status=1
	else
		seed=$(echo "$out" | sed -n 's/.*--- FAIL: Test[A-Za-z]*\/seed-\([0-9]*\).*/\1/p' | head -1)
		why=$(echo "$out" | sed -n 's/^ *[a-z]*_test.go:[0-9]*: //p' | head -1)
		echo "$m: caught by seed ${seed:-?}: $why"
		[ -n "$seed" ] || status=1
	fi
done
exit $status
