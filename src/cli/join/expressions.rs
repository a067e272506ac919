//! `--where`, `--select` and the types of columns.

use std::sync::Arc;

use crate::cli::join::args::{ConditionArgs, OutputArgs};
use crate::cli::join::open::{InputFile, InputSide, Inputs, SAMPLE_ROWS, first_rows};
use crate::cli::join::plan::{Plan, SidePlan};
use crate::cli::join::then::ThenArgs;
use crate::cli::{Console, Failure};
use crate::engine::{JoinedRow, Part};
use crate::event::{Event, stream_name};
use crate::expr::{ColumnType, ExprError, Filter, Row, Rows, Scope, Selection, SideColumns};
use crate::join::{Condition, JoinKind};
use crate::sink::Columns;
use crate::source::fields::delimited;
use crate::source::schema::closest;
use crate::source::{RowFormat, split_position};

/// What the options say, before any column is known.
#[derive(Clone, Debug, Default)]
pub(super) struct ExpressionPlan {
    condition: Option<String>,
    select: Option<String>,
    /// Of further streams.
    then: Vec<Option<String>>,
    /// By stream: columns whose type was given.
    types: Vec<Vec<(String, ColumnType)>>,
    /// Rules may come with conditions.
    has_rules: bool,
}

impl ExpressionPlan {
    /// Whether there is a condition on pairs.
    pub(super) fn has_condition(&self) -> bool {
        self.condition.is_some()
    }

    /// Makes sense of the options.
    ///
    /// # Errors
    /// [`Failure::Usage`] names the option and what to give instead.
    pub(super) fn resolve(
        condition: &ConditionArgs,
        output: &OutputArgs,
        then: &ThenArgs,
    ) -> Result<ExpressionPlan, Failure> {
        let ConditionArgs { condition, rules, left_types, right_types } = condition;
        let mut all = vec![types("left", left_types)?, types("right", right_types)?];
        for stage in &then.stages {
            all.push(types("then", &stage.types)?);
        }
        let plan = ExpressionPlan {
            then: then.stages.iter().map(|stage| stage.condition.clone()).collect(),
            condition: condition.clone(),
            select: output.select.clone(),
            types: all,
            has_rules: rules.is_some(),
        };
        let given = plan.types.iter().position(|types| !types.is_empty());
        match given {
            Some(stream) if !plan.is_needed() => Err(Failure::usage(format!(
                "--{}-types says what columns are in --where and --select; give one of them, or \
                 leave it out",
                if stream < 2 { stream_name(stream) } else { "then".to_owned() }
            ))),
            _ => Ok(plan),
        }
    }

    fn is_needed(&self) -> bool {
        self.condition.is_some()
            || self.select.is_some()
            || self.has_rules
            || self.then.iter().any(Option::is_some)
    }
}

/// `amount:float,paid_at:time`.
fn types(prefix: &str, list: &[String]) -> Result<Vec<(String, ColumnType)>, Failure> {
    let one = |text: &String| {
        let known = text.rsplit_once(':').filter(|(name, _)| !name.is_empty());
        let typed = known.and_then(|(name, of)| Some((name, ColumnType::from_name(of.trim())?)));
        typed.map(|(name, of)| (name.trim().to_owned(), of)).ok_or_else(|| {
            Failure::usage(format!(
                "--{prefix}-types: \"{text}\" is not a column and its type; give them like \
                 amount:float, with one of {}",
                ColumnType::NAMES
            ))
        })
    };
    list.iter().map(one).collect()
}

/// Of JSON Lines the fields are known that stand near the start of a file.
const FIELDS_LATER: &str = "; a field that only later rows have is listed with --left-columns, \
                            --right-columns or --then-columns";

/// What the options come to with the columns that there are.
#[derive(Clone, Debug, Default)]
pub(in crate::cli) struct Expressions {
    /// Of the left and the right columns.
    scope: Option<Arc<Scope>>,
    /// Of further streams.
    then: Vec<Option<Filter>>,
    pub(in crate::cli) filter: Option<Filter>,
    pub(super) selection: Option<Selection>,
}

impl Expressions {
    /// Looks at the first rows for the types of columns, and makes sense of the texts.
    ///
    /// # Errors
    /// [`Failure::Usage`] for a text that makes none, with the place; [`Failure::Failed`] for a
    /// file that cannot be read.
    pub(super) fn new(plan: &Plan, inputs: &mut Inputs) -> Result<Expressions, Failure> {
        if !plan.expressions.is_needed() {
            return Ok(Expressions::default());
        }
        let unit = inputs.unit;
        let names: Vec<&[String]> = inputs.streams().map(|input| input.schema.columns()).collect();
        let names = Columns::of(&names);
        let mut streams = Vec::new();
        for (stream, (side, input)) in plan.streams().zip(inputs.streams_mut()).enumerate() {
            let types = &plan.expressions.types[stream];
            streams.push(side_columns(side, types, input, names.stream(stream))?);
        }
        let scope_of = |count: usize| Arc::new(Scope::new(&streams[..count], unit, &plan.zone));
        let scope = scope_of(2);
        let whole = if plan.then.is_empty() { Arc::clone(&scope) } else { scope_of(streams.len()) };
        let has_json = plan
            .streams()
            .any(|side| side.columns.is_none() && side.format.rows() == RowFormat::JsonLines);
        let usage = |option: &str, error: ExprError| {
            let error = match has_json && error.is_of_missing_column() {
                true => error.with(FIELDS_LATER),
                false => error,
            };
            Failure::usage(format!("{option}: {error}"))
        };
        let condition = plan.expressions.condition.as_deref();
        let filter = condition.map(|text| Filter::parse(text, &scope)).transpose();
        let left_only = matches!(plan.kind, JoinKind::Semi | JoinKind::Anti);
        let select = plan.expressions.select.as_deref();
        let selection = select.map(|text| Selection::parse(text, &whole, left_only)).transpose();
        let then = plan.expressions.then.iter().enumerate().map(|(number, text)| {
            // What was joined before, and the row of the stream itself.
            let filter = text.as_ref().map(|text| Filter::parse(text, &scope_of(number + 3)));
            filter.transpose().map_err(|error| usage("--then-where", error))
        });
        Ok(Expressions {
            filter: filter.map_err(|error| usage("--where", error))?,
            selection: selection.map_err(|error| usage("--select", error))?,
            then: then.collect::<Result<_, Failure>>()?,
            scope: Some(scope),
        })
    }

    /// The filter as a join asks it.
    pub(super) fn condition(&self, with_position: bool) -> Option<Condition> {
        self.filter.clone().map(|filter| condition_of(filter, with_position))
    }

    /// The filter of a further stream, counted from 0.
    pub(super) fn then_condition(&self, number: usize, with_position: bool) -> Option<Condition> {
        let filter = self.then.get(number)?.clone()?;
        Some(Condition::new(move |left, right| {
            let joined = JoinedRow::new(number + 2, *left, Some(*right));
            let rows = joined.parts().map(|part| {
                let Part { ts, row } = part?;
                Some(row_at(row, ts, with_position))
            });
            let rows: Vec<Option<Row<'_>>> = rows.collect();
            filter.holds_of(&Rows::of_streams(&rows))
        }))
    }

    /// The filter of a further stream itself.
    pub(super) fn then_filter(&self, number: usize) -> Option<&Filter> {
        self.then.get(number)?.as_ref()
    }

    /// What makes further conditions on the same columns.
    pub(super) fn filters(&self, with_position: bool) -> FilterMaker {
        FilterMaker { scope: self.scope.clone(), with_position }
    }

    /// Says which values were not what they were taken for.
    pub(in crate::cli) fn warn(&self, console: Console) {
        // Each further condition has counts of its own.
        let then = self.then.iter().flatten().map(Filter::scope);
        let whole = self.selection.as_ref().map(Selection::scope);
        let whole =
            whole.filter(|whole| self.scope.as_ref().is_none_or(|s| !Arc::ptr_eq(s, whole)));
        for warning in self.scope.iter().chain(then).chain(whole).flat_map(|s| s.warnings()) {
            console.warning(&warning);
        }
    }
}

/// Makes conditions that come while a join runs.
pub(super) struct FilterMaker {
    scope: Option<Arc<Scope>>,
    with_position: bool,
}

impl FilterMaker {
    /// The condition that a text is.
    ///
    /// # Errors
    /// What is wrong with it, and where.
    pub(super) fn make(&self, text: &str) -> Result<Condition, String> {
        let Some(scope) = &self.scope else { return Err("no columns are known".to_owned()) };
        let filter = Filter::parse(text, scope).map_err(|error| error.to_string())?;
        Ok(condition_of(filter, self.with_position))
    }
}

fn condition_of(filter: Filter, with_position: bool) -> Condition {
    Condition::new(move |left, right| {
        filter.holds(row_of(left, with_position), row_of(right, with_position))
    })
}

/// The row of an event, which may stand behind its position.
fn row_of<'a>(event: &Event<'a>, with_position: bool) -> Row<'a> {
    row_at(event.row, event.ts, with_position)
}

fn row_at(row: &[u8], ts: i64, with_position: bool) -> Row<'_> {
    let bytes = match split_position(row) {
        Some((_, row)) if with_position => row,
        _ => row,
    };
    Row { bytes, ts }
}

fn side_columns(
    side: &SidePlan,
    given_types: &[(String, ColumnType)],
    input: &mut InputSide,
    output_names: &[String],
) -> Result<SideColumns, Failure> {
    let (schema, format) = (Arc::clone(&input.schema), input.schema.format());
    let names = schema.columns();
    let mut types = match format {
        RowFormat::JsonLines => vec![ColumnType::Auto; names.len()],
        RowFormat::Delimited { delimiter } => {
            sampled_types(&mut input.files, delimiter, names.len())?
        }
    };
    let mut given = vec![false; names.len()];
    types[schema.time()] = ColumnType::EventTime;
    for (name, column_type) in given_types {
        let Some(place) = names.iter().position(|other| other == name) else {
            let meant =
                closest(name, names).map_or(String::new(), |n| format!(" (did you mean \"{n}\"?)"));
            return Err(Failure::usage(format!(
                "--{}-types: there is no column \"{name}\"{meant}; the columns are {}",
                side.prefix,
                names.join(", ")
            )));
        };
        (types[place], given[place]) = (*column_type, true);
    }
    let (names, output_names) = (names.to_vec(), output_names.to_vec());
    Ok(SideColumns { format, names, output_names, types, given })
}

/// The types of CSV columns by the first rows of each file.
fn sampled_types(
    files: &mut [InputFile],
    delimiter: u8,
    column_count: usize,
) -> Result<Vec<ColumnType>, Failure> {
    let mut types = vec![ColumnType::Auto; column_count];
    for file in files {
        let rows = first_rows(file)?;
        let lines = rows.split(|&byte| byte == b'\n');
        let lines = lines.map(|line| line.strip_suffix(b"\r").unwrap_or(line));
        // A record with a line end in quotes is two odd lines here; the rest are sample enough.
        let is_row = |line: &&[u8]| {
            let mut cells = delimited(line, delimiter);
            let count = cells.by_ref().take_while(Result::is_ok).count();
            count == column_count && cells.next().is_none()
        };
        let found =
            ColumnType::of_sample(lines.filter(is_row).take(SAMPLE_ROWS), delimiter, column_count);
        for (known, found) in types.iter_mut().zip(found) {
            *known = match (*known, found) {
                (ColumnType::Auto, other) | (other, ColumnType::Auto) => other,
                (known, found) if known == found => known,
                _ => ColumnType::Text,
            };
        }
    }
    Ok(types)
}
