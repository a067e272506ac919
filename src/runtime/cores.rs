//! Which CPUs the workers of an engine go to.

use std::fmt;
use std::num::NonZeroUsize;
use std::str::FromStr;

use crate::error::RuntimeError;
use crate::limits::SHARD_COUNT_MAX;
use crate::runtime::topology::{Topology, parse_cpu_list};

/// How many workers there are and where they run: `all`, a number, or a list of CPUs.
///
/// ```
/// use intervale::runtime::CoreChoice;
/// assert_eq!("all".parse(), Ok(CoreChoice::All));
/// assert_eq!("4".parse(), Ok(CoreChoice::count(4).unwrap()));
/// assert_eq!("0,2-3".parse(), Ok(CoreChoice::List(vec![0, 2, 3])));
/// assert_eq!("3-3".parse(), Ok(CoreChoice::List(vec![3])), "one CPU, by its number");
/// assert!("0".parse::<CoreChoice>().is_err());
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum CoreChoice {
    /// One worker on each CPU that this process may use, but not more than its quota is worth.
    #[default]
    All,
    /// This many workers, on distinct physical cores first. More than there are CPUs is allowed:
    /// the workers then share them, unpinned.
    Count(NonZeroUsize),
    /// One worker on each of these CPUs, named by the system's numbers.
    List(Vec<usize>),
}

/// A text that is no [`CoreChoice`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CoreChoiceError(String);

impl fmt::Display for CoreChoiceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "`{}` names no cores; give a number of them (4), a list of CPUs (0,2,4-7), or `all`; \
             {SHARD_COUNT_MAX} are the most",
            self.0
        )
    }
}

impl std::error::Error for CoreChoiceError {}

impl CoreChoice {
    /// `count` workers; `None` for 0.
    pub const fn count(count: usize) -> Option<CoreChoice> {
        match NonZeroUsize::new(count) {
            Some(count) => Some(CoreChoice::Count(count)),
            None => None,
        }
    }

    /// Places the workers on the CPUs of `topology`.
    ///
    /// # Errors
    /// [`RuntimeError::Cores`] when a listed CPU may not be used or is listed twice, and when there
    /// would be more than [`SHARD_COUNT_MAX`] workers.
    pub fn place(&self, topology: &Topology) -> Result<Placement, RuntimeError> {
        let usable = topology.cpus_usable();
        let preferred = topology.cpus_by_preference();
        let mut notes = Vec::new();
        let cpus: Vec<Option<usize>> = match self {
            CoreChoice::All => {
                if usable < preferred.len() {
                    notes.push(format!(
                        "the CPU quota is worth {usable} of {} CPUs: {usable} workers",
                        preferred.len()
                    ));
                }
                let most = usable.min(SHARD_COUNT_MAX);
                preferred.into_iter().take(most).map(Some).collect()
            }
            CoreChoice::Count(count) if count.get() > preferred.len() => vec![None; count.get()],
            CoreChoice::Count(count) => preferred.into_iter().take(count.get()).map(Some).collect(),
            CoreChoice::List(list) => {
                check_list(list, topology)?;
                list.iter().copied().map(Some).collect()
            }
        };
        if cpus.len() > SHARD_COUNT_MAX {
            return Err(RuntimeError::Cores(format!(
                "{} workers are asked for; {SHARD_COUNT_MAX} are the most",
                cpus.len()
            )));
        }
        let oversubscribed = cpus.len() > usable;
        if oversubscribed {
            notes.push(format!(
                "{} workers share {usable} CPUs: they do not spin{}",
                cpus.len(),
                if cpus.contains(&None) { " and are not pinned" } else { "" }
            ));
        }
        Ok(Placement { cpus, oversubscribed, notes })
    }
}

fn check_list(list: &[usize], topology: &Topology) -> Result<(), RuntimeError> {
    if list.is_empty() {
        return Err(RuntimeError::Cores("the list of CPUs is empty".to_owned()));
    }
    for (index, cpu) in list.iter().enumerate() {
        if list[..index].contains(cpu) {
            return Err(RuntimeError::Cores(format!("CPU {cpu} is listed twice")));
        }
        if !topology.cpus.iter().any(|allowed| allowed.id == *cpu) {
            let allowed: Vec<String> =
                topology.cpus.iter().map(|allowed| allowed.id.to_string()).collect();
            return Err(RuntimeError::Cores(format!(
                "CPU {cpu} may not be used by this process; these may: {}",
                allowed.join(",")
            )));
        }
    }
    Ok(())
}

impl FromStr for CoreChoice {
    type Err = CoreChoiceError;

    fn from_str(text: &str) -> Result<CoreChoice, CoreChoiceError> {
        let error = || CoreChoiceError(text.to_owned());
        let trimmed = text.trim();
        if trimmed.eq_ignore_ascii_case("all") {
            return Ok(CoreChoice::All);
        }
        if let Ok(count) = trimmed.parse::<usize>() {
            let choice = CoreChoice::count(count).filter(|_| count <= SHARD_COUNT_MAX);
            return choice.ok_or_else(error);
        }
        let list = parse_cpu_list(trimmed).filter(|list| !list.is_empty()).ok_or_else(error)?;
        if list.len() > SHARD_COUNT_MAX { Err(error()) } else { Ok(CoreChoice::List(list)) }
    }
}

/// Where each worker runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    /// The CPU of each worker; `None` where the system chooses.
    pub cpus: Vec<Option<usize>>,
    /// The workers outnumber what can run at once: waiting must never spin.
    pub oversubscribed: bool,
    /// What the user should know about it, a line each.
    pub notes: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::{Cpu, IoUring};

    fn topology(cpu_count: usize, quota_cpus: Option<f64>) -> Topology {
        let cpu = |id| Cpu { id, siblings: vec![id], node: None, isolated: false };
        Topology {
            cpus: (0..cpu_count).map(|id| cpu(id * 2)).collect(),
            quota_cpus,
            memlock_bytes: None,
            kernel: None,
            io_uring: IoUring::Available,
        }
    }

    #[test]
    fn as_many_as_there_are_get_pinned_and_more_share() {
        let host = topology(2, None);
        let placed = CoreChoice::All.place(&host).unwrap();
        assert_eq!(placed.cpus, [Some(0), Some(2)]);
        assert!(!placed.oversubscribed && placed.notes.is_empty());
        let placed = CoreChoice::count(8).unwrap().place(&host).unwrap();
        assert_eq!(placed.cpus, [None; 8]);
        assert!(placed.oversubscribed);
        assert_eq!(placed.notes, ["8 workers share 2 CPUs: they do not spin and are not pinned"]);
    }

    #[test]
    fn a_quota_bounds_all_and_forbids_spinning() {
        let host = topology(4, Some(1.5));
        let placed = CoreChoice::All.place(&host).unwrap();
        assert_eq!((placed.cpus.len(), placed.oversubscribed), (2, false));
        assert_eq!(placed.notes, ["the CPU quota is worth 2 of 4 CPUs: 2 workers"]);
        let placed = CoreChoice::count(3).unwrap().place(&host).unwrap();
        assert_eq!((placed.cpus.len(), placed.oversubscribed), (3, true));
        assert!(placed.cpus.iter().all(Option::is_some));
    }

    #[test]
    fn lists_are_checked() {
        let host = topology(2, None);
        let refusal =
            |list: &[usize]| CoreChoice::List(list.to_vec()).place(&host).unwrap_err().to_string();
        assert!(refusal(&[1]).contains("CPU 1 may not be used by this process; these may: 0,2"));
        assert!(refusal(&[2, 2]).contains("listed twice"));
        assert!(refusal(&[]).contains("empty"));
        assert_eq!(CoreChoice::List(vec![2]).place(&host).unwrap().cpus, [Some(2)]);
        assert!(CoreChoice::count(257).unwrap().place(&host).is_err());
    }

    #[test]
    fn texts_that_are_none_say_what_would_be() {
        for text in ["", "0", "-1", "two", "3-1", "257", "1;2"] {
            let error = text.parse::<CoreChoice>().unwrap_err().to_string();
            assert!(error.contains("`all`"), "{text}: {error}");
        }
    }
}
