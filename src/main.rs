//! The `intervale` command.

fn main() {}
