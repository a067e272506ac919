#!/bin/sh
# Model-checks the lanes, the watermark table and the doorbell with loom: every interleaving, every
# value that weak memory allows, and every planted fault found. Further arguments go to the test
# binary. A target folder of its own keeps the ordinary build warm.
set -eu
cd "$(dirname "$0")/.."
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-target}/loom"
export RUSTFLAGS="${RUSTFLAGS:-} --cfg loom"
exec cargo test --release --no-default-features --lib -- loom "$@"
