#!/bin/sh
# Runs the tests of lanes, watermarks, producers and shards under ThreadSanitizer, which sees a
# missing ordering even where this processor would forgive it. The compiler's own switch for
# sanitizers is used on a stable toolchain; `--target` keeps build scripts out of it.
set -eu
cd "$(dirname "$0")/.."
target=$(rustc -vV | sed -n 's/^host: //p')
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-target}/tsan"
export RUSTC_BOOTSTRAP=1
export RUSTFLAGS="${RUSTFLAGS:-} -Zsanitizer=thread -Cunsafe-allow-abi-mismatch=sanitizer"
export TSAN_OPTIONS="${TSAN_OPTIONS:-} halt_on_error=1 suppressions=$PWD/tests/tsan.supp"
exec cargo test --no-default-features --target "$target" --lib -- exchange:: shard:: "$@"
