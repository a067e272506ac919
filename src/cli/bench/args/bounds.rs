//! `--ttl`, `--max-rows`, `--max-state` and what happens at a bound: what they cost.

use std::fmt;
use std::path::PathBuf;

use super::value_name;
use crate::cli::Failure;
use crate::cli::bench::values::{Api, count};
use crate::cli::join::{OnFull, parse_size};
use crate::limits::{Limits, Overflow};
use crate::time::text::TimeSpan;
use crate::workload::Bounds;

/// The value that leaves a bound out.
pub(in crate::cli::bench) const NONE: &str = "none";

/// Options that bound state.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct BoundArgs {
    /// Rows are given up this long after they came, by the clock on the wall, up to an eighth of it
    /// later; none: never. Pairs may be fewer, and others in each run
    #[arg(
        long, value_name = "DURATION,...", value_delimiter = ',', default_value = NONE,
        value_parser = ttl, allow_hyphen_values = true
    )]
    ttl: Vec<OrNone<TimeSpan>>,
    /// Bound on buffered rows, of both sides together
    #[arg(
        long, value_name = "N,...", value_delimiter = ',', default_value = NONE,
        value_parser = rows, allow_negative_numbers = true
    )]
    max_rows: Vec<OrNone<u64>>,
    /// Bound on buffered state, like 64MiB
    #[arg(
        long, value_name = "SIZE,...", value_delimiter = ',', default_value = NONE,
        value_parser = bytes
    )]
    max_state: Vec<OrNone<u64>>,
    /// When a bound comes near: block has what is ahead wait, which takes the engine; shed gives
    /// the oldest rows up, so that pairs may be fewer; spill puts the oldest rows into files, and
    /// finds the same pairs; fail goes on and ends the bench at the bound [default: block]
    #[arg(long, value_name = "POLICY,...", value_delimiter = ',')]
    on_full: Vec<OnFull>,
    /// Where --on-full spill puts rows [default: the system's folder for temporary files]
    #[arg(long, value_name = "DIR")]
    spill_dir: Option<PathBuf>,
}

/// A bound, or that there is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::cli::bench) struct OrNone<T>(pub(in crate::cli::bench) Option<T>);

impl<T: fmt::Display> fmt::Display for OrNone<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            None => f.write_str(NONE),
            Some(bound) => bound.fmt(f),
        }
    }
}

/// One combination, as the options have it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::cli::bench) struct BoundShape {
    pub(in crate::cli::bench) ttl: OrNone<TimeSpan>,
    pub(in crate::cli::bench) rows: OrNone<u64>,
    pub(in crate::cli::bench) bytes: OrNone<u64>,
    /// Where rows or bytes are bounded.
    on_full: Option<OnFull>,
}

impl BoundShape {
    /// What happens at the bound, as the option calls it.
    pub(in crate::cli::bench) fn on_full(self) -> String {
        self.on_full.map_or_else(|| NONE.to_owned(), value_name)
    }
}

impl BoundArgs {
    /// All combinations; where neither rows nor bytes are bounded, what happens at a bound is none.
    ///
    /// # Errors
    /// [`Failure::Usage`] names what does not go together.
    pub(super) fn shapes(&self, api: Api) -> Result<Vec<BoundShape>, Failure> {
        let policies = if self.on_full.is_empty() { &[OnFull::Block][..] } else { &self.on_full };
        let mut shapes = Vec::new();
        for &ttl in &self.ttl {
            for &rows in &self.max_rows {
                for &bytes in &self.max_state {
                    let shape = |on_full| BoundShape { ttl, rows, bytes, on_full };
                    match (rows.0, bytes.0) {
                        (None, None) => shapes.push(shape(None)),
                        _ => shapes.extend(policies.iter().map(|&policy| shape(Some(policy)))),
                    }
                }
            }
        }
        self.check(&shapes, api)?;
        Ok(shapes)
    }

    fn check(&self, shapes: &[BoundShape], api: Api) -> Result<(), Failure> {
        let does = |policy| shapes.iter().any(|shape| shape.on_full == Some(policy));
        if !self.on_full.is_empty() && shapes.iter().all(|shape| shape.on_full.is_none()) {
            return Err(Failure::usage(
                "--on-full says what happens at a bound, and there is none; add --max-rows or \
                 --max-state",
            ));
        }
        if api == Api::Join && does(OnFull::Block) {
            return Err(Failure::usage(
                "--on-full block: the bare join takes what comes, so nobody could wait; give \
                 --on-full shed, spill or fail, or --api engine",
            ));
        }
        match &self.spill_dir {
            Some(folder) if !folder.is_dir() => Err(Failure::usage(format!(
                "--spill-dir: {} is no folder; name one that is there",
                folder.display()
            ))),
            Some(_) if !does(OnFull::Spill) => Err(Failure::usage(
                "--spill-dir goes with --on-full spill; leave it out, or say so",
            )),
            _ => Ok(()),
        }
    }

    /// What the library is to be given.
    pub(super) fn bounds(&self, shape: BoundShape) -> Bounds {
        let overflow = match shape.on_full {
            None | Some(OnFull::Block | OnFull::Fail) => Overflow::Refuse,
            Some(OnFull::Shed) => Overflow::Shed,
            Some(OnFull::Spill) => Overflow::Spill,
        };
        let limits =
            Limits { state_bytes_max: shape.bytes.0, state_rows_max: shape.rows.0, overflow };
        Bounds {
            limits,
            fail_when_full: shape.on_full == Some(OnFull::Fail),
            // It was one when it was read.
            ttl: shape.ttl.0.and_then(|span| span.to_wall().ok()),
            spill_dir: self.spill_dir.clone().filter(|_| overflow == Overflow::Spill),
        }
    }
}

fn or_none<T>(text: &str, read: impl Fn(&str) -> Result<T, String>) -> Result<OrNone<T>, String> {
    match text {
        NONE => Ok(OrNone(None)),
        _ => read(text).map(|bound| OrNone(Some(bound))),
    }
}

fn ttl(text: &str) -> Result<OrNone<TimeSpan>, String> {
    or_none(text, |text| {
        let span: TimeSpan = text.parse().map_err(|error| format!("{error}, or {NONE}"))?;
        match span.to_wall() {
            Ok(wall) if wall.is_zero() => Err(format!("give more than 0, or {NONE}")),
            Ok(_) => Ok(span),
            Err(error) => Err(error.to_string()),
        }
    })
}

fn rows(text: &str) -> Result<OrNone<u64>, String> {
    or_none(text, |text| match count(text) {
        Ok(0) => Err(format!("0 leaves no room at all; give 1000 or more, or {NONE}")),
        rows => rows,
    })
}

fn bytes(text: &str) -> Result<OrNone<u64>, String> {
    or_none(text, |text| parse_size(text).map_err(|error| error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(ttl: &str, rows: &str, bytes: &str, on_full: &[OnFull]) -> BoundArgs {
        BoundArgs {
            ttl: ttl.split(',').map(|text| super::ttl(text).unwrap()).collect(),
            max_rows: rows.split(',').map(|text| super::rows(text).unwrap()).collect(),
            max_state: bytes.split(',').map(|text| super::bytes(text).unwrap()).collect(),
            on_full: on_full.to_vec(),
            spill_dir: None,
        }
    }

    #[test]
    fn what_happens_at_a_bound_is_swept_where_there_is_one() {
        let told = |args: &BoundArgs| -> Vec<String> {
            let shapes = args.shapes(Api::Engine).unwrap();
            let text = |s: &BoundShape| format!("{} {} {} {}", s.ttl, s.rows, s.bytes, s.on_full());
            shapes.iter().map(text).collect()
        };
        assert_eq!(told(&args(NONE, NONE, NONE, &[])), ["none none none none"]);
        assert_eq!(told(&args("5s", "1e3", NONE, &[])), ["5s 1000 none block"]);
        let policies = [OnFull::Shed, OnFull::Spill];
        let swept = args("none,1m", "none,9", NONE, &policies);
        assert_eq!(
            told(&swept),
            [
                "none none none none",
                "none 9 none shed",
                "none 9 none spill",
                "1m none none none",
                "1m 9 none shed",
                "1m 9 none spill"
            ]
        );
        let bounds: Vec<Bounds> =
            swept.shapes(Api::Join).unwrap().into_iter().map(|shape| swept.bounds(shape)).collect();
        let give_up: Vec<bool> = bounds.iter().map(Bounds::give_up).collect();
        assert_eq!(give_up, [false, true, false, true, true, true]);
        assert_eq!(bounds[2].limits.overflow, Overflow::Spill);
        assert_eq!(bounds[0], Bounds::default());
    }

    #[test]
    fn what_does_not_go_together_is_refused() {
        let told = |args: BoundArgs, api| match args.shapes(api) {
            Err(Failure::Usage(message)) => message,
            other => panic!("{other:?}"),
        };
        let shed = [OnFull::Shed];
        assert!(told(args(NONE, NONE, NONE, &shed), Api::Engine).contains("--max-rows"));
        assert!(told(args(NONE, "5", NONE, &[]), Api::Join).contains("nobody could wait"));
        let folder = Some(std::env::temp_dir());
        let spill_dir = BoundArgs { spill_dir: folder, ..args(NONE, "5", NONE, &shed) };
        assert!(told(spill_dir, Api::Join).contains("--on-full spill"));
        for wrong in ["0s", "", "-1s", "5"] {
            assert!(ttl(wrong).is_err(), "{wrong}");
        }
        assert!(rows("0").is_err() && rows("x").is_err() && bytes("lots").is_err());
    }
}
