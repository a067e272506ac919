//! Further streams of a join: what their options resolve to, before and after their headers are
//! known.

use std::borrow::Cow;
use std::path::Path;

use crate::cli::Failure;
use crate::cli::join::args::Args;
use crate::cli::join::matching::{self, Matching};
use crate::cli::join::open::Inputs;
use crate::cli::join::plan::{MachinePlan, Plan, SidePlan, Typed, key_columns};
use crate::cli::join::then::{ThenKind, ThenStage};
use crate::engine::{JoinedRow, Stream};
use crate::event::{Key, KeyKind};
use crate::join::{JoinKind, JoinSpec, JoinSpecBuilder, MatchChoice};
use crate::limits::Limits;
use crate::sink::Columns;
use crate::source::fields::{delimited, json_text, json_values};
use crate::source::schema::closest;
use crate::source::{RowFormat, key, split_position};
use crate::time::Lateness;
use crate::time::text::TimeUnit;
use crate::workload::LayoutHints;

/// A further stream, and how it is joined with what comes before it.
#[derive(Clone, Debug)]
pub(super) struct ThenPlan {
    pub(super) side: SidePlan,
    /// Columns of what was joined before, in the order of `side.key_columns`.
    left_key: Vec<String>,
    anchor: Option<String>,
    matching: Matching,
    kind: JoinKind,
}

/// Makes sense of the options of all further streams.
///
/// # Errors
/// [`Failure::Usage`] names the option, what is wrong and what to give instead.
pub(super) fn resolve(args: &Args) -> Result<Vec<ThenPlan>, Failure> {
    let stages = &args.then.stages;
    if !stages.is_empty() {
        let kind = JoinKind::from(args.matching.kind);
        if matches!(kind, JoinKind::Semi | JoinKind::Anti) {
            return Err(Failure::usage(
                "--then goes with --type inner, left, right and full: what semi and anti joins \
                 give out has no right columns to go on with",
            ));
        }
    }
    stages.iter().zip(1..).map(|(stage, number)| then_plan(args, stage, number)).collect()
}

fn then_plan(args: &Args, stage: &ThenStage, number: usize) -> Result<ThenPlan, Failure> {
    let file = stage.files.first().map_or("", |path| path.to_str().unwrap_or_default());
    let missing = |what: &str| Failure::usage(format!("--then {file}: give {what} behind it"));
    let forms =
        [stage.between.is_some(), stage.asof.is_some(), stage.window.is_some()].map(usize::from);
    match forms.iter().sum() {
        0 => return Err(missing("--then-between LO..HI, --then-asof or --then-window")),
        1 => {}
        _ => return Err(missing("one of --then-between, --then-asof and --then-window")),
    }
    if stage.choice.is_some() && stage.between.is_none() {
        return Err(missing("--then-match only with --then-between; leave it out"));
    }
    let time = stage.time.as_ref().ok_or_else(|| missing("--then-time COL"))?;
    if stage.on.is_empty() {
        return Err(missing("--then-on COL or LCOL=RCOL"));
    }
    let (left_key, right_key) = key_columns("--then-on", &stage.on)?;
    // A column that both have may be that of a stream that is named.
    let own = |column: String, left: &str| match column.split_once('.') {
        Some((_, name)) if column == left && is_stream_name(left) => name.to_owned(),
        _ => column,
    };
    let right_key = right_key.into_iter().zip(&left_key).map(|(right, left)| own(right, left));
    let kind = match stage.kind {
        Some(ThenKind::Left) => JoinKind::Left,
        Some(ThenKind::Right) => JoinKind::Right,
        Some(ThenKind::Full) => JoinKind::Full,
        Some(ThenKind::Inner) | None => JoinKind::Inner,
    };
    let typed = Typed {
        prefix: "then",
        name: format!("then{number}"),
        files: &stage.files,
        format: stage.format,
        columns: &stage.columns,
        time_column: time,
        time_format: &stage.time_format,
        disorder: &stage.out_of_orderness,
    };
    Ok(ThenPlan {
        side: typed.plan(args, right_key.collect())?,
        left_key,
        anchor: stage.anchor.clone(),
        matching: matching::Typed {
            prefix: "then-",
            kind,
            between: stage.between.as_deref(),
            choice: stage.choice.map_or(MatchChoice::All, MatchChoice::from),
            asof: stage.asof,
            tolerance: stage.tolerance.as_deref(),
            strict: stage.strict,
            window: stage.window.as_deref(),
        }
        .resolve()?,
        kind,
    })
}

/// Whether a column is written as that of `left`, `right` or a numbered stream.
fn is_stream_name(column: &str) -> bool {
    let stream = column.split_once('.').map_or("", |(stream, _)| stream);
    let is_numbered = stream.strip_prefix("then").is_some_and(|n| n.parse::<usize>().is_ok());
    matches!(stream, "left" | "right") || is_numbered
}

impl ThenPlan {
    /// The coarsest unit in which its times are exact.
    pub(super) fn unit_needed(&self) -> TimeUnit {
        self.matching.unit_needed()
    }

    /// Whether its stage is a window join.
    pub(super) fn is_window(&self) -> bool {
        self.matching.is_window()
    }

    /// Its stage, in ticks of the run.
    ///
    /// # Errors
    /// [`Failure::Usage`] for an interval that holds nothing, or that the unit cannot hold.
    pub(super) fn spec(
        &self,
        unit: TimeUnit,
        lateness: Lateness,
        limits: &Limits,
    ) -> Result<JoinSpec, Failure> {
        let spec = self.builder(unit, lateness)?;
        spec.build(limits).map_err(|error| self.matching.explain(&error, unit))
    }

    /// The same within the bounds of a run, its state laid out as is asked for, and with its share
    /// of what is taken at the start.
    ///
    /// # Errors
    /// As [`spec`](Self::spec), and for a bound that does not go with the stage.
    pub(super) fn spec_within(
        &self,
        unit: TimeUnit,
        lateness: Lateness,
        machine: &MachinePlan,
        reserve_bytes: u64,
    ) -> Result<JoinSpec, Failure> {
        let bounds = &machine.bounds;
        let layout = LayoutHints { reserve_bytes, ..machine.layout };
        let spec = layout.add_to(self.builder(unit, lateness)?, unit.ticks_per_second() / 1_000);
        bounds.add_to(spec).build(&bounds.limits).map_err(|error| {
            bounds.explain_spec(&error).unwrap_or_else(|| self.matching.explain(&error, unit))
        })
    }

    fn builder(&self, unit: TimeUnit, lateness: Lateness) -> Result<JoinSpecBuilder, Failure> {
        let spec = self.matching.spec(unit)?.kind(self.kind).keys(KeyKind::Bytes);
        Ok(spec.lateness(lateness))
    }
}

/// How a further stream hangs on those before it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::cli) struct Link {
    /// The stream whose time the interval is relative to.
    pub(super) anchor: usize,
    /// Whether it was named, or is the one that the key is of.
    pub(super) is_named: bool,
    key: Vec<KeyPart>,
}

/// A column of an earlier stream that is part of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
struct KeyPart {
    stream: usize,
    column: Field,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Field {
    /// The place of a delimited field, and what is between fields.
    Place(usize, u8),
    Name(String),
}

/// Finds the columns and streams that the options of further streams name.
///
/// # Errors
/// [`Failure::Usage`] names the option and what there is to choose from.
pub(super) fn links(plan: &Plan, inputs: &Inputs) -> Result<Vec<Link>, Failure> {
    let named: Vec<(&SidePlan, &[String])> = plan
        .streams()
        .zip(inputs.streams())
        .map(|(plan, input)| (plan, input.schema.columns()))
        .collect();
    let link = |(number, then): (usize, &ThenPlan)| Before(&named[..number + 2]).link(then);
    plan.then.iter().enumerate().map(link).collect()
}

/// The streams before one, and their columns as their files name them.
struct Before<'a>(&'a [(&'a SidePlan, &'a [String])]);

impl Before<'_> {
    fn link(&self, then: &ThenPlan) -> Result<Link, Failure> {
        let file = then.side.files.first().map_or(Path::new(""), |path| path.as_path()).display();
        let key = then.left_key.iter().map(|column| self.find_column(column));
        let key: Vec<KeyPart> = key.collect::<Result<_, Failure>>()?;
        let of = key.first().map_or(0, |part| part.stream);
        let anchor = match &then.anchor {
            Some(name) => self.find_stream("--then-anchor", name)?,
            None if key.iter().all(|part| part.stream == of) => of,
            None => {
                return Err(Failure::usage(format!(
                    "--then {file}: its key is of several streams, so say whose time its own is \
                     compared with: --then-anchor {}",
                    self.names().join(" or ")
                )));
            }
        };
        Ok(Link { anchor, is_named: then.anchor.is_some(), key })
    }

    fn names(&self) -> Vec<&str> {
        self.0.iter().map(|(plan, _)| plan.name.as_str()).collect()
    }

    /// A stream by its name, or by that of a file of it without folder and ending.
    fn find_stream(&self, option: &str, name: &str) -> Result<usize, Failure> {
        if let Some(stream) = self.0.iter().position(|(plan, _)| plan.name == name) {
            return Ok(stream);
        }
        let has_file = |plan: &SidePlan| {
            plan.files.iter().any(|file| file.file_stem().is_some_and(|stem| stem == name))
        };
        let mut found = (0..self.0.len()).filter(|&stream| has_file(self.0[stream].0));
        match (found.next(), found.next()) {
            (Some(stream), None) => Ok(stream),
            (Some(_), Some(_)) => Err(Failure::usage(format!(
                "{option}: several streams have a file {name}; give {}",
                self.names().join(" or ")
            ))),
            (None, _) => Err(Failure::usage(format!(
                "{option}: no stream before it is called {name}; there are {}",
                self.names().join(", ")
            ))),
        }
    }

    /// A column of what was joined before, as the output calls it or behind its stream's name.
    fn find_column(&self, name: &str) -> Result<KeyPart, Failure> {
        let columns: Vec<&[String]> = self.0.iter().map(|(_, columns)| *columns).collect();
        let shown = Columns::of(&columns);
        let all = |stream: usize| shown.stream(stream).iter().enumerate();
        let named = (0..columns.len()).flat_map(|stream| all(stream).map(move |c| (stream, c)));
        let mut found = named.filter(|(_, (_, column))| *column == name);
        match (found.next(), found.next()) {
            (Some((stream, (place, _))), None) => return Ok(self.part(stream, place)),
            (Some(_), Some(_)) => {
                return Err(Failure::usage(format!(
                    "--then-on: two columns are called \"{name}\", so it is not clear which is \
                     meant; rename one"
                )));
            }
            (None, _) => {}
        }
        if let Some((stream, column)) = name.split_once('.')
            && let Ok(stream) = self.find_stream("--then-on", stream)
        {
            let place = columns[stream].iter().position(|known| known == column);
            match place {
                Some(place) => return Ok(self.part(stream, place)),
                None if self.0[stream].0.format.rows() == RowFormat::JsonLines => {
                    return Ok(KeyPart { stream, column: Field::Name(column.to_owned()) });
                }
                None => {}
            }
        }
        let known: Vec<String> =
            (0..columns.len()).flat_map(|s| shown.stream(s).to_vec()).collect();
        let meant = closest(name, &known).map(|column| format!(" (did you mean \"{column}\"?)"));
        Err(Failure::usage(format!(
            "--then-on: there is no column \"{name}\" before it; there are {}{}",
            known.join(", "),
            meant.unwrap_or_default()
        )))
    }

    fn part(&self, stream: usize, place: usize) -> KeyPart {
        let (plan, columns) = &self.0[stream];
        let column = match plan.format.rows() {
            RowFormat::Delimited { delimiter } => Field::Place(place, delimiter),
            RowFormat::JsonLines => Field::Name(columns[place].clone()),
        };
        KeyPart { stream, column }
    }
}

impl Link {
    /// The key of a joined row in the next stage, as its parser would make it: none where a column
    /// is missing or empty, or is an object or a list.
    pub(super) fn key<'a>(
        &self,
        row: JoinedRow<'a>,
        with_position: bool,
        bytes: &'a mut Vec<u8>,
    ) -> Key<'a> {
        let row_of = |stream: usize| {
            let row = row.part(Stream::of_index(stream))?.row;
            if with_position { Some(split_position(row)?.1) } else { Some(row) }
        };
        self.key_of(row_of, bytes)
    }

    /// The same of the rows that are given by the numbers of their streams.
    pub(super) fn key_of<'a>(
        &self,
        row_of: impl Fn(usize) -> Option<&'a [u8]>,
        bytes: &'a mut Vec<u8>,
    ) -> Key<'a> {
        let text = |part: &KeyPart| part.column.text(row_of(part.stream)?);
        if let [part] = &self.key[..] {
            return match text(part) {
                Some(Cow::Borrowed(text)) => Key::Bytes(text),
                Some(Cow::Owned(text)) => {
                    bytes.extend_from_slice(&text);
                    Key::Bytes(bytes)
                }
                None => Key::Null,
            };
        }
        for (place, part) in self.key.iter().enumerate() {
            match text(part) {
                Some(text) => key::push_part(bytes, &text, place == 0),
                None => return Key::Null,
            }
        }
        Key::Bytes(bytes)
    }
}

impl Field {
    fn text<'a>(&self, row: &'a [u8]) -> Option<Cow<'a, [u8]>> {
        match self {
            Field::Place(place, delimiter) => {
                let text = delimited(row, *delimiter).nth(*place)?.ok()?;
                (!text.is_empty()).then_some(text)
            }
            Field::Name(name) => {
                let mut values = Vec::with_capacity(1);
                json_values(row, std::slice::from_ref(name), &mut values).ok()?;
                let value = values.first().copied().flatten()?;
                if value.starts_with(['{', '[']) { None } else { json_text(value) }
            }
        }
    }
}
