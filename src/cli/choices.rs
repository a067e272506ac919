//! Options that several commands have: what can be chosen, and what that means to the library.

use std::path::Path;

use crate::cli::Failure;
use crate::exchange::HotKeys;
use crate::join::{JoinKind, MatchChoice};
use crate::runtime::{IdleStrategy, RuntimeChoice};
use crate::source::RowFormat;
use crate::state::Simd;

macro_rules! choices {
    ($($(#[$doc:meta])* $name:ident { $($variant:ident),+ $(,)? })+) => {
        $($(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
        pub(in crate::cli) enum $name { $($variant),+ })+
    };
}

pub(super) use choices;

choices! {
    /// A file format.
    Format { Csv, Tsv, Jsonl }
    /// A kind of join.
    Kind { Inner, Left, Right, Full, Semi, Anti }
    /// Which matches of a left row count.
    Match { All, First, Last, Nearest, OneToOne }
    /// A driver.
    Runtime { Auto, Glommio, Threads }
    /// An idle strategy.
    Idle { Spin, Yield, Park, Auto }
    /// An instruction set.
    SimdChoice { Auto, Scalar, Avx2, Avx512, Neon }
    /// Whether hot keys are split.
    HotKeysChoice { Auto, Off, Force }
}

impl Format {
    /// The format that a file's ending names, if it names one.
    pub(super) fn by_ending(path: &Path) -> Option<Format> {
        match RowFormat::from_path(path)? {
            RowFormat::CSV => Some(Format::Csv),
            RowFormat::JsonLines => Some(Format::Jsonl),
            RowFormat::Delimited { .. } => Some(Format::Tsv),
        }
    }

    /// The same for sources and sinks.
    pub(super) fn rows(self) -> RowFormat {
        match self {
            Format::Csv => RowFormat::CSV,
            Format::Tsv => RowFormat::TSV,
            Format::Jsonl => RowFormat::JsonLines,
        }
    }
}

impl From<Kind> for JoinKind {
    fn from(kind: Kind) -> JoinKind {
        match kind {
            Kind::Inner => JoinKind::Inner,
            Kind::Left => JoinKind::Left,
            Kind::Right => JoinKind::Right,
            Kind::Full => JoinKind::Full,
            Kind::Semi => JoinKind::Semi,
            Kind::Anti => JoinKind::Anti,
        }
    }
}

impl From<Match> for MatchChoice {
    fn from(choice: Match) -> MatchChoice {
        match choice {
            Match::All => MatchChoice::All,
            Match::First => MatchChoice::First,
            Match::Last => MatchChoice::Last,
            Match::Nearest => MatchChoice::Nearest,
            Match::OneToOne => MatchChoice::OneToOne,
        }
    }
}

impl From<Runtime> for RuntimeChoice {
    fn from(runtime: Runtime) -> RuntimeChoice {
        match runtime {
            Runtime::Auto => RuntimeChoice::Auto,
            Runtime::Glommio => RuntimeChoice::Glommio,
            Runtime::Threads => RuntimeChoice::Threads,
        }
    }
}

impl From<Idle> for IdleStrategy {
    fn from(idle: Idle) -> IdleStrategy {
        match idle {
            Idle::Auto => IdleStrategy::Auto,
            Idle::Spin => IdleStrategy::Spin,
            Idle::Yield => IdleStrategy::Yield,
            Idle::Park => IdleStrategy::Park,
        }
    }
}

impl From<HotKeysChoice> for HotKeys {
    fn from(choice: HotKeysChoice) -> HotKeys {
        match choice {
            HotKeysChoice::Auto => HotKeys::Auto,
            HotKeysChoice::Off => HotKeys::Off,
            HotKeysChoice::Force => HotKeys::Forced,
        }
    }
}

impl SimdChoice {
    /// What was chosen; `None` leaves it to the library.
    ///
    /// # Errors
    /// [`Failure::Usage`] when this processor does not have it.
    pub(super) fn resolve(self) -> Result<Option<Simd>, Failure> {
        let simd = match self {
            SimdChoice::Auto => return Ok(None),
            SimdChoice::Scalar => Simd::Scalar,
            SimdChoice::Avx2 => Simd::Avx2,
            SimdChoice::Avx512 => Simd::Avx512,
            SimdChoice::Neon => Simd::Neon,
        };
        if simd.is_available() {
            return Ok(Some(simd));
        }
        Err(Failure::usage(format!(
            "--simd {simd}: this processor does not have it; the best it has is {}, as auto",
            Simd::detect()
        )))
    }
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum;

    use super::*;

    #[test]
    fn every_choice_is_its_namesake() {
        for kind in Kind::value_variants() {
            let name = format!("{kind:?}");
            assert_eq!(format!("{:?}", JoinKind::from(*kind)), name);
        }
        for choice in Match::value_variants() {
            assert_eq!(format!("{:?}", MatchChoice::from(*choice)), format!("{choice:?}"));
        }
        for runtime in Runtime::value_variants() {
            assert_eq!(format!("{:?}", RuntimeChoice::from(*runtime)), format!("{runtime:?}"));
        }
        for idle in Idle::value_variants() {
            assert_eq!(format!("{:?}", IdleStrategy::from(*idle)), format!("{idle:?}"));
        }
        for format in Format::value_variants() {
            let path = format!("a.{:?}", format).to_lowercase();
            assert_eq!(Format::by_ending(Path::new(&path)), Some(*format));
            assert_eq!(RowFormat::from_path(Path::new(&path)), Some(format.rows()));
        }
    }
}
