//! `--where`, `--select` and the types of columns.

use std::sync::Arc;

use crate::cli::join::args::{ConditionArgs, OutputArgs};
use crate::cli::join::open::{InputFile, InputSide, Inputs, SAMPLE_ROWS, unreadable};
use crate::cli::join::plan::Plan;
use crate::cli::{Console, Failure};
use crate::event::{Event, Side};
use crate::expr::{ColumnType, Filter, Row, Scope, Selection, SideColumns};
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
    /// By [`Side::index`]: columns whose type was given.
    types: [Vec<(String, ColumnType)>; 2],
    /// Rules may come with conditions.
    has_rules: bool,
}

impl ExpressionPlan {
    /// Makes sense of the options.
    ///
    /// # Errors
    /// [`Failure::Usage`] names the option and what to give instead.
    pub(super) fn resolve(
        condition: &ConditionArgs,
        output: &OutputArgs,
    ) -> Result<ExpressionPlan, Failure> {
        let ConditionArgs { condition, rules, left_types, right_types } = condition;
        let plan = ExpressionPlan {
            condition: condition.clone(),
            select: output.select.clone(),
            types: [types(Side::Left, left_types)?, types(Side::Right, right_types)?],
            has_rules: rules.is_some(),
        };
        let given = Side::BOTH.into_iter().find(|side| !plan.types[side.index()].is_empty());
        match given {
            Some(side) if !plan.is_needed() => Err(Failure::usage(format!(
                "--{}-types says what columns are in --where and --select; give one of them, or \
                 leave it out",
                side.name()
            ))),
            _ => Ok(plan),
        }
    }

    fn is_needed(&self) -> bool {
        self.condition.is_some() || self.select.is_some() || self.has_rules
    }
}

/// `amount:float,paid_at:time`.
fn types(side: Side, list: &[String]) -> Result<Vec<(String, ColumnType)>, Failure> {
    let one = |text: &String| {
        let known = text.rsplit_once(':').filter(|(name, _)| !name.is_empty());
        let typed = known.and_then(|(name, of)| Some((name, ColumnType::from_name(of.trim())?)));
        typed.map(|(name, of)| (name.trim().to_owned(), of)).ok_or_else(|| {
            Failure::usage(format!(
                "--{}-types: \"{text}\" is not a column and its type; give them like \
                 amount:float, with one of {}",
                side.name(),
                ColumnType::NAMES
            ))
        })
    };
    list.iter().map(one).collect()
}

/// What the options come to with the columns that there are.
#[derive(Clone, Debug, Default)]
pub(in crate::cli) struct Expressions {
    scope: Option<Arc<Scope>>,
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
        let [left, right] = &mut inputs.sides;
        let names = Columns::new(left.schema.columns(), right.schema.columns());
        let sides = [
            side_columns(Side::Left, plan, left, names.left())?,
            side_columns(Side::Right, plan, right, names.right())?,
        ];
        let scope = Arc::new(Scope::new(sides, inputs.unit, &plan.zone));
        let usage = |option: &str, error: &dyn std::fmt::Display| {
            Failure::usage(format!("{option}: {error}"))
        };
        let condition = plan.expressions.condition.as_deref();
        let filter = condition.map(|text| Filter::parse(text, &scope)).transpose();
        let left_only = matches!(plan.kind, JoinKind::Semi | JoinKind::Anti);
        let select = plan.expressions.select.as_deref();
        let selection = select.map(|text| Selection::parse(text, &scope, left_only)).transpose();
        Ok(Expressions {
            filter: filter.map_err(|error| usage("--where", &error))?,
            selection: selection.map_err(|error| usage("--select", &error))?,
            scope: Some(scope),
        })
    }

    /// The filter as a join asks it.
    pub(super) fn condition(&self, with_position: bool) -> Option<Condition> {
        self.filter.clone().map(|filter| condition_of(filter, with_position))
    }

    /// What makes further conditions on the same columns.
    pub(super) fn filters(&self, with_position: bool) -> FilterMaker {
        FilterMaker { scope: self.scope.clone(), with_position }
    }

    /// Says which values were not what they were taken for.
    pub(in crate::cli) fn warn(&self, console: Console) {
        for warning in self.scope.iter().flat_map(|scope| scope.warnings()) {
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
    let bytes = match split_position(event.row) {
        Some((_, row)) if with_position => row,
        _ => event.row,
    };
    Row { bytes, ts: event.ts }
}

fn side_columns(
    side: Side,
    plan: &Plan,
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
    for (name, column_type) in &plan.expressions.types[side.index()] {
        let Some(place) = names.iter().position(|other| other == name) else {
            let meant =
                closest(name, names).map_or(String::new(), |n| format!(" (did you mean \"{n}\"?)"));
            return Err(Failure::usage(format!(
                "--{}-types: there is no column \"{name}\"{meant}; the columns are {}",
                side.name(),
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
        let rows = file.reader.peek().map_err(|error| unreadable(&file.name, &error))?;
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
