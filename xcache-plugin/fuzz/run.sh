#!/usr/bin/env bash
# run.sh TARGET CORPUS SEEDS SECONDS: let a fuzz target run for so long. What it finds that is new goes to CORPUS; an input that makes it fail
# stays beside CORPUS as crash-*, timeout-* or oom-*, to be given to TARGET as its only argument.
set -euo pipefail
readonly target=$1 corpus=$2 seeds=$3 seconds=${SECONDS_EACH:-$4}
mkdir -p "$corpus"
# A folder in memory where there is one, since some parsers read files.
[ -w /dev/shm ] && export TMPDIR=/dev/shm
exec "$target" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -max_len=8192 -print_final_stats=1 \
  -artifact_prefix="$corpus-" "$corpus" "$seeds"
