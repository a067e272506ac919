//! Parts put together, their types checked: what does not go together is told before there are
//! rows.

mod calls;

pub(super) use calls::call;

use super::columns::{ColumnType, Scope, types_option};
use super::error::{ExprError, Span};
use super::like::Pattern;
use super::tree::{Comparison, Expr, Operation};
use super::value::{Kind, Value};
use crate::time::text::TimeSpan;

/// An expression, what is known of its value, and where it stands.
#[derive(Clone, Debug)]
pub(super) struct Typed {
    pub(super) expr: Expr,
    pub(super) kind: Kind,
    pub(super) span: Span,
    /// Of the tree.
    depth: usize,
}

type Result<T> = std::result::Result<T, ExprError>;

/// Deeper trees are refused: they are walked by calls, on stacks of worker threads.
const DEPTH_MAX: usize = 250;

fn fail<T>(span: Span, why: impl Into<String>) -> Result<T> {
    Err(ExprError::new(span, why))
}

impl Typed {
    pub(super) fn leaf(expr: Expr, kind: Kind, span: Span) -> Typed {
        Typed { expr, kind, span, depth: 1 }
    }

    pub(super) fn constant(value: Value<'static>, span: Span) -> Typed {
        let kind = value.kind();
        Typed::leaf(Expr::Constant(value), kind, span)
    }

    /// Over some parts.
    fn over(expr: Expr, kind: Kind, span: Span, depth: usize) -> Result<Typed> {
        if depth >= DEPTH_MAX {
            return fail(span, "this is nested too deeply; make it simpler");
        }
        Ok(Typed { expr, kind, span, depth: depth + 1 })
    }

    fn is_null(&self) -> bool {
        matches!(self.expr, Expr::Constant(Value::Null))
    }

    /// How it is called in a message: `text`, or why it is taken for text.
    fn described(&self, scope: &Scope) -> String {
        let kind = self.kind.name();
        match &self.expr {
            Expr::Column(column) => {
                let columns = &scope.streams()[column.stream];
                let option = types_option(column.stream);
                let is_sampled = column.column_type != ColumnType::EventTime
                    && columns.given.get(column.place) != Some(&true);
                match is_sampled {
                    true => format!(
                        "{kind} (by its first rows; {option} {}:... says otherwise)",
                        column.name
                    ),
                    false => kind.to_owned(),
                }
            }
            _ => kind.to_owned(),
        }
    }

    /// Takes a text that was written out for a value of another kind, if it is one.
    fn taken_as(mut self, kind: Kind, scope: &Scope) -> Result<Typed> {
        let Expr::Constant(Value::Text(text)) = &self.expr else { return Ok(self) };
        let column_type = match kind {
            Kind::Number => ColumnType::Number,
            Kind::Time => ColumnType::Time,
            Kind::Duration => ColumnType::Duration,
            Kind::Bool => ColumnType::Bool,
            Kind::Text | Kind::Any => return Ok(self),
        };
        match scope.parsed(column_type, text.clone()) {
            Ok(value) => {
                (self.expr, self.kind) = (Expr::Constant(value), kind);
                Ok(self)
            }
            Err(text) => {
                let text = String::from_utf8_lossy(&text);
                let why = match kind {
                    Kind::Duration => duration(&text, scope).err(),
                    Kind::Time => {
                        Some("; write it like 2024-01-31T10:00:00Z or 2024-01-31 10:00:00".into())
                    }
                    _ => None,
                };
                let why = why.unwrap_or_default();
                fail(self.span, format!("'{text}' is not {}{why}", kind.name()))
            }
        }
    }
}

/// Ticks of a duration that was written out.
pub(super) fn duration(text: &str, scope: &Scope) -> std::result::Result<i64, String> {
    let span = text.trim().parse::<TimeSpan>();
    span.and_then(|span| span.ticks(scope.unit)).map_err(|error| format!(": {error}"))
}

/// Two values that are to be compared are made of one kind, if that can be.
fn unify(a: Typed, b: Typed, scope: &Scope) -> Result<(Typed, Typed)> {
    let (a_kind, b_kind) = (a.kind, b.kind);
    if a_kind == b_kind || a_kind == Kind::Any || b_kind == Kind::Any {
        return Ok((a, b));
    }
    let (a, b) = (a.taken_as(b_kind, scope)?, b.taken_as(a_kind, scope)?);
    if a.kind == b.kind {
        return Ok((a, b));
    }
    let advice = match (a.kind, b.kind) {
        (Kind::Time, Kind::Number) | (Kind::Number, Kind::Time) => {
            "take epoch_ms(...) of the time, or write a time like '2024-01-31T10:00:00Z'"
        }
        (Kind::Duration, Kind::Number) | (Kind::Number, Kind::Duration) => {
            "write a duration like '5m', or take seconds(...) of it"
        }
        (Kind::Time, Kind::Duration) | (Kind::Duration, Kind::Time) => {
            "subtract a time from the time first"
        }
        _ => "cast one of them, as in amount::float or code::text",
    };
    let (a_is, b_is) = (a.described(scope), b.described(scope));
    let why = format!("this is {a_is} on the left and {b_is} on the right; {advice}");
    fail(a.span.to(b.span), why)
}

/// A condition is wanted.
fn condition(part: Typed, scope: &Scope) -> Result<Typed> {
    match part.kind {
        Kind::Bool | Kind::Any => Ok(part),
        _ => {
            let is = part.described(scope);
            fail(part.span, format!("a condition is wanted here, and this is {is}; compare it"))
        }
    }
}

fn depth_of<'a>(parts: impl IntoIterator<Item = &'a Typed>) -> usize {
    parts.into_iter().map(|part| part.depth).max().unwrap_or(0)
}

/// Whatever is to be the whole condition.
pub(super) fn whole_condition(part: Typed, scope: &Scope) -> Result<Typed> {
    condition(part, scope)
}

/// AND (`all`) or OR.
pub(super) fn connect(a: Typed, b: Typed, all: bool, scope: &Scope) -> Result<Typed> {
    let (a, b) = (condition(a, scope)?, condition(b, scope)?);
    let (span, mut depth) = (a.span.to(b.span), depth_of([&a, &b]));
    let mut list = match (a.expr, all) {
        // A chain stays flat, however long it is.
        (Expr::All(list), true) | (Expr::Any(list), false) => {
            depth = depth.max(b.depth + 1) - 1;
            list
        }
        (expr, _) => vec![expr],
    };
    list.push(b.expr);
    Typed::over(if all { Expr::All(list) } else { Expr::Any(list) }, Kind::Bool, span, depth)
}

pub(super) fn not(operand: Typed, span: Span, scope: &Scope) -> Result<Typed> {
    let operand = condition(operand, scope)?;
    Typed::over(Expr::Not(Box::new(operand.expr)), Kind::Bool, span, operand.depth)
}

/// NOT, where a word like IN or LIKE says so.
fn negated(part: Typed, is_negated: bool) -> Result<Typed> {
    if !is_negated {
        return Ok(part);
    }
    Typed::over(Expr::Not(Box::new(part.expr)), Kind::Bool, part.span, part.depth)
}

pub(super) fn compare(a: Typed, b: Typed, how: Comparison, scope: &Scope) -> Result<Typed> {
    if a.is_null() || b.is_null() {
        let why = "nothing is equal to NULL, so this never holds; write IS NULL or IS NOT NULL";
        return fail(a.span.to(b.span), why);
    }
    let (a, b) = unify(a, b, scope)?;
    let (span, depth) = (a.span.to(b.span), depth_of([&a, &b]));
    Typed::over(Expr::Compare(how, Box::new([a.expr, b.expr])), Kind::Bool, span, depth)
}

/// `IS NOT DISTINCT FROM`.
pub(super) fn same(a: Typed, b: Typed, is_negated: bool, scope: &Scope) -> Result<Typed> {
    let (a, b) = unify(a, b, scope)?;
    let (span, depth) = (a.span.to(b.span), depth_of([&a, &b]));
    let same = Typed::over(Expr::Same(Box::new([a.expr, b.expr])), Kind::Bool, span, depth)?;
    negated(same, is_negated)
}

/// `IS NULL` with `None`, else `IS TRUE` or `IS FALSE`.
pub(super) fn is(
    operand: Typed,
    wanted: Option<bool>,
    is_negated: bool,
    scope: &Scope,
) -> Result<Typed> {
    let operand = if wanted.is_some() { condition(operand, scope)? } else { operand };
    let (span, depth, operand) = (operand.span, operand.depth, Box::new(operand.expr));
    let expr = match wanted {
        None => Expr::IsNull(operand),
        Some(wanted) => Expr::Is(wanted, operand),
    };
    negated(Typed::over(expr, Kind::Bool, span, depth)?, is_negated)
}

pub(super) fn between(
    value: Typed,
    low: Typed,
    high: Typed,
    is_negated: bool,
    scope: &Scope,
) -> Result<Typed> {
    let (value, low) = unify(value, low, scope)?;
    let (value, high) = unify(value, high, scope)?;
    let (low, high) = unify(low, high, scope)?;
    let (span, depth) = (value.span.to(high.span), depth_of([&value, &low, &high]));
    let expr = Expr::Between(Box::new([value.expr, low.expr, high.expr]));
    negated(Typed::over(expr, Kind::Bool, span, depth)?, is_negated)
}

pub(super) fn is_in(
    mut value: Typed,
    list: Vec<Typed>,
    is_negated: bool,
    scope: &Scope,
) -> Result<Typed> {
    let mut others = Vec::new();
    for other in list {
        let (first, other) = unify(value, other, scope)?;
        value = first;
        others.push(other);
    }
    let end = others.last().map_or(value.span, |last| last.span);
    let (span, depth) = (value.span.to(end), depth_of(others.iter().chain([&value])));
    let others = others.into_iter().map(|other| other.expr).collect();
    let expr = Expr::In(Box::new(value.expr), others);
    negated(Typed::over(expr, Kind::Bool, span, depth)?, is_negated)
}

pub(super) fn like(
    value: Typed,
    pattern: Typed,
    any_case: bool,
    is_negated: bool,
    scope: &Scope,
) -> Result<Typed> {
    for part in [&value, &pattern] {
        wants(part, Kind::Text, "LIKE", scope)?;
    }
    let (span, depth) = (value.span.to(pattern.span), depth_of([&value, &pattern]));
    let expr = match pattern.expr {
        Expr::Constant(Value::Text(text)) => {
            Expr::LikePattern(Box::new(value.expr), Pattern::new(&text, any_case))
        }
        pattern => Expr::Like(Box::new([value.expr, pattern]), any_case),
    };
    negated(Typed::over(expr, Kind::Bool, span, depth)?, is_negated)
}

fn wants(part: &Typed, kind: Kind, who: &str, scope: &Scope) -> Result<()> {
    if part.kind == kind || part.kind == Kind::Any || kind == Kind::Any {
        return Ok(());
    }
    let (wanted, is) = (kind.name(), part.described(scope));
    let advice = match (kind, part.kind) {
        (Kind::Text, _) => "; cast it, as in code::text",
        (Kind::Number, Kind::Text) => "; cast it, as in amount::float",
        (Kind::Number, Kind::Time) => "; take epoch_ms(...) of it",
        (Kind::Number, Kind::Duration) => "; take seconds(...) of it",
        (Kind::Time, _) => "; cast it, as in paid_at::time",
        (Kind::Duration, _) => "; write it like '5m'",
        _ => "",
    };
    fail(part.span, format!("{who} takes {wanted} here, and this is {is}{advice}"))
}

pub(super) fn negate(operand: Typed, span: Span, scope: &Scope) -> Result<Typed> {
    match operand.expr {
        Expr::Constant(Value::Int(int)) => Ok(Typed::constant(Value::Int(-int), span)),
        Expr::Constant(Value::Float(float)) => Ok(Typed::constant(Value::Float(-float), span)),
        _ if operand.kind == Kind::Duration => {
            Typed::over(Expr::Negate(Box::new(operand.expr)), Kind::Duration, span, operand.depth)
        }
        _ => {
            wants(&operand, Kind::Number, "-", scope)?;
            Typed::over(Expr::Negate(Box::new(operand.expr)), operand.kind, span, operand.depth)
        }
    }
}

/// What kind two others give.
fn arithmetic_kind(operation: Operation, a: Kind, b: Kind) -> Option<Kind> {
    use Operation::{Add, Divide, Multiply, Subtract};
    Some(match (operation, a, b) {
        (_, Kind::Number, Kind::Number) => Kind::Number,
        (Add | Subtract, Kind::Duration, Kind::Duration) => Kind::Duration,
        (Subtract, Kind::Time, Kind::Time) => Kind::Duration,
        (Add | Subtract, Kind::Time, Kind::Duration) => Kind::Time,
        (Add, Kind::Duration, Kind::Time) => Kind::Time,
        (Divide, Kind::Duration, Kind::Duration) => Kind::Number,
        (Multiply | Divide, Kind::Duration, Kind::Number) => Kind::Duration,
        (Multiply, Kind::Number, Kind::Duration) => Kind::Duration,
        (_, Kind::Any, Kind::Any | Kind::Number | Kind::Time | Kind::Duration)
        | (_, Kind::Number | Kind::Time | Kind::Duration, Kind::Any) => Kind::Any,
        _ => return None,
    })
}

pub(super) fn arithmetic(a: Typed, b: Typed, operation: Operation, scope: &Scope) -> Result<Typed> {
    let (a_kind, b_kind) = (a.kind, b.kind);
    // What a text beside a time or a number is meant to be.
    let meant = |text: Typed, beside: Kind| match beside {
        Kind::Time if operation == Operation::Subtract => text
            .clone()
            .taken_as(Kind::Duration, scope)
            .or_else(|_| text.taken_as(Kind::Time, scope)),
        Kind::Time | Kind::Duration => text.taken_as(Kind::Duration, scope),
        Kind::Number => text.taken_as(Kind::Number, scope),
        _ => Ok(text),
    };
    let (a, b) = (meant(a, b_kind)?, meant(b, a_kind)?);
    let span = a.span.to(b.span);
    let Some(kind) = arithmetic_kind(operation, a.kind, b.kind) else {
        let advice = match (a.kind, b.kind) {
            (Kind::Text, Kind::Text) if operation == Operation::Add => "; || joins texts",
            (Kind::Text, _) | (_, Kind::Text) => "; cast it, as in amount::float",
            (Kind::Time, Kind::Number) => "; add a duration like '5m'",
            _ => "",
        };
        let (sign, a, b) = (operation.sign(), a.described(scope), b.described(scope));
        return fail(span, format!("{sign} does not go with {a} and {b}{advice}"));
    };
    let depth = depth_of([&a, &b]);
    Typed::over(Expr::Arithmetic(operation, Box::new([a.expr, b.expr])), kind, span, depth)
}

pub(super) fn append(a: Typed, b: Typed) -> Result<Typed> {
    let (span, depth) = (a.span.to(b.span), depth_of([&a, &b]));
    Typed::over(Expr::Append(Box::new([a.expr, b.expr])), Kind::Text, span, depth)
}

pub(super) fn cast(operand: Typed, to: ColumnType, span: Span, scope: &Scope) -> Result<Typed> {
    let (from, kind) = (operand.kind, to.kind());
    let is_there = match kind {
        Kind::Text => true,
        Kind::Number => matches!(from, Kind::Number | Kind::Text | Kind::Bool),
        Kind::Bool => matches!(from, Kind::Number | Kind::Text | Kind::Bool),
        _ => from == kind || from == Kind::Text,
    };
    if !is_there && from != Kind::Any {
        let advice = match (from, kind) {
            (Kind::Time, Kind::Number) => "; take epoch_ms(...) of it",
            (Kind::Duration, Kind::Number) => "; take seconds(...) of it",
            (Kind::Number, Kind::Time) => "; from_epoch_ms(...) and from_epoch_s(...) make times",
            (Kind::Number, Kind::Duration) => {
                "; duration_ms(...) and duration_s(...) make durations"
            }
            _ => "",
        };
        let (is, name) = (operand.described(scope), kind.name());
        return fail(span, format!("this is {is}, and cannot be made {name}{advice}"));
    }
    let depth = operand.depth;
    if let Expr::Constant(Value::Text(_)) = operand.expr
        && kind != Kind::Text
        && to != ColumnType::Int
    {
        return operand.taken_as(kind, scope);
    }
    Typed::over(Expr::Cast(to, Box::new(operand.expr)), kind, span, depth)
}

/// Values one of which is taken are made of one kind.
fn alike(parts: Vec<Typed>, scope: &Scope) -> Result<(Vec<Typed>, Kind)> {
    let known = parts.iter().find(|part| {
        part.kind != Kind::Any && !matches!(part.expr, Expr::Constant(Value::Text(_)))
    });
    let known = known.or(parts.iter().find(|part| part.kind != Kind::Any)).cloned();
    let Some(known) = known else { return Ok((parts, Kind::Any)) };
    let mut alike = Vec::new();
    for part in parts {
        let (_, part) = unify(known.clone(), part, scope)?;
        alike.push(part);
    }
    let is_sure = alike.iter().all(|part| part.kind != Kind::Any || part.is_null());
    Ok((alike, if is_sure { known.kind } else { Kind::Any }))
}

/// The value behind the first condition that holds. With a subject, the conditions are values that
/// it may be equal to.
pub(super) fn case(
    subject: Option<Typed>,
    arms: Vec<(Typed, Typed)>,
    otherwise: Option<Typed>,
    span: Span,
    scope: &Scope,
) -> Result<Typed> {
    let (mut conditions, mut values) = (Vec::new(), Vec::new());
    for (when, then) in arms {
        conditions.push(match &subject {
            Some(subject) => compare(subject.clone(), when, Comparison::Equal, scope)?,
            None => condition(when, scope)?,
        });
        values.push(then);
    }
    values.push(otherwise.unwrap_or_else(|| Typed::constant(Value::Null, span)));
    let (mut values, kind) = alike(values, scope)?;
    let depth = depth_of(conditions.iter().chain(&values));
    let otherwise = values.pop().map_or(Expr::Constant(Value::Null), |last| last.expr);
    let values = values.into_iter().map(|value| value.expr);
    let arms = conditions.into_iter().map(|part| part.expr).zip(values).collect();
    Typed::over(Expr::Case(arms, Box::new(otherwise)), kind, span, depth)
}
