//! The search: one setting after the other, all values in turn, kept only beyond the noise.

use crate::cli::profile::{Profile, setting_names};
use crate::cli::text::show_ns;
use crate::cli::{Failure, StopSignal};
use crate::workload::{MAD_TO_SIGMA, median};

/// What must be gained at least: smaller differences are not worth a line in a profile.
const GAIN_MIN: f64 = 0.02;
/// Rounds without which nothing is kept.
const ROUNDS_MIN: usize = 3;

/// Settings that are not at their defaults, in the order of the documents.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Settings(Vec<(&'static str, String)>);

impl Settings {
    pub(super) fn from_profile(profile: &Profile) -> Settings {
        // How much memory is allowed changes no speed, and a bench has no such option.
        let kept = profile.settings.iter().filter(|setting| setting.name != "max-state");
        Settings(kept.map(|setting| (setting.name, setting.value.clone())).collect())
    }

    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.iter().find(|(known, _)| *known == name).map(|(_, value)| value)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&'static str, &str)> {
        self.0.iter().map(|(name, value)| (*name, value.as_str()))
    }

    fn with(&self, name: &'static str, value: &str) -> Settings {
        let mut settings = self.clone();
        settings.0.retain(|(known, _)| *known != name);
        settings.0.push((name, value.to_owned()));
        let place = |name: &str| setting_names().position(|known| known == name);
        settings.0.sort_by_key(|(name, _)| place(name));
        settings
    }
}

/// A setting and what to try beside the value that stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Knob {
    pub(super) name: &'static str,
    pub(super) values: Vec<String>,
}

/// What a value brought, against the one that stood.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Change {
    pub(super) value: String,
    /// The median of the rounds' ratios less 1: -0.1 is a tenth less time.
    pub(super) ratio: f64,
    /// How far rounds lie from it, or by how much what stood differs from itself, if that is more.
    pub(super) noise: f64,
    /// It is better by more than the noise, and the best of those that are.
    pub(super) best: bool,
}

impl Change {
    /// In a word; none where another value is better still.
    pub(super) fn verdict(&self) -> Option<&'static str> {
        match self.best {
            true => Some("better"),
            false if self.ratio.abs() <= self.noise.max(GAIN_MIN) => Some("no difference"),
            false if self.ratio > 0.0 => Some("worse"),
            false => None,
        }
    }
}

/// What was found for a setting.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Tried {
    pub(super) name: &'static str,
    /// What stood before.
    pub(super) stood: String,
    pub(super) rounds: usize,
    /// What stood against itself, measured as every value: what is no difference for certain.
    pub(super) itself: Change,
    pub(super) changes: Vec<Change>,
}

/// What runs are for, in a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// What others are compared with.
    Base,
    /// The same once more.
    Itself,
    /// A value.
    Value,
}

/// What all of it came to.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Found {
    pub(super) settings: Settings,
    pub(super) tried: Vec<Tried>,
    /// Settings that there was no time for.
    pub(super) not_tried: Vec<&'static str>,
    /// What ended the search early, if something did.
    pub(super) stopped: Option<StopSignal>,
    /// The end against the start: medians in ns, and the change. If that is not sure to be
    /// better, `settings` are those of the start.
    pub(super) together: Option<(f64, f64, Change)>,
}

/// A search under way.
pub(super) struct Search<'a> {
    pub(super) repeat: usize,
    /// Runs once with some settings; less is better.
    pub(super) trial: &'a mut dyn FnMut(&Settings, Turn) -> Result<f64, Failure>,
    /// Whether no run may begin any more.
    pub(super) out_of_time: &'a dyn Fn() -> bool,
    /// Tells the user a line.
    pub(super) say: &'a mut dyn FnMut(&str),
    /// Gets what was found for a setting, as it comes.
    pub(super) keep: &'a mut dyn FnMut(&Tried) -> Result<(), Failure>,
}

impl Search<'_> {
    /// Searches from `base` on.
    ///
    /// # Errors
    /// The first failure of a run; a signal is none once a setting was tried to its end.
    pub(super) fn run(&mut self, base: &Settings, space: &[Knob]) -> Result<Found, Failure> {
        let mut found = Found {
            settings: base.clone(),
            tried: Vec::new(),
            not_tried: Vec::new(),
            stopped: None,
            together: None,
        };
        for (index, knob) in space.iter().enumerate() {
            let stood = found.settings.get(knob.name).unwrap_or("default").to_owned();
            let values = knob.values.iter();
            let options: Vec<Settings> = std::iter::repeat_n(found.settings.clone(), 2)
                .chain(values.map(|value| found.settings.with(knob.name, value)))
                .collect();
            let rounds = match self.rounds(&options) {
                // What was tried to its end until then is worth keeping.
                Err(Failure::Interrupted(signal, _)) if !found.tried.is_empty() => {
                    found.stopped = Some(signal);
                    found.not_tried.extend(space[index..].iter().map(|knob| knob.name));
                    return Ok(found);
                }
                rounds => rounds?,
            };
            if rounds.len() < ROUNDS_MIN {
                (self.say)(&format!("{}: no time left (--budget)", knob.name));
                found.not_tried.push(knob.name);
                continue;
            }
            let (itself, changes) = judge(&knob.values, &rounds);
            (self.say)(&format!("{} {}", knob.name, describe_itself(&itself, &stood)));
            for change in &changes {
                (self.say)(&format!("{} {}", knob.name, describe(change, &stood)));
                if change.best {
                    found.settings = found.settings.with(knob.name, &change.value);
                }
            }
            let (name, rounds) = (knob.name, rounds.len());
            let tried = Tried { name, stood, rounds, itself, changes };
            (self.keep)(&tried)?;
            found.tried.push(tried);
        }
        if found.settings != *base {
            found.together = match self.together(base, &found.settings) {
                Err(Failure::Interrupted(signal, _)) => {
                    found.stopped = Some(signal);
                    return Ok(found);
                }
                together => together?,
            };
            if !found.together.as_ref().is_some_and(|(_, _, change)| change.best) {
                (self.say)("not sure to be better: what stood at the start stays");
                found.settings = base.clone();
            }
        }
        Ok(found)
    }

    /// Compares the end with the start. This much is run even when the time is up: a profile
    /// without it could be worse than none.
    fn together(
        &mut self,
        base: &Settings,
        end: &Settings,
    ) -> Result<Option<(f64, f64, Change)>, Failure> {
        let options = [base.clone(), base.clone(), end.clone()];
        let rounds: Vec<Vec<f64>> =
            (0..self.repeat).map(|round| self.round(&options, round)).collect::<Result<_, _>>()?;
        let of = |index: usize| median(rounds.iter().map(|round| round[index]).collect());
        let change = judge(&["all of it".to_owned()], &rounds).1.pop();
        Ok(change.map(|change| {
            (self.say)(&describe(&change, "the start"));
            (of(0), of(2), change)
        }))
    }

    /// Complete rounds over some settings, by round and then by setting.
    fn rounds(&mut self, options: &[Settings]) -> Result<Vec<Vec<f64>>, Failure> {
        let mut rounds = Vec::new();
        for round in 0..self.repeat {
            if (self.out_of_time)() {
                break;
            }
            rounds.push(self.round(options, round)?);
        }
        Ok(rounds)
    }

    /// One round. Each begins with another setting, so that none is always the first.
    fn round(&mut self, options: &[Settings], round: usize) -> Result<Vec<f64>, Failure> {
        let mut figures = vec![0.0; options.len()];
        for turn in 0..options.len() {
            let index = (turn + round) % options.len();
            let kind = match index {
                0 => Turn::Base,
                1 => Turn::Itself,
                _ => Turn::Value,
            };
            figures[index] = (self.trial)(&options[index], kind)?;
        }
        Ok(figures)
    }
}

/// What the second column, which is the first one again, differs from it, and what each value
/// brought; which one is best of those that are better by more than either noise.
fn judge(values: &[String], rounds: &[Vec<f64>]) -> (Change, Vec<Change>) {
    let ratios = |column: usize| -> Vec<f64> {
        rounds.iter().map(|round| round[column] / round[0] - 1.0).collect()
    };
    let of_itself = ratios(1);
    let itself = Change {
        value: ITSELF.to_owned(),
        ratio: median(of_itself.clone()),
        noise: noise_of_itself(&of_itself),
        best: false,
    };
    let change = |(index, value): (usize, &String)| {
        let ratios = ratios(index + 2);
        let ratio = median(ratios.clone());
        let noise = noise(&ratios, ratio).max(itself.noise);
        Change { value: value.clone(), ratio, noise, best: false }
    };
    let mut changes: Vec<Change> = values.iter().enumerate().map(change).collect();
    let better = |change: &&mut Change| -change.ratio > change.noise.max(GAIN_MIN);
    let best = changes.iter_mut().filter(better).min_by(|a, b| a.ratio.total_cmp(&b.ratio));
    if let Some(best) = best {
        best.best = true;
    }
    (itself, changes)
}

/// The name of what stood, against itself.
pub(super) const ITSELF: &str = "itself";

/// By how much what stood differs from itself, which is by nothing but noise: what is no more than
/// that is no difference. Of few rounds, the most.
fn noise_of_itself(ratios: &[f64]) -> f64 {
    let sizes: Vec<f64> = ratios.iter().map(|ratio| ratio.abs()).collect();
    match sizes.len() < ROUNDS_FEW {
        true => sizes.into_iter().fold(0.0, f64::max),
        false => MAD_TO_SIGMA * median(sizes),
    }
}

/// Of so few rounds two lie near each other by chance.
const ROUNDS_FEW: usize = 5;

/// How far rounds lie from their median.
fn noise(ratios: &[f64], ratio: f64) -> f64 {
    let (least, most) =
        ratios.iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(l, m), &r| (l.min(r), m.max(r)));
    match ratios.len() < ROUNDS_FEW {
        true => (most - least) / 2.0,
        false => MAD_TO_SIGMA * median(ratios.iter().map(|r| (r - ratio).abs()).collect()),
    }
}

/// A change in words.
pub(super) fn describe(change: &Change, stood: &str) -> String {
    let Change { value, ratio, noise, .. } = change;
    let verdict = change.verdict().map_or(String::new(), |verdict| format!(", {verdict}"));
    let (ratio, noise) = (ratio * 100.0, noise * 100.0);
    format!("{value}: {ratio:+.1} % against {stood} (noise {noise:.1} %){verdict}")
}

/// What stood, against itself, in words.
pub(super) fn describe_itself(itself: &Change, stood: &str) -> String {
    let (ratio, noise) = (itself.ratio * 100.0, itself.noise * 100.0);
    format!("{stood} against itself: {ratio:+.1} %, so no change below {noise:.1} % is one")
}

/// Nanoseconds, of whatever size.
pub(super) fn show(ns: f64) -> String {
    if ns < 1e3 { format!("{ns:.1} ns") } else { show_ns(ns as u64) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::random::rand;

    fn knob(name: &'static str, values: &[&str]) -> Knob {
        Knob { name, values: values.iter().map(|&value| value.to_owned()).collect() }
    }

    /// Searches where a run takes 100 ns, less so much for each of some settings, with noise.
    fn found(gains: &[(&str, &str, f64)], noise: f64, runs_max: usize) -> (Found, usize) {
        let runs = std::cell::Cell::new(0);
        let mut trial = |settings: &Settings, _: Turn| {
            runs.set(runs.get() + 1);
            let gain = |(name, value, gain): &(&str, &str, f64)| {
                if settings.get(name) == Some(value) { *gain } else { 0.0 }
            };
            let drawn = rand(3, runs.get() as u64) as f64 / u64::MAX as f64 - 0.5;
            Ok(100.0 - gains.iter().map(gain).sum::<f64>() + 2.0 * noise * drawn)
        };
        let mut search = Search {
            repeat: 5,
            trial: &mut trial,
            out_of_time: &|| runs.get() >= runs_max,
            say: &mut |_| {},
            keep: &mut |_| Ok(()),
        };
        let space =
            [knob("idle", &["spin", "park"]), knob("batch", &["64"]), knob("linger", &["0"])];
        let found = search.run(&Settings::default(), &space).unwrap();
        (found, runs.get())
    }

    #[test]
    fn what_helps_is_kept_and_adds_up() {
        let gains = [("idle", "park", 10.0), ("idle", "spin", 5.0), ("batch", "64", -7.0)];
        let (found, runs) = found(&[&gains[..], &[("linger", "0", 20.0)]].concat(), 1.0, 1_000);
        let settings: Vec<_> = found.settings.iter().collect();
        assert_eq!(settings, [("idle", "park"), ("linger", "0")]);
        let (start, end, together) = found.together.unwrap();
        assert!((start - 100.0).abs() < 2.0 && (end - 70.0).abs() < 2.0, "{start} {end}");
        assert!(together.best && (together.ratio + 0.3).abs() < 0.03, "{together:?}");
        assert_eq!(runs, 5 * (4 + 3 + 3 + 3));
        assert!(found.tried[0].changes[0].ratio < -0.02 && !found.tried[0].changes[0].best);
    }

    #[test]
    fn two_rounds_that_agree_by_chance_are_not_sure() {
        let change = |rounds: &[[f64; 2]]| {
            let with_itself = |round: &[f64; 2]| vec![round[0], round[0], round[1]];
            let rounds: Vec<Vec<f64>> = rounds.iter().map(with_itself).collect();
            judge(&["64".to_owned()], &rounds).1.remove(0)
        };
        let few = change(&[[100.0, 50.0], [100.0, 50.0], [100.0, 190.0]]);
        assert!((few.noise - 0.7).abs() < 1e-9 && !few.best, "{few:?}");
        assert!(change(&[[100.0, 50.0], [100.0, 51.0], [100.0, 49.0]]).best);
        let many = [[100.0, 50.0], [100.0, 50.0], [100.0, 50.0], [100.0, 50.0], [100.0, 190.0]];
        assert!(change(&many).best, "one of five is an outlier");
    }

    #[test]
    fn what_does_not_beat_the_base_against_itself_is_no_change() {
        // The rounds of the value agree to 1 %, and so they may by chance: what stood differs from
        // itself by up to a quarter.
        let three = |itself: f64| -> Vec<Vec<f64>> {
            [79.0, 80.0, 81.0].iter().map(|&value| vec![100.0, itself, value]).collect()
        };
        let (itself, changes) = judge(&["64".to_owned()], &three(125.0));
        assert!((itself.noise - 0.25).abs() < 1e-9 && (itself.ratio - 0.25).abs() < 1e-9);
        assert!((changes[0].noise - 0.25).abs() < 1e-9 && !changes[0].best, "{changes:?}");
        assert_eq!(changes[0].verdict(), Some("no difference"));
        let (itself, changes) = judge(&["64".to_owned()], &three(102.0));
        assert!((itself.noise - 0.02).abs() < 1e-9 && changes[0].best, "{changes:?}");
        // Of five rounds, one outlier does not make all the difference.
        let mut five = [three(101.0), three(99.0)].concat();
        five.truncate(5);
        five[0][1] = 190.0;
        assert!(judge(&["64".to_owned()], &five).1[0].best);
    }

    #[test]
    fn noise_is_not_taken_for_gain() {
        let (quiet, runs) = found(&[("idle", "spin", 1.0)], 0.2, 1_000);
        assert_eq!((quiet.settings, quiet.together), (Settings::default(), None));
        assert_eq!(runs, 5 * (4 + 3 + 3));
        let (noisy, _) = found(&[("idle", "spin", 3.0)], 40.0, 1_000);
        assert!(noisy.tried.iter().all(|tried| tried.changes.iter().all(|c| c.noise > 0.03)));
    }

    #[test]
    fn what_the_last_comparison_is_not_sure_of_is_not_kept() {
        // Idle spin looks better in its own rounds; once those are over, it is worse.
        let runs = std::cell::Cell::new(0);
        let mut trial = |settings: &Settings, _: Turn| {
            runs.set(runs.get() + 1);
            let better = if runs.get() <= 15 { 10.0 } else { -10.0 };
            Ok(100.0 - settings.get("idle").map_or(0.0, |_| better))
        };
        let mut said = Vec::new();
        let mut search = Search {
            repeat: 5,
            trial: &mut trial,
            out_of_time: &|| false,
            say: &mut |line| said.push(line.to_owned()),
            keep: &mut |_| Ok(()),
        };
        let base = Settings::default().with("batch", "64");
        let found = search.run(&base, &[knob("idle", &["spin"])]).unwrap();
        assert!(found.tried[0].changes[0].best);
        assert_eq!(found.settings, base);
        assert!(found.together.is_some_and(|(_, _, change)| !change.best));
        assert!(said[0].starts_with("idle default against itself: +0.0 %"), "{said:?}");
        assert_eq!(said[1], "idle spin: -10.0 % against default (noise 0.0 %), better");
        assert!(said[2].starts_with("all of it: +10.0 % against the start"), "{said:?}");
        assert!(said[3].contains("what stood at the start stays"), "{said:?}");
    }

    #[test]
    fn a_budget_ends_the_search_and_the_rest_is_named() {
        let (found, _) = found(&[("idle", "spin", 10.0), ("linger", "0", 50.0)], 0.1, 21);
        assert_eq!(found.settings.iter().collect::<Vec<_>>(), [("idle", "spin")]);
        assert_eq!(found.not_tried, ["batch", "linger"]);
        assert!(found.together.is_some(), "what was kept is compared all the same");
    }

    #[test]
    fn a_signal_ends_it_with_what_was_tried_to_its_end() {
        let space = [knob("idle", &["spin"]), knob("batch", &["64"]), knob("linger", &["0"])];
        // Nine runs a setting, and nine for both ends.
        for (runs_max, tried, kept) in [(3, 0, false), (9, 1, true), (13, 1, true), (28, 3, true)] {
            let mut runs = 0;
            let mut trial = |settings: &Settings, _: Turn| {
                runs += 1;
                let stopped = Failure::Interrupted(StopSignal::Interrupt, "stopped".to_owned());
                let spins = settings.get("idle").is_some();
                if runs > runs_max { Err(stopped) } else { Ok(if spins { 90.0 } else { 100.0 }) }
            };
            let mut search = Search {
                repeat: 3,
                trial: &mut trial,
                out_of_time: &|| false,
                say: &mut |_| {},
                keep: &mut |_| Ok(()),
            };
            let found = search.run(&Settings::default(), &space);
            let Ok(found) = found else {
                assert!(!kept, "{found:?}");
                continue;
            };
            assert_eq!(found.stopped, Some(StopSignal::Interrupt));
            assert_eq!((found.tried.len(), found.not_tried.len()), (tried, 3 - tried));
            assert_eq!((found.settings.get("idle"), found.together), (Some("spin"), None));
        }
    }

    #[test]
    fn failures_end_it() {
        let mut search = Search {
            repeat: 3,
            trial: &mut |_, _| Err(Failure::failed("no")),
            out_of_time: &|| false,
            say: &mut |_| {},
            keep: &mut |_| Ok(()),
        };
        let space = [knob("idle", &["spin"])];
        assert_eq!(search.run(&Settings::default(), &space), Err(Failure::failed("no")));
    }
}
