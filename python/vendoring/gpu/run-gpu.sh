#!/usr/bin/env bash
# Puts the patched files over a plain SGLang and runs the GPU tests with it. Unpacked beside this
# file lie the overlay, our commands, the tests, and the draft (`python -m vendoring pack` made them).
#
#   run-gpu.sh [--site DIR] [--out DIR] [--limit SECONDS] [--only] [--plain] [NODE...] [-- ARG...]
#
# --site   folder that holds the plain package sglang ($SGLANG_SITE). What the overlay replaces
#          there is kept beside it, so another pack can be put over it, and --plain takes it off.
# --out    folder ($OUT, else ./gpu-results) for results.json, junit.xml, gpu.json (the record that
#          test/results keeps), pytest.log, tests.jsonl (each test as it ends) and logs.tar.gz (of
#          the servers)
# --limit  end the tests after that many seconds, with a report of those that ran
# --only   run only the given nodes, not test/gpu as well
# Arguments after -- go to pytest. $PYTHON is the interpreter (python3). If DIR/../env.sh exists it
# is read first. The exit status is pytest's.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
site=${SGLANG_SITE:-}
out=${OUT:-gpu-results}
limit=
only=
plain=
nodes=()
while [ $# -gt 0 ]; do
    case $1 in
        --site) site=$2; shift 2 ;;
        --out) out=$2; shift 2 ;;
        --limit) limit=$2; shift 2 ;;
        --only) only=yes; shift ;;
        --plain) plain=yes; shift ;;
        --) shift; break ;;
        -*) echo "run-gpu.sh: unknown option $1" >&2; exit 2 ;;
        *) nodes+=("$1"); shift ;;
    esac
done
if [ -z "$site" ]; then
    echo "run-gpu.sh: name the folder that holds the plain package sglang: --site DIR" >&2
    exit 2
fi
site=$(cd "$site" && pwd)
mkdir -p "$out"
out=$(cd "$out" && pwd)
if [ -e "$site/../env.sh" ]; then
    set +u
    . "$site/../env.sh"
    set -u
fi
python=${PYTHON:-python3}

if [ -n "$plain" ]; then
    exec "$python" "$here/overlay_site.py" off "$site"
fi
export GPU_REPORT=$out/tests.jsonl
export PYTHONPATH="$site:$here:$here/python${PYTHONPATH:+:$PYTHONPATH}"
"$python" -c 'import pytest' || {
    echo "run-gpu.sh: $python has no pytest; set PYTHON to one that has" >&2
    exit 2
}
"$python" "$here/overlay_site.py" on "$site"

[ -n "$only" ] || nodes=(test/gpu ${nodes[@]+"${nodes[@]}"})
command=("$python" -m pytest -v -p no:cacheprovider -p gpu_report --junit-xml="$out/junit.xml")
# SIGINT lets pytest stop its servers and write the report of what ran.
[ -z "$limit" ] || command=(timeout --foreground --signal=INT --kill-after=30 "$limit" "${command[@]}")
rm -f "$out"/{junit.xml,results.json,gpu.json,tests.jsonl}
cd "$here"
started=$(date +%s)
status=0
"${command[@]}" ${nodes[@]+"${nodes[@]}"} "$@" 2>&1 | tee "$out/pytest.log" || status=${PIPESTATUS[0]}
[ ! -e "$out/junit.xml" ] ||
    PYTHONPATH="$here/test:$PYTHONPATH" "$python" -m kit.gpu_record write "$out/gpu.json" "$out/junit.xml" || true
[ ! -d build/logs ] || tar -czf "$out/logs.tar.gz" build/logs
"$python" "$here/gpu_results.py" "$out" "$site" "$status" "$(($(date +%s) - started))"
exit "$status"
