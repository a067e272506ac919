//! Which timestamps of a run lie within a range: the inner loop of every probe.
//!
//! The simple algorithm is `(0..ts.len()).filter(|&i| lo <= ts[i] && ts[i] <= hi)`. The
//! implementations depart from it in one way: they compare several timestamps at once and write the
//! indices of the hits without a branch. All of them return the same indices in the same order;
//! `tests` holds them to the scalar one.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(target_arch = "aarch64")]
mod neon;
mod scalar;

use std::fmt;
use std::str::FromStr;

/// How many indices beyond the hits an implementation may scribble over.
pub const SELECT_SLACK: usize = 16;

/// A run of up to so many timestamps may be looked through without a loop.
pub(super) const FEW: usize = 32;

/// Writes the indices of `ts[..len]` within `[lo, hi]` to `out` and returns how many.
///
/// # Safety
/// `ts` is valid for `len` reads, `out` for `len + SELECT_SLACK` writes, and the processor has the
/// features of the implementation.
type Select = unsafe fn(ts: *const i64, len: usize, lo: i64, hi: i64, out: *mut u32) -> usize;

/// The filter of one instruction set, for loops that are compiled once for each of them.
pub(super) trait Lanes {
    /// See [`Select`].
    ///
    /// # Safety
    /// As for [`Select`].
    unsafe fn select(ts: *const i64, len: usize, lo: i64, hi: i64, out: *mut u32) -> usize;

    /// The same for up to [`FEW`] timestamps.
    ///
    /// # Safety
    /// As for [`Select`].
    #[inline(always)]
    unsafe fn select_few(ts: *const i64, len: usize, lo: i64, hi: i64, out: *mut u32) -> usize {
        // SAFETY: this function's contract.
        unsafe { Self::select(ts, len, lo, hi, out) }
    }
}

macro_rules! lanes {
    ($name:ident, $module:ident $(, $few:ident)?) => {
        pub(super) struct $name;

        impl Lanes for $name {
            #[inline(always)]
            unsafe fn select(ts: *const i64, len: usize, lo: i64, hi: i64, out: *mut u32) -> usize {
                // SAFETY: as the trait says.
                unsafe { $module::select(ts, len, lo, hi, out) }
            }

            $(
                #[inline(always)]
                unsafe fn $few(
                    ts: *const i64,
                    len: usize,
                    lo: i64,
                    hi: i64,
                    out: *mut u32,
                ) -> usize {
                    // SAFETY: as the trait says.
                    unsafe { $module::select_few(ts, len, lo, hi, out) }
                }
            )?
        }
    };
}

lanes!(Scalar, scalar);
#[cfg(target_arch = "x86_64")]
lanes!(Avx2, avx2);
#[cfg(target_arch = "x86_64")]
lanes!(Avx512, avx512, select_few);
#[cfg(target_arch = "aarch64")]
lanes!(Neon, neon);

/// An instruction set for the filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Simd {
    /// Plain Rust; on every machine.
    Scalar,
    /// x86-64 AVX2: 4 timestamps at once.
    Avx2,
    /// x86-64 AVX-512F and VL: 16 timestamps at once.
    Avx512,
    /// AArch64 NEON: 2 timestamps at once.
    Neon,
}

impl Simd {
    /// Every instruction set, the plainest first.
    pub const ALL: [Simd; 4] = [Simd::Scalar, Simd::Avx2, Simd::Avx512, Simd::Neon];

    /// The widest one that this machine has.
    pub fn detect() -> Simd {
        let mut best = Simd::Scalar;
        for simd in Simd::ALL {
            if simd.is_available() {
                best = simd;
            }
        }
        best
    }

    /// Whether this machine has it.
    pub fn is_available(self) -> bool {
        match self {
            Simd::Scalar => true,
            #[cfg(target_arch = "x86_64")]
            Simd::Avx2 => {
                std::is_x86_feature_detected!("avx2")
                    && std::is_x86_feature_detected!("popcnt")
                    && std::is_x86_feature_detected!("bmi1")
                    && std::is_x86_feature_detected!("bmi2")
            }
            #[cfg(target_arch = "x86_64")]
            Simd::Avx512 => {
                std::is_x86_feature_detected!("avx512f")
                    && std::is_x86_feature_detected!("avx512vl")
                    && Simd::Avx2.is_available()
            }
            #[cfg(target_arch = "aarch64")]
            Simd::Neon => true,
            #[allow(unreachable_patterns)]
            _ => false,
        }
    }

    /// `scalar`, `avx2`, `avx512` or `neon`, as on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Simd::Scalar => "scalar",
            Simd::Avx2 => "avx2",
            Simd::Avx512 => "avx512",
            Simd::Neon => "neon",
        }
    }
}

impl fmt::Display for Simd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Simd {
    type Err = String;

    fn from_str(text: &str) -> Result<Simd, String> {
        Simd::ALL
            .into_iter()
            .find(|simd| simd.name() == text)
            .ok_or_else(|| format!("`{text}` is none of scalar, avx2, avx512, neon"))
    }
}

/// The filter of one instruction set. The value is the proof that the machine has it.
#[derive(Clone, Copy, Debug)]
pub struct Filter {
    simd: Simd,
    select: Select,
}

impl Filter {
    /// The filter for `simd`, or `None` where the machine has not got it.
    pub fn new(simd: Simd) -> Option<Filter> {
        if !simd.is_available() {
            return None;
        }
        let select: Select = match simd {
            #[cfg(target_arch = "x86_64")]
            Simd::Avx2 => avx2::select,
            #[cfg(target_arch = "x86_64")]
            Simd::Avx512 => avx512::select,
            #[cfg(target_arch = "aarch64")]
            Simd::Neon => neon::select,
            _ => scalar::select,
        };
        Some(Filter { simd, select })
    }

    /// The filter for the widest instruction set of this machine.
    pub fn detect() -> Filter {
        Filter::new(Simd::detect()).unwrap_or(Filter { simd: Simd::Scalar, select: scalar::select })
    }

    /// The instruction set in use.
    pub fn simd(&self) -> Simd {
        self.simd
    }

    /// Writes to `out` the indices of `ts` within `[lo, hi]`, ascending; returns how many. Up to
    /// [`SELECT_SLACK`] places behind them are scribbled over.
    ///
    /// # Panics
    /// When `out` is shorter than `ts` and the slack.
    #[inline]
    pub fn select(&self, ts: &[i64], lo: i64, hi: i64, out: &mut [u32]) -> usize {
        assert!(out.len() >= ts.len() + SELECT_SLACK);
        // SAFETY: `ts` is a slice; `out` has room for `len + SELECT_SLACK`; `self` exists only
        // where the machine has the features.
        unsafe { (self.select)(ts.as_ptr(), ts.len(), lo, hi, out.as_mut_ptr()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn selected(simd: Simd, ts: &[i64], lo: i64, hi: i64) -> Option<Vec<u32>> {
        let mut out = vec![u32::MAX; ts.len() + SELECT_SLACK + 1];
        let room = ts.len() + SELECT_SLACK;
        let hits = Filter::new(simd)?.select(ts, lo, hi, &mut out[..room]);
        assert_eq!(out[room], u32::MAX, "what stands behind the slack stays");
        out.truncate(hits);
        Some(out)
    }

    fn naive(ts: &[i64], lo: i64, hi: i64) -> Vec<u32> {
        (0..ts.len() as u32).filter(|&i| (lo..=hi).contains(&ts[i as usize])).collect()
    }

    #[test]
    fn every_length_and_alignment_agrees_with_the_naive_one() {
        let ts: Vec<i64> = (0..80).map(|i| (i * 37) % 23 - 11).collect();
        for simd in Simd::ALL {
            for start in 0..9 {
                for len in 0..64 {
                    let ts = &ts[start..start + len];
                    for (lo, hi) in [(-3, 4), (0, 0), (5, -5), (-100, 100)] {
                        if let Some(found) = selected(simd, ts, lo, hi) {
                            assert_eq!(found, naive(ts, lo, hi), "{simd} {start} {len}");
                        }
                    }
                }
            }
        }
    }

    proptest! {
        #[test]
        fn the_ends_of_i64_agree(
            ts in prop::collection::vec(
                prop_oneof![any::<i64>(), Just(i64::MIN), Just(i64::MAX), -3i64..3], 0..40),
            lo in prop_oneof![any::<i64>(), Just(i64::MIN), Just(i64::MAX), -3i64..3],
            hi in prop_oneof![any::<i64>(), Just(i64::MIN), Just(i64::MAX), -3i64..3],
        ) {
            for simd in Simd::ALL {
                if let Some(found) = selected(simd, &ts, lo, hi) {
                    prop_assert_eq!(found, naive(&ts, lo, hi), "{}", simd);
                }
            }
        }
    }

    #[test]
    fn names_come_back() {
        for simd in Simd::ALL {
            assert_eq!(simd.name().parse(), Ok(simd));
        }
        assert!("sse".parse::<Simd>().is_err());
    }
}
