//! Sizes: small ones in the test command.

/// Whether this is the test command's smoke run: everything once, at small sizes, so that benches
/// cannot rot.
pub fn is_smoke() -> bool {
    !std::env::args().any(|argument| argument == "--bench")
}

/// `full` when measuring, `smoke` in the test command.
pub fn sized(full: u32, smoke: u32) -> u32 {
    if is_smoke() { smoke } else { full }
}
