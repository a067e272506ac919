//! `--profile`: settings of the machine from a file or from those that come along. A profile only
//! changes the defaults of options, so options on the command line win by themselves.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Command, ValueEnum};

use crate::cli::choices::{Idle, Runtime, SimdChoice};
use crate::cli::join::parse_size;
use crate::cli::{Failure, layout};
use crate::limits::{BATCH_EVENTS_MAX, LANE_BATCHES_MAX};
use crate::runtime::CoreChoice;
use crate::time::text::TimeSpan;

/// The option's name, and its id.
const OPTION: &str = "profile";

/// The commands that take one.
const COMMANDS: [&str; 3] = ["join", "bench", "load"];

/// The profiles that come along, under their names.
const NAMED: [(&str, &str); 3] = [
    ("latency", include_str!("../../tuning/latency.toml")),
    ("throughput", include_str!("../../tuning/throughput.toml")),
    ("shared-vm", include_str!("../../tuning/shared-vm.toml")),
];

/// Says what is wrong with a value.
type Check = fn(&str) -> Result<(), String>;

/// What a profile may set: options by their names, and what tells good values from bad ones.
const SETTINGS: [(&str, Check); 11] = [
    ("cores", |text| text.parse::<CoreChoice>().map(drop).map_err(|error| error.to_string())),
    ("runtime", choice::<Runtime>),
    ("idle", choice::<Idle>),
    ("simd", choice::<SimdChoice>),
    ("batch", |text| count(text, BATCH_EVENTS_MAX)),
    ("linger", |text| {
        let span = text.parse::<TimeSpan>().and_then(TimeSpan::to_wall);
        span.map(drop).map_err(|error| error.to_string())
    }),
    ("lane-batches", |text| count(text, LANE_BATCHES_MAX)),
    ("bucket-width", |text| layout::bucket_width(text).map(drop)),
    ("chunk", |text| layout::chunk(text).map(drop)),
    ("reserve", |text| layout::reserve(text).map(drop)),
    ("max-state", |text| parse_size(text).map(drop)),
];

fn choice<T: ValueEnum>(text: &str) -> Result<(), String> {
    T::from_str(text, false).map(drop).map_err(|_| {
        let names = T::value_variants().iter().filter_map(T::to_possible_value);
        let names: Vec<String> = names.map(|name| name.get_name().to_owned()).collect();
        format!("`{text}` is none of {}", names.join(", "))
    })
}

fn count(text: &str, most: usize) -> Result<(), String> {
    let number: Option<usize> = text.parse().ok();
    let good = number.is_some_and(|number| (1..=most).contains(&number));
    if good { Ok(()) } else { Err(format!("`{text}` is no number from 1 to {most}")) }
}

/// The names of what a profile may set, in the order of the documents.
pub(super) fn setting_names() -> impl Iterator<Item = &'static str> {
    SETTINGS.iter().map(|(name, _)| *name)
}

/// One line of a profile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Setting {
    /// The option's name, without dashes.
    pub(super) name: &'static str,
    pub(super) value: String,
    /// From 1.
    pub(super) line: usize,
}

/// Settings, each checked, and where they are from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Profile {
    /// As messages call it.
    pub(super) from: String,
    pub(super) settings: Vec<Setting>,
}

impl Profile {
    /// The profile of that name, or in that file: what has a `/` or a `.` in it is a file.
    ///
    /// # Errors
    /// [`Failure`] says which line is wrong, or why there is none to read.
    pub(super) fn load(name: &str) -> Result<Profile, Failure> {
        if !is_file(name) {
            let named = NAMED.iter().find(|(known, _)| *known == name);
            let Some((known, text)) = named else {
                let known: Vec<&str> = NAMED.iter().map(|(known, _)| *known).collect();
                return Err(Failure::usage(format!(
                    "--profile {name}: there is none of that name; there are {}; a file is given \
                     with a folder or an ending, such as ./{name}",
                    known.join(", ")
                )));
            };
            return Profile::parse(&format!("tuning/{known}.toml"), text);
        }
        let text = read_settings(Path::new(name)).map_err(|error| {
            Failure::failed(format!(
                "--profile {name}: cannot read: {error}; make one with intervale tune ... \
                     --output {name}, write lines such as idle = \"spin\", or take one that comes \
                     along: {}",
                NAMED.map(|(known, _)| known).join(", ")
            ))
        })?;
        Profile::parse(name, &text)
    }

    fn parse(from: &str, text: &str) -> Result<Profile, Failure> {
        let mut settings: Vec<Setting> = Vec::new();
        for (index, line) in text.lines().enumerate() {
            let at = |why: String| {
                Failure::usage(format!("--profile: {from}, line {}: {why}", index + 1))
            };
            let Some((key, value)) = key_value(line).map_err(at)? else { continue };
            let Some((name, check)) = SETTINGS.iter().find(|(name, _)| *name == key) else {
                let known: Vec<&str> = setting_names().collect();
                return Err(at(format!(
                    "there is no setting `{key}`; there are {}",
                    known.join(", ")
                )));
            };
            if let Some(first) = settings.iter().find(|setting| setting.name == *name) {
                return Err(at(format!("{name} is set in line {} already", first.line)));
            }
            check(&value).map_err(|why| at(format!("{name}: {why}")))?;
            settings.push(Setting { name, value, line: index + 1 });
        }
        Ok(Profile { from: from.to_owned(), settings })
    }

    /// The command line with the profile's settings as defaults, wherever a command has them.
    pub(super) fn apply(&self, mut root: Command) -> Command {
        for command in COMMANDS {
            if root.find_subcommand(command).is_none() {
                continue;
            }
            root = root.mut_subcommand(command, |mut command| {
                for setting in &self.settings {
                    let id = id(setting.name);
                    // A bound on state makes another join, so a bench has none unprompted.
                    let is_apart = (command.get_name(), setting.name) == ("bench", "max-state");
                    if !is_apart && command.get_arguments().any(|arg| arg.get_id() == id.as_str()) {
                        // A handful of short texts, once a process: clap wants them for good.
                        let value = match (command.get_name(), setting.name) {
                            ("bench", "cores") => unswept(&setting.value),
                            _ => setting.value.clone(),
                        };
                        let value: &'static str = value.leak();
                        command = command.mut_arg(id, |arg| arg.default_value(value));
                    }
                }
                command
            });
        }
        root
    }

    /// Says where a value that made a command fail is from, if it is from the profile.
    pub(super) fn explain(&self, failure: Failure, matches: &ArgMatches) -> Failure {
        let Failure::Usage(mut message) = failure else { return failure };
        let Some((_, matches)) = matches.subcommand() else { return Failure::Usage(message) };
        for setting in &self.settings {
            let source = matches
                .try_contains_id(&id(setting.name))
                .ok()
                .and_then(|_| matches.value_source(&id(setting.name)));
            let named = message.starts_with(&format!("--{}", setting.name));
            if named && source == Some(ValueSource::DefaultValue) {
                message.push_str(&format!(
                    "; {}, line {}, says {} = {}",
                    self.from, setting.line, setting.name, setting.value
                ));
                break;
            }
        }
        Failure::Usage(message)
    }
}

/// A list of CPUs as `bench` knows it for one: with a range in it. Counts stay as they are.
pub(super) fn unswept(cores: &str) -> String {
    match cores.split_once(',') {
        Some((first, rest)) if !cores.contains('-') => format!("{first}-{first},{rest}"),
        _ => cores.to_owned(),
    }
}

/// clap's id of an option.
fn id(name: &str) -> String {
    name.replace('-', "_")
}

/// The command line with the option added to the commands that have it.
pub(super) fn with_option(mut root: Command) -> Command {
    for command in COMMANDS {
        if root.find_subcommand(command).is_some() {
            root = root.mut_subcommand(command, |command| {
                let heading = (command.get_name() == "join").then_some("Machine");
                command.arg(option().help_heading(heading))
            });
        }
    }
    root
}

fn option() -> Arg {
    Arg::new(OPTION).long(OPTION).value_name("NAME|FILE").help(
        "Other defaults of the machine's options: latency, throughput, shared-vm, or a file, such \
         as `intervale tune` writes (with a / or a . in its name); options given beside it win",
    )
}

/// The value of the option, if it was given.
pub(super) fn given(matches: &ArgMatches) -> Option<&str> {
    let (_, matches) = matches.subcommand()?;
    matches.try_get_one::<String>(OPTION).ok().flatten().map(String::as_str)
}

/// The file of the option, if it is one, as messages call it.
pub(super) fn file(matches: &ArgMatches) -> Option<(String, PathBuf)> {
    let name = given(matches).filter(|name| is_file(name))?;
    Some((format!("--{OPTION}"), PathBuf::from(name)))
}

fn is_file(name: &str) -> bool {
    name.contains(['/', '.', std::path::MAIN_SEPARATOR])
}

/// What a line sets, if anything. Profiles are TOML, of which they need comments and top-level
/// `key = "text"` and `key = number`; anything else is refused, not guessed at.
fn key_value(line: &str) -> Result<Option<(&str, String)>, String> {
    let line = line.trim();
    if line.is_empty() || line.starts_with('#') {
        return Ok(None);
    }
    if line.starts_with('[') {
        return Err("a profile has no tables, only lines like idle = \"spin\"".to_owned());
    }
    let (key, value) = line
        .split_once('=')
        .ok_or_else(|| "this is no setting; write it like idle = \"spin\"".to_owned())?;
    let (key, value) = (key.trim(), value.trim());
    let (value, rest) = match value.chars().next() {
        Some(quote @ ('"' | '\'')) => value[1..]
            .split_once(quote)
            .ok_or_else(|| format!("the text after {key} = has no end: a {quote} is missing"))?,
        _ => value.split_at(value.find(['#', ' ', '\t']).unwrap_or(value.len())),
    };
    let is_quoted = line[line.find('=').map_or(0, |at| at + 1)..].trim().starts_with(['"', '\'']);
    if !(rest.trim().is_empty() || rest.trim().starts_with('#')) {
        return Err(format!("`{}` follows the value of {key}; put it after a #", rest.trim()));
    }
    if is_quoted {
        return match value.contains('\\') {
            true => Err(format!("the value of {key} has a \\; no setting needs one")),
            false => Ok(Some((key, value.to_owned()))),
        };
    }
    let digits = value.replace('_', "");
    if digits.starts_with('-') && digits[1..].parse::<f64>().is_ok() {
        return Err(format!("{key} = {value} is negative, and no setting is; give 0 or more"));
    }
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(format!("the value of {key} is no number; put text in quotes: \"{value}\""));
    }
    Ok(Some((key, digits)))
}

/// The text of a file of settings, which is never long: a device that has no end is none.
///
/// # Errors
/// What the system says; or that it is too long, or no text.
pub(super) fn read_settings(path: &Path) -> io::Result<String> {
    const BYTES_MAX: u64 = 1 << 20;
    let mut text = String::new();
    File::open(path)?.take(BYTES_MAX + 1).read_to_string(&mut text)?;
    if text.len() as u64 > BYTES_MAX {
        return Err(io::Error::other("it is longer than 1 MiB; settings are a few lines"));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(text: &str) -> Vec<(&'static str, String)> {
        let profile = Profile::parse("p.toml", text).unwrap();
        profile.settings.into_iter().map(|setting| (setting.name, setting.value)).collect()
    }

    #[test]
    fn the_profiles_that_come_along_are_sound() {
        for (name, _) in NAMED {
            let profile = Profile::load(name).unwrap();
            assert!(!profile.settings.is_empty(), "{name}");
        }
    }

    #[test]
    fn lines_are_read_as_toml_has_them() {
        let text = "# a profile\r\n\nidle = \"spin\" # why\nbatch=1_28\n linger = '250us'\n\
                    cores = \"0,2-3\"\nmax-state = \"1GiB\"#x\n";
        let expected = [
            ("idle", "spin"),
            ("batch", "128"),
            ("linger", "250us"),
            ("cores", "0,2-3"),
            ("max-state", "1GiB"),
        ];
        assert_eq!(settings(text), expected.map(|(name, value)| (name, value.to_owned())));
    }

    #[test]
    fn lists_of_cpus_are_no_counts_to_sweep() {
        for (cores, expected) in
            [("0,2", "0-0,2"), ("0-1", "0-1"), ("0,2-3", "0,2-3"), ("4", "4"), ("all", "all")]
        {
            assert_eq!(unswept(cores), expected);
            assert_eq!(unswept(cores).parse::<CoreChoice>(), cores.parse::<CoreChoice>());
        }
    }

    #[test]
    fn what_is_wrong_is_named_with_its_line() {
        for (text, word) in [
            ("idle = \"spin\"\nidel = \"spin\"", "line 2: there is no setting `idel`"),
            ("idle = \"spin\"\nidle = \"park\"", "line 2: idle is set in line 1"),
            ("\n\nidle = \"snore\"", "line 3: idle: `snore` is none of spin, yield, park, auto"),
            ("batch = 0", "`0` is no number from 1 to 256"),
            ("batch = 1e9", "in quotes"),
            ("lane-batches = 1_000_000", "16384"),
            ("linger = \"-1s\"", "negative"),
            ("linger = \"soon\"", "no duration"),
            ("cores = 0", "names no cores"),
            ("simd = \"mmx\"", "none of auto, scalar"),
            ("runtime = \"tokio\"", "glommio"),
            ("max-state = \"lots\"", "line 1: max-state"),
            ("bucket-width = \"0s\"", "bucket-width: give more than 0"),
            ("chunk = 512", "chunk: give a size from 1KiB to 32MiB"),
            ("[join]", "no tables"),
            ("idle spin", "no setting"),
            ("idle = spin", "put text in quotes"),
            ("idle = \"spin", "no end"),
            ("idle = \"spin\" park", "`park` follows"),
            ("idle = \"sp\\u0069n\"", "has a \\"),
            ("idle =", "no number"),
            ("= 3", "no setting ``"),
        ] {
            let error = Profile::parse("p.toml", text).unwrap_err();
            let message = error.message().unwrap();
            assert!(message.contains(word), "{text:?}: {message}");
            assert!(message.contains("p.toml, line "), "{message}");
            assert_eq!(error.exit_code(), 2);
        }
    }

    #[test]
    fn every_setting_is_an_option_of_join_and_of_load_or_bench() {
        let root = crate::cli::command();
        let has = |command: &str, name: &str| {
            let command = root.find_subcommand(command).unwrap();
            command.get_arguments().any(|arg| arg.get_long() == Some(name))
        };
        for name in setting_names() {
            assert!(has("join", name), "{name}");
            assert!(has("load", name) || name == "max-state", "{name}");
        }
        for command in COMMANDS {
            assert!(has(command, OPTION), "{command}");
        }
    }
}
