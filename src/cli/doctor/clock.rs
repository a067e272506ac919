//! How long a look at the clock takes.

use std::hint::black_box;
use std::time::Instant;

const LOOKS: u32 = 2_000;
const ROUNDS: u32 = 5;

/// Nanoseconds of one look, the best of a few rounds; takes under a millisecond where looks are
/// cheap, some 20 ms where they are system calls.
pub(super) fn look_ns() -> f64 {
    let round = |_| {
        let start = Instant::now();
        for _ in 0..LOOKS {
            black_box(Instant::now());
        }
        start.elapsed().as_nanos() as f64 / f64::from(LOOKS)
    };
    (0..ROUNDS).map(round).fold(f64::INFINITY, f64::min)
}
