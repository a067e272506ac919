#!/bin/sh
# Measures what settings bring: the table in tuning/README.md, in about three minutes. Writes the
# raw record, every run of it, and prints the rows of the table.
#
#   INTERVALE_COMMIT=$(git rev-parse --short HEAD) cargo build --release
#   tuning/measure.sh benches/record/tuning.jsonl
#   tuning/measure.sh --table benches/record/tuning.jsonl      # the rows once more
#
# EVENTS, ROUNDS and DURATION (of a run for latency) in the environment say how much is run,
# INTERVALE which program.
set -eu

# The rows of the table: a line for each setting of each search in a record.
table() {
    awk '
        function text(key) {
            if (!match($0, "\"" key "\":\"[^\"]*\"")) return ""
            return substr($0, RSTART + length(key) + 4, RLENGTH - length(key) - 5)
        }
        function number(key) {
            if (!match($0, "\"" key "\":[-0-9.]+")) return ""
            return substr($0, RSTART + length(key) + 3, RLENGTH - length(key) - 3)
        }
        function row() {
            sub(/a row of intervale join.*/, "a row of a join of w1a as CSV", what)
            if (setting != "" && setting !~ /^all /)
                printf "| %s | `%s` | %s | %s |\n", what, setting, against, changes
            setting = ""
        }
        /"for":/ { row(); what = text("for") }
        /"change_percent":/ {
            if (text("setting") != setting) {
                row()
                setting = text("setting")
                against = text("against")
                changes = ""
            }
            told = sprintf("%s %+.0f %% (%.0f %%)", text("value"), number("change_percent"),
                           number("noise_percent"))
            verdict = text("verdict")
            if (verdict == "better" || verdict == "worse") told = told " " verdict
            changes = changes (changes == "" ? "" : "; ") told
        }
        END { row() }
    ' "$1"
}

if [ "${1:-}" = --table ]; then
    table "${2:?--table: name a record}"
    exit
fi
RECORD=${1:?name the file for the record, such as benches/record/tuning.jsonl}
: >>"$RECORD"
RECORD=$(cd "$(dirname "$RECORD")" && pwd)/$(basename "$RECORD")
HERE=$(cd "$(dirname "$0")/.." && pwd)
INTERVALE=${INTERVALE:-$HERE/target/release/intervale}
EVENTS=${EVENTS:-1000000} ROUNDS=${ROUNDS:-5} DURATION=${DURATION:-1s}
DIR=$(mktemp -d)
trap 'rm -rf "$DIR"' EXIT
cd "$DIR"

machine=$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1)
commit=$(git -C "$HERE" rev-parse --short HEAD 2>/dev/null || echo unknown)
load=$(cut -d ' ' -f 1 /proc/loadavg)
{
    printf '{"machine": "%s, %s CPUs", "kernel": "%s", ' "$machine" "$(nproc)" "$(uname -r | cut -d - -f 1)"
    printf '"rustc": "%s", ' "$(rustc --version 2>/dev/null | cut -d ' ' -f 2)"
    printf '"load": "%s", "commit": "%s", ' "$load" "$commit"
    printf '"command": "EVENTS=%s ROUNDS=%s DURATION=%s ' "$EVENTS" "$ROUNDS" "$DURATION"
    printf 'tuning/measure.sh RECORD"}\n'
} >record

# tune OPTIONS...: one search, into the record.
tune() {
    "$INTERVALE" tune --repeat "$ROUNDS" --output tuned.toml --record search "$@"
    cat search >>record
}

"$INTERVALE" gen --workload w1a --events "$EVENTS" --left l.csv --right r.csv
tune --settings idle,linger,lane-batches,runtime,bucket-width,chunk -- --left l.csv \
    --right r.csv --on key --left-time ts --right-time ts --between 0..5m --out-of-orderness 5s
for workload in w1a w2; do
    tune --workload "$workload" --events "$EVENTS" --settings batch,bucket-width,chunk,simd
done
tune --goal latency --workload w2 --rate 20_000 --duration "$DURATION" --settings idle,linger
cp record "$RECORD"
table "$RECORD"
