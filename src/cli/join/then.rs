//! `--then`: further streams, each with options of its own behind it.

use std::path::PathBuf;

use clap::{Arg, ArgAction, ArgMatches, Command, FromArgMatches, value_parser};

use crate::cli::choices::{Format, Match};
use crate::cli::join::args::AsofChoice;

/// What was typed of all further streams, in their order.
#[derive(Clone, Debug, Default)]
pub(in crate::cli) struct ThenArgs {
    pub(super) stages: Vec<ThenStage>,
}

/// What was typed of one further stream: `--then FILE` and what follows it, up to the next one.
#[derive(Clone, Debug, Default)]
pub(in crate::cli) struct ThenStage {
    pub(super) files: Vec<PathBuf>,
    pub(super) on: Vec<String>,
    pub(super) between: Option<String>,
    pub(super) time: Option<String>,
    pub(super) anchor: Option<String>,
    pub(super) kind: Option<ThenKind>,
    pub(super) choice: Option<Match>,
    pub(super) asof: Option<AsofChoice>,
    pub(super) tolerance: Option<String>,
    pub(super) strict: bool,
    pub(super) window: Option<String>,
    pub(super) format: Option<Format>,
    pub(super) columns: Vec<String>,
    pub(super) time_format: Option<String>,
    pub(super) out_of_orderness: Option<String>,
    pub(super) condition: Option<String>,
    pub(super) types: Vec<String>,
}

crate::cli::choices::choices! {
    /// Which rows come out of a further stage.
    ThenKind { Inner, Left, Right, Full }
}

/// The option that begins a stage.
const THEN: &str = "then";

/// In place of the name of a value: there is none.
const FLAG: &str = "";

/// An option of a stage: its name, what its value is called, its help, whether it may come again,
/// and where its value goes.
struct ThenOption {
    name: &'static str,
    value: &'static str,
    help: &'static str,
    repeats: bool,
    put: fn(&mut ThenStage, String) -> Result<(), String>,
}

const OPTIONS: [ThenOption; 17] = [
    ThenOption {
        name: "then-also",
        value: "PATH",
        help: "Another file of the stream that --then began, with a watermark of its own",
        repeats: true,
        put: |stage, text| {
            stage.files.push(PathBuf::from(text));
            Ok(())
        },
    },
    ThenOption {
        name: "then-on",
        value: "COL|LCOL=RCOL",
        help: "Its key: RCOL is a column of it, LCOL one of what was joined before, as the output \
               calls it (id_right), or of a stream that is named (right.id); repeat for a key of \
               several columns",
        repeats: true,
        put: |stage, text| {
            stage.on.push(text);
            Ok(())
        },
    },
    ThenOption {
        name: "then-between",
        value: "LO..HI",
        help: "Pairs with t + LO <= its time <= t + HI, t being the time of the stream that \
               --then-anchor names",
        repeats: false,
        put: |stage, text| set(&mut stage.between, text),
    },
    ThenOption {
        name: "then-time",
        value: "COL",
        help: "Column of its rows' time",
        repeats: false,
        put: |stage, text| set(&mut stage.time, text),
    },
    ThenOption {
        name: "then-anchor",
        value: "STREAM",
        help: "The stream whose time --then-between is relative to: left, right, then1 and so on, \
               or its file's name without the ending [default: the stream whose columns --then-on \
               names, if it is one]",
        repeats: false,
        put: |stage, text| set(&mut stage.anchor, text),
    },
    ThenOption {
        name: "then-type",
        value: "TYPE",
        help: "inner, or with rows without a match, padded: left, those that were joined before; \
               right, its own; full, both [default: inner]",
        repeats: false,
        put: |stage, text| set(&mut stage.kind, choice(&text)?),
    },
    ThenOption {
        name: "then-match",
        value: "CHOICE",
        help: "Which matches count, as --match says [default: all]",
        repeats: false,
        put: |stage, text| set(&mut stage.choice, choice(&text)?),
    },
    ThenOption {
        name: "then-asof",
        value: "DIRECTION",
        help: "In place of --then-between, as --asof: backward, forward or nearest",
        repeats: false,
        put: |stage, text| set(&mut stage.asof, choice(&text)?),
    },
    ThenOption {
        name: "then-tolerance",
        value: "DURATION",
        help: "How far --then-asof looks, as --tolerance",
        repeats: false,
        put: |stage, text| set(&mut stage.tolerance, text),
    },
    ThenOption {
        name: "then-strict",
        value: FLAG,
        help: "For --then-asof, as --strict",
        repeats: false,
        put: |stage, _| {
            stage.strict = true;
            Ok(())
        },
    },
    ThenOption {
        name: "then-window",
        value: "WINDOW",
        help: "In place of --then-between, as --window: by its time and that of the stream that \
               --then-anchor names",
        repeats: false,
        put: |stage, text| set(&mut stage.window, text),
    },
    ThenOption {
        name: "then-where",
        value: "EXPR",
        help: "A condition on what was joined before and its row, as --where; the columns of all \
               of them may be named",
        repeats: false,
        put: |stage, text| set(&mut stage.condition, text),
    },
    ThenOption {
        name: "then-format",
        value: "FORMAT",
        help: "Format of its files [default: by file ending, csv for standard input]",
        repeats: false,
        put: |stage, text| set(&mut stage.format, choice(&text)?),
    },
    ThenOption {
        name: "then-columns",
        value: "A,B,C",
        help: "Names of its columns, as --left-columns",
        repeats: false,
        put: |stage, text| set_list(&mut stage.columns, &text),
    },
    ThenOption {
        name: "then-types",
        value: "COL:TYPE,...",
        help: "Types of its columns in --then-where and --select, as --left-types",
        repeats: false,
        put: |stage, text| set_list(&mut stage.types, &text),
    },
    ThenOption {
        name: "then-time-format",
        value: "FORMAT",
        help: "As --time-format, for it only",
        repeats: false,
        put: |stage, text| set(&mut stage.time_format, text),
    },
    ThenOption {
        name: "then-out-of-orderness",
        value: "DURATION",
        help: "As --out-of-orderness, for it only",
        repeats: false,
        put: |stage, text| set(&mut stage.out_of_orderness, text),
    },
];

const TWICE: &str = "it is there twice for one --then; leave one of them out";

fn set<T>(place: &mut Option<T>, value: T) -> Result<(), String> {
    match place.replace(value) {
        None => Ok(()),
        Some(_) => Err(TWICE.to_owned()),
    }
}

fn set_list(place: &mut Vec<String>, text: &str) -> Result<(), String> {
    let list = text.split(',').map(str::to_owned).collect();
    if std::mem::replace(place, list).is_empty() { Ok(()) } else { Err(TWICE.to_owned()) }
}

fn choice<T: clap::ValueEnum>(text: &str) -> Result<T, String> {
    T::from_str(text, false).map_err(|_| {
        let names = T::value_variants().iter().filter_map(T::to_possible_value);
        let names: Vec<String> = names.map(|name| name.get_name().to_owned()).collect();
        format!("`{text}` is none of {}", names.join(", "))
    })
}

/// Whether an option of a stage has no value.
pub(in crate::cli) fn is_flag(name: &str) -> bool {
    OPTIONS.iter().any(|option| option.name == name && option.value == FLAG)
}

/// Whether a stage may have an option several times; `None` where there is no such option.
pub(in crate::cli) fn repeats(name: &str) -> Option<bool> {
    let own = OPTIONS.iter().find(|option| option.name == name);
    own.map(|option| option.repeats).or((name == THEN).then_some(false))
}

impl clap::Args for ThenArgs {
    fn augment_args(command: Command) -> Command {
        let heading = "More than two streams";
        let arg = |name: &'static str, value: &'static str, help: &'static str| {
            let arg = Arg::new(name).long(name).value_name(value).help(help);
            let arg = arg.action(ArgAction::Append).value_parser(value_parser!(String));
            let arg = arg.help_heading(heading);
            match value {
                FLAG => arg.num_args(0).default_missing_value("true"),
                value => arg.allow_hyphen_values(value != "PATH"),
            }
        };
        let then = arg(
            THEN,
            "PATH",
            "A file of a further stream, which is joined with what was joined before; repeat for \
             more. The --then-... options behind it, up to the next --then, are its own",
        );
        let others = OPTIONS.iter().map(|option| arg(option.name, option.value, option.help));
        command.arg(then).args(others)
    }

    fn augment_args_for_update(command: Command) -> Command {
        ThenArgs::augment_args(command)
    }
}

impl FromArgMatches for ThenArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<ThenArgs, clap::Error> {
        let mut typed: Vec<(usize, &'static str, String)> = Vec::new();
        for name in OPTIONS.iter().map(|option| option.name).chain([THEN]) {
            let values = matches.get_many::<String>(name).into_iter().flatten();
            let indices = matches.indices_of(name).into_iter().flatten();
            typed.extend(indices.zip(values).map(|(index, text)| (index, name, text.clone())));
        }
        typed.sort();
        let mut stages: Vec<ThenStage> = Vec::new();
        for (_, name, text) in typed {
            let wrong = |why: String| {
                let message = format!("--{name}: {why}\n");
                clap::Error::raw(clap::error::ErrorKind::ValueValidation, message)
            };
            if name == THEN {
                stages.push(ThenStage { files: vec![PathBuf::from(text)], ..Default::default() });
                continue;
            }
            let stage = stages.last_mut().ok_or_else(|| {
                wrong("it stands before any --then; write it behind the --then it is of".to_owned())
            })?;
            let option = OPTIONS.iter().find(|option| option.name == name);
            option.map_or(Ok(()), |option| (option.put)(stage, text)).map_err(wrong)?;
        }
        Ok(ThenArgs { stages })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = ThenArgs::from_arg_matches(matches)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<ThenArgs, String> {
        let command = <ThenArgs as clap::Args>::augment_args(Command::new("join"));
        let matches = command.try_get_matches_from(line.split(' ')).map_err(|e| e.to_string())?;
        ThenArgs::from_arg_matches(&matches).map_err(|error| error.to_string())
    }

    #[test]
    fn options_are_of_the_then_before_them() {
        let line = "join --then a.csv --then-on k --then-time t --then-on l=m --then b.csv \
                    --then-between -5m..0 --then-anchor then1 --then-also c.csv --then-time u";
        let ThenArgs { stages } = parse(line).unwrap();
        assert_eq!(stages.len(), 2);
        assert_eq!(
            (&stages[0].on[..], stages[0].time.as_deref()),
            (&["k", "l=m"].map(str::to_owned)[..], Some("t"))
        );
        assert_eq!(stages[1].files, [PathBuf::from("b.csv"), PathBuf::from("c.csv")]);
        assert_eq!(stages[1].between.as_deref(), Some("-5m..0"));
        assert_eq!(
            (stages[0].anchor.as_deref(), stages[1].anchor.as_deref()),
            (None, Some("then1"))
        );
        assert!(parse("join").unwrap().stages.is_empty());
    }

    #[test]
    fn what_is_out_of_place_is_named() {
        for (line, word) in [
            ("join --then-on k --then a.csv", "--then-on: it stands before any --then"),
            ("join --then a.csv --then-time t --then-time u", "--then-time: it is there twice"),
            ("join --then a.csv --then-type semi", "`semi` is none of inner, left, right, full"),
            ("join --then a.csv --then-match best", "none of all, first"),
        ] {
            let error = parse(line).unwrap_err();
            assert!(error.contains(word), "{line}: {error}");
        }
    }
}
