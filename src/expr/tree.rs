//! An expression whose names and types are known, and its value.

use std::borrow::Cow;
use std::cmp::Ordering;

use super::columns::{Column, ColumnType, Rows, Scope};
use super::function::{ARGUMENTS_MAX, Function};
use super::like::Pattern;
use super::value::{self, Value, compare};

/// An expression.
#[derive(Clone, Debug)]
pub(super) enum Expr {
    Constant(Value<'static>),
    Column(Column),
    /// AND of all.
    All(Vec<Expr>),
    /// OR of all.
    Any(Vec<Expr>),
    Not(Box<Expr>),
    Compare(Comparison, Box<[Expr; 2]>),
    /// `IS NOT DISTINCT FROM`: equal, or both null.
    Same(Box<[Expr; 2]>),
    IsNull(Box<Expr>),
    /// `IS TRUE`, `IS FALSE`.
    Is(bool, Box<Expr>),
    Between(Box<[Expr; 3]>),
    In(Box<Expr>, Vec<Expr>),
    /// With another case's letters if so said.
    Like(Box<[Expr; 2]>, bool),
    /// The same with a pattern that is known.
    LikePattern(Box<Expr>, Pattern),
    /// The value behind the first condition that holds, or the last value.
    Case(Vec<(Expr, Expr)>, Box<Expr>),
    Arithmetic(Operation, Box<[Expr; 2]>),
    Negate(Box<Expr>),
    /// `||`.
    Append(Box<[Expr; 2]>),
    /// The first that is not null.
    Coalesce(Vec<Expr>),
    /// The texts of those that are not null.
    Concat(Vec<Expr>),
    /// Of those that are not null.
    Greatest(Vec<Expr>),
    Least(Vec<Expr>),
    Call(&'static Function, Vec<Expr>),
    Cast(ColumnType, Box<Expr>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Comparison {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

impl Comparison {
    fn holds(self, order: Ordering) -> bool {
        match self {
            Comparison::Equal => order.is_eq(),
            Comparison::NotEqual => order.is_ne(),
            Comparison::Less => order.is_lt(),
            Comparison::LessOrEqual => order.is_le(),
            Comparison::Greater => order.is_gt(),
            Comparison::GreaterOrEqual => order.is_ge(),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operation {
    Add,
    Subtract,
    Multiply,
    Divide,
    Remainder,
}

impl Operation {
    /// In a sentence: `... two numbers`.
    pub(super) fn sign(self) -> char {
        match self {
            Operation::Add => '+',
            Operation::Subtract => '-',
            Operation::Multiply => '*',
            Operation::Divide => '/',
            Operation::Remainder => '%',
        }
    }
}

fn truth<'a>(known: Option<bool>) -> Value<'a> {
    known.map_or(Value::Null, Value::Bool)
}

impl Expr {
    /// The value for some rows.
    pub(super) fn value<'a>(&'a self, scope: &Scope, rows: &Rows<'a>) -> Value<'a> {
        match self {
            Expr::Constant(value) => borrowed(value),
            Expr::Column(column) => scope.value(column, rows),
            Expr::Case(arms, otherwise) => {
                let arm =
                    arms.iter().find(|(condition, _)| condition.truth(scope, rows) == Some(true));
                arm.map_or(&**otherwise, |(_, value)| value).value(scope, rows)
            }
            Expr::Arithmetic(operation, operands) => {
                let a = operands[0].value(scope, rows);
                let b = if a.is_null() { Value::Null } else { operands[1].value(scope, rows) };
                if b.is_null() { Value::Null } else { arithmetic(scope, *operation, a, b) }
            }
            Expr::Negate(operand) => match operand.value(scope, rows) {
                Value::Null => Value::Null,
                value => arithmetic(scope, Operation::Subtract, zero_like(&value), value),
            },
            Expr::Append(operands) => {
                let [a, b] = &**operands;
                let texts = scope.text(a.value(scope, rows)).zip(scope.text(b.value(scope, rows)));
                texts.map_or(Value::Null, |(a, b)| Value::Text([a, b].concat().into()))
            }
            Expr::Coalesce(list) => {
                let mut values = list.iter().map(|expr| expr.value(scope, rows));
                values.find(|value| !value.is_null()).unwrap_or(Value::Null)
            }
            Expr::Concat(list) => {
                let texts = list.iter().filter_map(|expr| scope.text(expr.value(scope, rows)));
                Value::Text(Cow::Owned(texts.collect::<Vec<_>>().concat()))
            }
            Expr::Greatest(list) => extreme(list, Ordering::Greater, scope, rows),
            Expr::Least(list) => extreme(list, Ordering::Less, scope, rows),
            Expr::Call(function, arguments) => call(function, arguments, scope, rows),
            Expr::Cast(column_type, operand) => {
                cast(scope, *column_type, operand.value(scope, rows))
            }
            _ => truth(self.truth(scope, rows)),
        }
    }

    /// The value as a condition: `None` for null, and for what is no condition.
    pub(super) fn truth<'a>(&'a self, scope: &Scope, rows: &Rows<'a>) -> Option<bool> {
        match self {
            Expr::All(list) => connected(list, true, scope, rows),
            Expr::Any(list) => connected(list, false, scope, rows),
            Expr::Not(operand) => operand.truth(scope, rows).map(|known| !known),
            Expr::Compare(comparison, operands) => {
                let a = operands[0].value(scope, rows);
                if a.is_null() {
                    return None;
                }
                let order = order(scope, &a, &operands[1].value(scope, rows))?;
                Some(comparison.holds(order))
            }
            Expr::Same(operands) => {
                let [a, b] = [&operands[0], &operands[1]].map(|expr| expr.value(scope, rows));
                match a.is_null() || b.is_null() {
                    true => Some(a.is_null() && b.is_null()),
                    false => Some(order(scope, &a, &b) == Some(Ordering::Equal)),
                }
            }
            Expr::IsNull(operand) => Some(operand.value(scope, rows).is_null()),
            Expr::Is(wanted, operand) => Some(operand.truth(scope, rows) == Some(*wanted)),
            Expr::Between(operands) => {
                let [value, low, high] = &**operands;
                let value = value.value(scope, rows);
                let from = order(scope, &value, &low.value(scope, rows)).map(Ordering::is_ge);
                if from == Some(false) {
                    return from;
                }
                let to = order(scope, &value, &high.value(scope, rows)).map(Ordering::is_le);
                if to == Some(false) { to } else { from.and(to) }
            }
            Expr::In(operand, list) => {
                let value = operand.value(scope, rows);
                if value.is_null() {
                    return None;
                }
                let mut is_known = true;
                for other in list {
                    match order(scope, &value, &other.value(scope, rows)) {
                        Some(Ordering::Equal) => return Some(true),
                        Some(_) => {}
                        None => is_known = false,
                    }
                }
                is_known.then_some(false)
            }
            Expr::Like(operands, any_case) => {
                let [value, pattern] = &**operands;
                let pattern = text_of(scope, pattern.value(scope, rows))?;
                let text = text_of(scope, value.value(scope, rows))?;
                Some(Pattern::new(&pattern, *any_case).matches(&text))
            }
            Expr::LikePattern(operand, pattern) => {
                Some(pattern.matches(&text_of(scope, operand.value(scope, rows))?))
            }
            _ => match self.value(scope, rows) {
                Value::Bool(known) => Some(known),
                Value::Null => None,
                _ => {
                    scope.count_mismatch();
                    None
                }
            },
        }
    }
}

fn borrowed<'a>(value: &'a Value<'static>) -> Value<'a> {
    match value {
        Value::Text(text) => Value::Text(Cow::Borrowed(text)),
        other => other.clone(),
    }
}

/// AND (`all`) or OR: the first part that decides does, whatever else is unknown.
fn connected<'a>(list: &'a [Expr], all: bool, scope: &Scope, rows: &Rows<'a>) -> Option<bool> {
    let mut known = Some(all);
    for expr in list {
        match expr.truth(scope, rows) {
            Some(part) if part != all => return Some(part),
            Some(_) => {}
            None => known = None,
        }
    }
    known
}

/// The order of two values; `None` if one is null, or they are of different types.
fn order(scope: &Scope, a: &Value<'_>, b: &Value<'_>) -> Option<Ordering> {
    let order = compare(a, b);
    if order.is_none() && !a.is_null() && !b.is_null() {
        scope.count_mismatch();
    }
    order
}

fn text_of<'a>(scope: &Scope, value: Value<'a>) -> Option<Cow<'a, [u8]>> {
    match value {
        Value::Text(text) => Some(text),
        Value::Null => None,
        _ => {
            scope.count_mismatch();
            None
        }
    }
}

fn extreme<'a>(list: &'a [Expr], wanted: Ordering, scope: &Scope, rows: &Rows<'a>) -> Value<'a> {
    let mut best = Value::Null;
    for expr in list {
        let value = expr.value(scope, rows);
        if best.is_null() || order(scope, &value, &best) == Some(wanted) {
            best = value;
        }
    }
    best
}

fn call<'a>(
    function: &Function,
    arguments: &'a [Expr],
    scope: &Scope,
    rows: &Rows<'a>,
) -> Value<'a> {
    let mut values = [const { Value::Null }; ARGUMENTS_MAX];
    for (value, argument) in values.iter_mut().zip(arguments) {
        *value = argument.value(scope, rows);
        if value.is_null() {
            return Value::Null;
        }
    }
    let count = arguments.len().min(ARGUMENTS_MAX);
    (function.call)(scope, &mut values[..count]).unwrap_or_else(|| {
        scope.count_mismatch();
        Value::Null
    })
}

fn zero_like(value: &Value<'_>) -> Value<'static> {
    match value {
        Value::Duration(_) => Value::Duration(0),
        // Of minus zero and zero the one is as good as the other.
        _ => Value::Int(0),
    }
}

/// Neither is null.
fn arithmetic<'a>(scope: &Scope, operation: Operation, a: Value<'a>, b: Value<'a>) -> Value<'a> {
    let ticks = |sum: Option<i64>, make: fn(i64) -> Value<'a>| sum.map_or(Value::Null, make);
    match (operation, &a, &b) {
        (_, Value::Int(a), Value::Int(b)) => whole(operation, *a, *b),
        (_, Value::Int(_) | Value::Float(_), Value::Int(_) | Value::Float(_)) => {
            broken(operation, as_float(&a), as_float(&b))
        }
        (Operation::Add, Value::Duration(a), Value::Duration(b)) => {
            ticks(a.checked_add(*b), Value::Duration)
        }
        (Operation::Subtract, Value::Duration(a), Value::Duration(b))
        | (Operation::Subtract, Value::Time(a), Value::Time(b)) => {
            ticks(a.checked_sub(*b), Value::Duration)
        }
        (Operation::Add, Value::Time(a), Value::Duration(b))
        | (Operation::Add, Value::Duration(a), Value::Time(b)) => {
            ticks(a.checked_add(*b), Value::Time)
        }
        (Operation::Subtract, Value::Time(a), Value::Duration(b)) => {
            ticks(a.checked_sub(*b), Value::Time)
        }
        (Operation::Divide, Value::Duration(a), Value::Duration(b)) => {
            broken(operation, *a as f64, *b as f64)
        }
        (
            Operation::Multiply,
            Value::Duration(span),
            number @ (Value::Int(_) | Value::Float(_)),
        )
        | (
            Operation::Multiply,
            number @ (Value::Int(_) | Value::Float(_)),
            Value::Duration(span),
        ) => duration(*span as f64 * as_float(number)),
        (Operation::Divide, Value::Duration(span), Value::Int(_) | Value::Float(_)) => {
            duration(*span as f64 / as_float(&b))
        }
        _ => {
            scope.count_mismatch();
            Value::Null
        }
    }
}

fn as_float(value: &Value<'_>) -> f64 {
    match value {
        Value::Int(int) => *int as f64,
        Value::Float(float) => *float,
        _ => f64::NAN,
    }
}

/// Of whole numbers: a result that is too large for one goes on as a float, and so does a share.
fn whole<'a>(operation: Operation, a: i64, b: i64) -> Value<'a> {
    let exact = match operation {
        Operation::Add => a.checked_add(b),
        Operation::Subtract => a.checked_sub(b),
        Operation::Multiply => a.checked_mul(b),
        Operation::Remainder if b != 0 => Some(a.wrapping_rem(b)),
        Operation::Divide | Operation::Remainder => None,
    };
    exact.map_or_else(|| broken(operation, a as f64, b as f64), Value::Int)
}

fn broken<'a>(operation: Operation, a: f64, b: f64) -> Value<'a> {
    // Division by zero is no finite number, so it is null.
    Value::float(match operation {
        Operation::Add => a + b,
        Operation::Subtract => a - b,
        Operation::Multiply => a * b,
        Operation::Divide => a / b,
        Operation::Remainder => a % b,
    })
}

fn duration<'a>(ticks: f64) -> Value<'a> {
    match value::whole(ticks) {
        Value::Int(ticks) => Value::Duration(ticks),
        _ => Value::Null,
    }
}

/// A value as another type; null where it is none.
pub(super) fn cast<'a>(scope: &Scope, to: ColumnType, value: Value<'a>) -> Value<'a> {
    match (to, value) {
        (_, Value::Null) => Value::Null,
        (ColumnType::Text, value) => scope.text(value).map_or(Value::Null, Value::Text),
        (ColumnType::Int, Value::Float(float)) => match value::whole(float) {
            Value::Int(int) => Value::Int(int),
            _ => Value::Null,
        },
        (ColumnType::Int, Value::Text(text)) => match value::number(&text) {
            Some(number) => cast(scope, to, number),
            None => Value::Null,
        },
        (ColumnType::Int | ColumnType::Number, value @ (Value::Int(_) | Value::Float(_))) => value,
        (ColumnType::Int | ColumnType::Number, Value::Bool(known)) => Value::Int(known.into()),
        (ColumnType::Bool, Value::Int(int)) => Value::Bool(int != 0),
        (ColumnType::Bool, Value::Float(float)) => Value::Bool(float != 0.0),
        (ColumnType::Bool, value @ Value::Bool(_))
        | (ColumnType::Time, value @ Value::Time(_))
        | (ColumnType::Duration, value @ Value::Duration(_))
        | (ColumnType::Auto, value) => value,
        (_, Value::Text(text)) => scope.parsed(to, text).unwrap_or(Value::Null),
        _ => {
            scope.count_mismatch();
            Value::Null
        }
    }
}
