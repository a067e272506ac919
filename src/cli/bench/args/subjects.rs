//! What is measured of each combination: the engine, the join, peers, on which cores.

use super::{Args, value_name};
use crate::cli::Failure;
use crate::cli::bench::values::{Api, CoresText, Peer};
use crate::cli::choices::{Idle, Runtime, SimdChoice};
use crate::runtime::{CoreChoice, Topology};
use crate::state::Simd;
use crate::workload::EngineSetup;
use crate::workload::bench::Subject;

impl Args {
    fn core_choices(&self) -> Vec<CoreChoice> {
        match self.cores.is_empty() {
            true => vec![CoreChoice::All],
            false => self.cores.iter().flat_map(|CoresText(cores)| cores).cloned().collect(),
        }
    }

    /// Which options do nothing here, if there are any.
    pub(in crate::cli::bench) fn unused(&self) -> Option<String> {
        if self.api == Api::Engine {
            return None;
        }
        let peer_takes_cores = !self.peer.is_empty();
        let given = [
            ("--cores", !self.cores.is_empty() && !peer_takes_cores),
            ("--runtime", self.runtime != [Runtime::Auto]),
            ("--idle", self.idle != Idle::Auto),
        ];
        let unused: Vec<&str> = given.iter().filter(|(_, given)| *given).map(|o| o.0).collect();
        (!unused.is_empty()).then(|| {
            let names = unused.join(" and ");
            let api = value_name(self.api);
            format!("--api {api} has no engine, so {names} (or the profile's) changes nothing")
        })
    }

    /// Which numbers of cores are more than can run at once, in words.
    pub(in crate::cli::bench) fn oversubscribed(&self) -> Vec<String> {
        let topology = Topology::read();
        let uses_cores = self.api == Api::Engine || !self.peer.is_empty();
        let choices = self.core_choices();
        let placed = choices.iter().filter(|_| uses_cores).filter_map(|c| c.place(&topology).ok());
        placed
            .filter(|placement| placement.oversubscribed)
            .map(|placement| {
                let (workers, usable) = (placement.cpus.len(), topology.cpus_usable());
                format!(
                    "--cores {workers}: {usable} can run at once here, so workers take turns, and \
                     the figures say nothing about so many cores; give {usable} at most"
                )
            })
            .collect()
    }

    /// What is measured of each combination: the engine or the join, then peers.
    pub(super) fn subjects(&self) -> Result<Vec<Subject>, Failure> {
        let simd = |choice: &SimdChoice| Ok(choice.resolve()?.unwrap_or_else(Simd::detect));
        let levels = self.simd.iter().map(simd).collect::<Result<Vec<Simd>, Failure>>()?;
        let cores = &self.core_choices();
        let mut subjects = Vec::new();
        match self.api {
            Api::Engine => {
                for cores in cores {
                    core_count(cores)?;
                    subjects.extend(self.engines(cores, &levels));
                }
            }
            Api::Join => subjects.extend(levels.iter().map(|&simd| Subject::Join { simd })),
            Api::None => {}
        }
        for Peer::Naive in &self.peer {
            if self.api != Api::Engine && self.cores.is_empty() {
                subjects.push(Subject::Naive { cores: 1 });
                continue;
            }
            for cores in cores {
                subjects.push(Subject::Naive { cores: core_count(cores)? });
            }
        }
        if subjects.is_empty() {
            return Err(Failure::usage("--api none measures nothing without --peer; name a peer"));
        }
        Ok(subjects)
    }

    /// The engines on so many cores.
    fn engines(&self, cores: &CoreChoice, levels: &[Simd]) -> Vec<Subject> {
        let mut subjects = Vec::new();
        for &runtime in &self.runtime {
            for &simd in levels {
                for &hot_keys in &self.hot_keys {
                    let (runtime, idle) = (runtime.into(), self.idle.into());
                    let (cores, hot_keys) = (cores.clone(), hot_keys.into());
                    let setup = EngineSetup { cores, runtime, idle, simd, hot_keys };
                    subjects.push(Subject::Engine(setup));
                }
            }
        }
        subjects
    }
}

/// How many that is here.
fn core_count(cores: &CoreChoice) -> Result<usize, Failure> {
    let placement = cores.place(&Topology::read());
    let placement = placement.map_err(|error| Failure::usage(format!("--cores: {error}")))?;
    Ok(placement.cpus.len())
}
