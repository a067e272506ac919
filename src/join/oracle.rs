//! The reference: nested loops that anyone can read.
