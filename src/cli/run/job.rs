//! A job file: the options of a join, with the lines that they stand in.
//!
//! TOML is read by the `toml` crate: lists over several lines, escapes and tables are more than the
//! settings of a profile need, and are best read by what others read them by, too.

use std::ffi::OsString;
use std::ops::Range;
use std::path::Path;

use clap::ArgAction;
use toml::de::{DeTable, DeValue};

use crate::cli::profile::read_settings;
use crate::cli::{Failure, command, join};
use crate::source::schema::closest;

/// A job as it was read.
#[derive(Debug)]
pub(super) struct Job {
    /// Its path, as it was given.
    path: String,
    settings: Vec<Setting>,
    /// Names of the options that were typed behind it.
    typed: Vec<String>,
}

/// One option.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Setting {
    /// Its name, without dashes.
    name: String,
    /// What the command line would have: `--name=value`, once for each value.
    arguments: Vec<String>,
    /// From 1.
    line: usize,
    /// The stage of a `[[then]]`, from 1; 0 of all others.
    stage: usize,
}

impl Job {
    /// Reads a job.
    ///
    /// # Errors
    /// [`Failure`] says which line is wrong, or why there is none to read.
    pub(super) fn load(path: &Path) -> Result<Job, Failure> {
        let name = path.display().to_string();
        let text = read_settings(path)
            .map_err(|error| Failure::failed(format!("{name}: cannot read it: {error}")))?;
        Job::parse(&name, &text)
    }

    fn parse(path: &str, text: &str) -> Result<Job, Failure> {
        let file = File { path, text };
        let table = DeTable::parse(text).map_err(|error| {
            let why = error.message().lines().collect::<Vec<_>>().join("; ");
            file.wrong(error.span().unwrap_or_default(), &why)
        })?;
        let mut settings = Vec::new();
        for (key, value) in table.get_ref() {
            let (name, line) = (key.get_ref(), file.line(key.span()));
            if name == "then" {
                file.read_stages(value, &mut settings)?;
                continue;
            }
            let arguments = file.arguments(name, value)?;
            settings.push(Setting { name: name.to_string(), arguments, line, stage: 0 });
        }
        Ok(Job { path: path.to_owned(), settings, typed: Vec::new() })
    }

    /// The same job with options behind it, whose names errors may mean.
    pub(super) fn beside(mut self, options: &[OsString]) -> Job {
        let names = options.iter().filter_map(|option| option.to_str()?.strip_prefix("--"));
        let names = names.map(|option| option.split_once('=').map_or(option, |(name, _)| name));
        self.typed = names.map(str::to_owned).collect();
        self
    }

    /// The job as a command line; `options` take the place of settings of the same name.
    pub(super) fn command_line(&self, options: &[OsString]) -> Vec<OsString> {
        let arguments = self.in_force().flat_map(|setting| &setting.arguments).map(OsString::from);
        let start = ["intervale", "join"].map(OsString::from);
        start.into_iter().chain(arguments).chain(options.iter().cloned()).collect()
    }

    /// Says where a value that made the join fail stands, if it is one of the job's.
    pub(super) fn explain(&self, failure: Failure) -> Failure {
        let Failure::Usage(message) = failure else { return failure };
        Failure::Usage(format!("{}{message}", self.place_of(&message)))
    }

    /// What clap has to say, in the words of a job.
    pub(super) fn explain_use(&self, error: &clap::Error) -> Failure {
        let text = error.to_string();
        let text = text.strip_prefix("error: ").unwrap_or(&text);
        let text = text.split("\n\nUsage:").next().unwrap_or(text);
        let lines: Vec<&str> =
            text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
        let message = lines.join("; ").replace(":;", ":");
        Failure::Usage(format!("{}{message}", self.place_of(&message)))
    }

    /// The settings whose place no typed option takes.
    fn in_force(&self) -> impl Iterator<Item = &Setting> {
        self.settings.iter().filter(|set| set.stage > 0 || !self.typed.contains(&set.name))
    }

    /// The job and the lines of the first option that a message names; nothing when it is one that
    /// was typed.
    fn place_of(&self, message: &str) -> String {
        let place_of_name = |name: &str| {
            let option = format!("--{name}");
            let at = message.find(&option)?;
            // Not a longer name that begins alike.
            let rest = &message[at + option.len()..];
            (!rest.starts_with(|c: char| c == '-' || c.is_alphanumeric())).then_some(at)
        };
        let first = |names: &mut dyn Iterator<Item = &'_ String>| {
            let named = names.filter_map(|name| Some((place_of_name(name)?, name.clone())));
            named.min_by_key(|(at, _)| *at)
        };
        let of_job = first(&mut self.in_force().map(|setting| &setting.name));
        let typed = first(&mut self.typed.iter());
        let (at, name) = match (of_job, &typed) {
            (None, None) => return format!("{}: ", self.path),
            (None, Some(_)) => return String::new(),
            (Some((at, _)), Some((typed_at, _))) if *typed_at < at => return String::new(),
            (Some(found), _) => found,
        };
        let same = self.in_force().filter(|setting| setting.name == name);
        let mut lines: Vec<String> = same.map(|setting| setting.line.to_string()).collect();
        let s = if lines.len() == 1 { "" } else { "s" };
        if typed.is_some_and(|(typed_at, _)| typed_at == at) {
            lines.push("as typed".to_owned());
        }
        format!("{}, line{s} {}: ", self.path, lines.join(" or "))
    }
}

/// The text of a job.
struct File<'a> {
    path: &'a str,
    text: &'a str,
}

impl File<'_> {
    fn line(&self, span: Range<usize>) -> usize {
        let before = &self.text.as_bytes()[..span.start.min(self.text.len())];
        before.iter().filter(|&&byte| byte == b'\n').count() + 1
    }

    fn wrong(&self, span: Range<usize>, why: &str) -> Failure {
        Failure::usage(format!("{}, line {}: {why}", self.path, self.line(span)))
    }

    /// What an option of the command line would be given.
    fn arguments(
        &self,
        name: &str,
        value: &toml::Spanned<DeValue<'_>>,
    ) -> Result<Vec<String>, Failure> {
        let join = command();
        let join = join.find_subcommand("join");
        let known = join.into_iter().flat_map(clap::Command::get_arguments);
        let known = known.filter(|arg| !arg.get_id().as_str().starts_with("then"));
        let (mut found, mut names) = (None, Vec::new());
        for arg in known {
            let Some(long) = arg.get_long() else { continue };
            names.push(long.to_owned());
            if long == name {
                found = Some(arg);
            }
        }
        let Some(arg) = found else {
            let meant = closest(name, &names);
            let meant = meant.map_or(String::new(), |name| format!(" (did you mean `{name}`?)"));
            return Err(self.wrong(
                value.span(),
                &format!("`{name}` is no option of `intervale join`{meant}"),
            ));
        };
        match arg.get_action() {
            ArgAction::SetTrue => match value.get_ref() {
                DeValue::Boolean(true) => Ok(vec![format!("--{name}")]),
                DeValue::Boolean(false) => Ok(Vec::new()),
                _ => Err(self.wrong(value.span(), &format!("{name} is true or false"))),
            },
            action => {
                let is_list = matches!(action, ArgAction::Append);
                let texts = self.texts(name, value, is_list)?;
                Ok(texts.into_iter().map(|text| format!("--{name}={text}")).collect())
            }
        }
    }

    /// The values of an option, as text.
    fn texts(
        &self,
        name: &str,
        value: &toml::Spanned<DeValue<'_>>,
        is_list: bool,
    ) -> Result<Vec<String>, Failure> {
        let text = match value.get_ref() {
            DeValue::String(text) => text.to_string(),
            DeValue::Integer(number) if number.radix() == 10 => number.as_str().to_owned(),
            DeValue::Array(values) if is_list => {
                let texts = values.iter().map(|value| self.texts(name, value, false));
                return Ok(texts.collect::<Result<Vec<_>, _>>()?.concat());
            }
            DeValue::Array(_) => {
                return Err(self.wrong(value.span(), &format!("{name} has one value, no list")));
            }
            other => {
                let what = other.type_str();
                let why = format!("the value of {name} is a {what}; put it in quotes, as text");
                return Err(self.wrong(value.span(), &why));
            }
        };
        Ok(vec![text])
    }

    /// The tables of further streams.
    fn read_stages(
        &self,
        value: &toml::Spanned<DeValue<'_>>,
        settings: &mut Vec<Setting>,
    ) -> Result<(), Failure> {
        let no_table = "further streams are tables: write [[then]] above the options of each";
        let DeValue::Array(stages) = value.get_ref() else {
            return Err(self.wrong(value.span(), no_table));
        };
        for (stage, table) in (1..).zip(stages.iter()) {
            let DeValue::Table(options) = table.get_ref() else {
                return Err(self.wrong(table.span(), no_table));
            };
            let mut own = Vec::new();
            for (key, value) in options {
                let line = self.line(key.span());
                let (name, arguments) = self.stage_arguments(key.get_ref(), value)?;
                own.push(Setting { name, arguments, line, stage });
            }
            // It begins the stage.
            let Some(file) = own.iter().position(|setting| setting.name == "then") else {
                let why = "this [[then]] has no file; give one, as in file = \"parcels.csv\"";
                return Err(self.wrong(table.span(), why));
            };
            own.swap(0, file);
            settings.extend(own);
        }
        Ok(())
    }

    /// The option of a stage that a key means, and what the command line would have of it.
    fn stage_arguments(
        &self,
        key: &str,
        value: &toml::Spanned<DeValue<'_>>,
    ) -> Result<(String, Vec<String>), Failure> {
        let name = match key {
            "file" => "then".to_owned(),
            key if key.starts_with("then") => key.to_owned(),
            key => format!("then-{key}"),
        };
        let is_columns = matches!(&name[..], "then-columns" | "then-types");
        let is_list = name == "then" || is_columns || join::then_repeats(&name) == Some(true);
        if join::then_repeats(&name).is_none() {
            let why = format!("`{key}` is no option of a further stream: there is no --{name}");
            return Err(self.wrong(value.span(), &why));
        }
        if join::then_is_flag(&name) {
            return match value.get_ref() {
                DeValue::Boolean(true) => Ok((name.clone(), vec![format!("--{name}")])),
                DeValue::Boolean(false) => Ok((name, Vec::new())),
                _ => Err(self.wrong(value.span(), &format!("{key} is true or false"))),
            };
        }
        let texts = self.texts(key, value, is_list)?;
        let arguments = match &texts[..] {
            [] => return Err(self.wrong(value.span(), &format!("{key} is an empty list"))),
            _ if is_columns => vec![format!("--{name}={}", texts.join(","))],
            [first, more @ ..] if name == "then" => {
                let more = more.iter().map(|text| format!("--then-also={text}"));
                std::iter::once(format!("--then={first}")).chain(more).collect()
            }
            _ => texts.iter().map(|text| format!("--{name}={text}")).collect(),
        };
        Ok((name, arguments))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command_line(text: &str, options: &[&str]) -> String {
        let options: Vec<OsString> = options.iter().map(OsString::from).collect();
        let line = Job::parse("j.toml", text).unwrap().beside(&options).command_line(&options);
        line.join(std::ffi::OsStr::new(" ")).into_string().unwrap()
    }

    #[test]
    fn a_job_is_a_command_line() {
        let text = "left = 'l.csv' # why\nright = [\n  \"a.csv\",\n  \"b.csv\",\n]\n\
                    deterministic = true\nappend = false\ncores = 2\nbetween = \"-5m..5m\"\n\
                    [[then]]\non = \"a=b\"\nfile = [\"c.csv\", \"d.csv\"]\ncolumns = [\"x\", \
                    \"y\"]\n\
                    [[then]]\nthen-time = \"t\"\nfile = \"e.csv\"\n";
        let then = "--then=c.csv --then-also=d.csv --then-on=a=b --then-columns=x,y --then=e.csv \
                    --then-time=t";
        let line = command_line(text, &[]);
        let mut sorted: Vec<&str> = line.split(' ').collect();
        let stages = sorted.split_off(sorted.iter().position(|a| a.starts_with("--then")).unwrap());
        let mut own: Vec<&str> = then.split(' ').collect();
        let mut stages_sorted = stages.clone();
        own.sort_unstable();
        stages_sorted.sort_unstable();
        assert_eq!(stages_sorted, own);
        assert_eq!((stages[0], stages[1]), ("--then=c.csv", "--then-also=d.csv"));
        sorted[2..].sort_unstable();
        let expected = "intervale join --between=-5m..5m --cores=2 --deterministic --left=l.csv \
                        --right=a.csv --right=b.csv";
        assert_eq!(sorted.join(" "), expected);
        let line = command_line(text, &["--cores=1", "--left", "x.csv"]);
        assert!(!line.contains("--cores=2") && !line.contains("l.csv"), "{line}");
        assert!(line.ends_with("--cores=1 --left x.csv"), "{line}");
    }

    #[test]
    fn what_is_wrong_is_named_with_its_line() {
        for (text, place, word) in [
            ("left = 'l'\nlefd = 'x'", "line 2", "did you mean `left`?"),
            ("left = \"l", "line 1", ""),
            ("left = 'l'\nleft = 'm'", "line 2", "duplicate"),
            ("\nbetween = ['a', 'b']", "line 2", "no list"),
            ("between = 1.5", "line 1", "in quotes"),
            ("deterministic = 'yes'", "line 1", "true or false"),
            ("then = 'c.csv'", "line 1", "[[then]]"),
            ("[[then]]\ntime = 't'", "line 1", "no file"),
            ("[[then]]\nfile = 'c'\nspeed = 'x'", "line 3", "no --then-speed"),
            ("then-time = 't'", "line 1", "no option"),
            ("[join]\nleft = 'l'", "line 1", "no option"),
        ] {
            let error = Job::parse("j.toml", text).unwrap_err();
            let message = error.message().unwrap();
            assert!(message.starts_with(&format!("j.toml, {place}: ")), "{text:?}: {message}");
            assert!(message.contains(word), "{text:?}: {message}");
            assert_eq!(error.exit_code(), 2);
        }
    }

    #[test]
    fn what_fails_later_is_found_by_the_option_that_is_named() {
        let text = "left-time = 't'\nleft = 'l'\n[[then]]\nfile='c'\ntime='u'\n[[then]]\n\
                    file='d'\ntime='v'";
        let job = Job::parse("j.toml", text).unwrap();
        let explain =
            |message: &str| job.explain(Failure::usage(message)).message().unwrap().to_owned();
        assert_eq!(explain("--left-time: no"), "j.toml, line 1: --left-time: no");
        assert_eq!(explain("--left: no"), "j.toml, line 2: --left: no");
        assert_eq!(explain("--then-time: no"), "j.toml, lines 5 or 8: --then-time: no");
        assert_eq!(explain("something else"), "j.toml: something else");
        // What was typed is none of the job's lines.
        let typed = ["--left", "x.csv", "--then=y.csv", "--then-time", "w", "--cores=x"];
        let job = job.beside(&typed.map(OsString::from));
        let explain =
            |message: &str| job.explain(Failure::usage(message)).message().unwrap().to_owned();
        assert_eq!(explain("--left: no"), "--left: no");
        assert_eq!(explain("--cores: no"), "--cores: no");
        assert_eq!(explain("--left-time: no"), "j.toml, line 1: --left-time: no");
        assert_eq!(explain("--cores: no, see --left-time"), "--cores: no, see --left-time");
        let both = "j.toml, lines 5 or 8 or as typed: --then-time: no";
        assert_eq!(explain("--then-time: no"), both);
    }
}
