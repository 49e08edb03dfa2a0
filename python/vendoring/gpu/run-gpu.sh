#!/usr/bin/env bash
# Puts the patched files over a plain SGLang and runs the GPU tests with it. Unpacked beside this
# file lie the overlay, our commands, the tests, and the draft (`python -m vendoring pack` made them).
#
#   run-gpu.sh [--site DIR] [--out DIR] [--limit SECONDS] [--only] [--plain] [NODE...] [-- ARG...]
#   run-gpu.sh visit [--site DIR] [--out DIR] [--limit SECONDS] [-- ARG...]
#
# --site   folder that holds the plain package sglang ($SGLANG_SITE). What the overlay replaces
#          there is kept beside it, so another pack can be put over it, and --plain takes it off.
# --out    folder ($OUT, else ./gpu-results) for results.json, junit.xml, gpu.json (the record that
#          test/results keeps), pytest.log, tests.jsonl (each test as it ends) and logs.tar.gz (of
#          the servers)
# --limit  end the tests after that many seconds, with a report of those that ran
# --only   run only the given nodes, not test/gpu as well
# `visit` runs tests and benchmarks side by side, the worthiest first, as far as the seconds go: see
# docs/gpu.md. What comes back of it lies in DIR/home; its arguments after -- go to `gpu_visit run`.
# Arguments after -- go to pytest. $PYTHON is the interpreter (python3). If DIR/../env.sh exists it
# is read first. A host without a GPU is refused, except with --only. The exit status is pytest's,
# or 2 where it could not be started.
set -euo pipefail

fail() {
    echo "run-gpu.sh: $*" >&2
    exit 2
}
value() { # option and what follows it
    [ $# -ge 2 ] || fail "$1 needs a value"
    printf '%s' "$2"
}

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
site=${SGLANG_SITE:-}
out=${OUT:-gpu-results}
limit=
only=
plain=
visit=
[ "${1-}" != visit ] || { visit=yes; shift; }
nodes=()
while [ $# -gt 0 ]; do
    case $1 in
        --site) site=$(value "$@"); shift 2 ;;
        --out) out=$(value "$@"); shift 2 ;;
        --limit) limit=$(value "$@"); shift 2 ;;
        --only) only=yes; shift ;;
        --plain) plain=yes; shift ;;
        --) shift; break ;;
        -h | --help) sed -n '2,/^set /{/^#/s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}"; exit 0 ;;
        -*) fail "unknown option $1; --help shows them" ;;
        *) nodes+=("$1"); shift ;;
    esac
done
[ -n "$site" ] || fail "name the folder that holds the plain package sglang: --site DIR"
[ -d "$site" ] || fail "--site $site is no folder"
site=$(cd "$site" && pwd)
case $out in /*) ;; *) out=$PWD/$out ;; esac # env.sh may go elsewhere
case $limit in *[!0-9]*) fail "--limit takes whole seconds, not $limit" ;; esac
[ -z "$only" ] || [ ${#nodes[@]} -gt 0 ] || fail "--only needs a test, as test/gpu/test_decode.py"
[ -z "$visit" ] || [ ${#nodes[@]}${only:+x} = 0 ] ||
    fail "visit takes no tests; -- --only NAME names a lane or benchmark of its plan"
for node in ${nodes[@]+"${nodes[@]}"}; do
    [ -e "$here/${node%%::*}" ] || fail "the pack has no test ${node%%::*}"
done
if [ -e "$site/../env.sh" ]; then
    set +eu # it is not ours to fail at
    . "$site/../env.sh"
    set -eu
fi
python=${PYTHON:-python3}

command -v "$python" >/dev/null || fail "there is no interpreter $python; set PYTHON"
case $python in */*) python=$(cd "$(dirname "$python")" && pwd)/$(basename "$python") ;; esac

if [ -n "$plain" ]; then
    exec "$python" "$here/overlay_site.py" off "$site"
fi
mkdir -p "$out" 2>/dev/null && [ -w "$out" ] || fail "--out $out cannot be written"
out=$(cd "$out" && pwd)
export GPU_REPORT=$out/tests.jsonl
export PYTHONPATH="$site:$here:$here/python${PYTHONPATH:+:$PYTHONPATH}"
missing=$("$python" -c 'from importlib.util import find_spec as f
print(*(n for n in ("pytest", "httpx", "psutil", "click", "rich") if f(n) is None))') ||
    fail "$python does not run"
[ -z "$missing" ] || fail "$python has no $missing; set PYTHON to one that has"
"$python" "$here/overlay_site.py" on "$site"

# A package that is not there would end each server after its first seconds, and nothing would be
# known but that, at the end of the machine's time.
front=sglang.srt.entrypoints.http_server
if [ -z "$only" ] && [[ " $* " != *" --dry-run "* ]] && [ -e "$site/${front//.//}.py" ]; then
    "$python" -c "import $front" >"$out/import.log" 2>&1 ||
        fail "no server would start: $(tail -n 1 "$out/import.log"); put it into $site ($out/import.log)"
fi

if [ -n "$visit" ]; then
    cd "$here"
    PYTHONPATH="$here/test:$PYTHONPATH" exec "$python" -m gpu_visit run --out "$out" \
        --bring-back "$out/home" ${limit:+--seconds "$limit"} "$@"
fi

demand=()
[ -n "$only" ] || { nodes=(test/gpu ${nodes[@]+"${nodes[@]}"}); demand=(--require-gpu); }
command=("$python" -m pytest -v -p no:cacheprovider -p gpu_report --junit-xml="$out/junit.xml")
command+=(${demand[@]+"${demand[@]}"})
# SIGINT lets pytest stop its servers and write the report of what ran.
[ -z "$limit" ] || command=(timeout --foreground --signal=INT --kill-after=30 "$limit" "${command[@]}")
rm -f "$out"/{junit.xml,results.json,gpu.json,tests.jsonl}
cd "$here"
started=$(date +%s)
status=0
"${command[@]}" ${nodes[@]+"${nodes[@]}"} "$@" 2>&1 | tee "$out/pytest.log" || status=${PIPESTATUS[0]}
[ ! -e "$out/junit.xml" ] ||
    PYTHONPATH="$here/test:$PYTHONPATH" "$python" -m kit.gpu_record write "$out/gpu.json" "$out/junit.xml" || true
# A server that is still writing makes tar fail; the results matter more.
[ ! -d build/logs ] || tar -czf "$out/logs.tar.gz" build/logs ||
    echo "run-gpu.sh: $out/logs.tar.gz may lack some of the logs" >&2
"$python" "$here/gpu_results.py" "$out" "$site" "$status" "$(($(date +%s) - started))"
exit "$status"
