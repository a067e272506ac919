//! Calls of functions.

use super::{Result, Typed, alike, case, depth_of, fail, wants};
use crate::expr::columns::Scope;
use crate::expr::error::Span;
use crate::expr::function::{self, Function};
use crate::expr::tree::Expr;
use crate::expr::value::{Kind, Value};
use crate::source::schema::closest;
use crate::time::text::{CalendarPart, TimeFormat, format_pattern};

/// A call of a function.
pub(in crate::expr) fn call(
    name: &str,
    name_span: Span,
    arguments: Vec<Typed>,
    span: Span,
    scope: &Scope,
) -> Result<Typed> {
    let lower = name.to_ascii_lowercase();
    if function::SPECIAL.contains(&lower.as_str()) {
        return special(&lower, arguments, span, scope);
    }
    let Some(function) = function::find(name) else {
        let names = function::names();
        let meant =
            closest(name, &names).map_or(String::new(), |n| format!(" (did you mean {n}?)"));
        let list = names.join(", ");
        let why = format!("there is no function {name}{meant}; there are {list}");
        return fail(name_span, why);
    };
    let count = arguments.len();
    if count < function.least || count > function.arguments.len() {
        return fail(span, wrong_count(function, count));
    }
    let depth = depth_of(&arguments);
    let mut exprs = Vec::new();
    let mut first_kind = Kind::Any;
    for (place, (argument, &kind)) in arguments.into_iter().zip(function.arguments).enumerate() {
        let argument = argument.taken_as(kind, scope)?;
        wants(&argument, kind, function.name, scope)?;
        check_constant(function, place, &argument, scope)?;
        if place == 0 {
            first_kind = argument.kind;
        }
        exprs.push(argument.expr);
    }
    let takes_time_or_span = function.name.starts_with("epoch") || function.name == "abs";
    if takes_time_or_span && matches!(first_kind, Kind::Text | Kind::Bool) {
        return fail(span, format!("{} does not take {}", function.name, first_kind.name()));
    }
    let kind = if function.result == Kind::Any { first_kind } else { function.result };
    Typed::over(Expr::Call(function, exprs), kind, span, depth)
}

fn wrong_count(function: &Function, count: usize) -> String {
    let (least, most) = (function.least, function.arguments.len());
    let wanted = if least == most { most.to_string() } else { format!("{least} or {most}") };
    let values = if wanted == "1" { "value" } else { "values" };
    format!("{} takes {wanted} {values}, and here are {count}", function.name)
}

/// Names of parts of the calendar and patterns of times that were written out.
fn check_constant(
    function: &Function,
    place: usize,
    argument: &Typed,
    scope: &Scope,
) -> Result<()> {
    let Expr::Constant(Value::Text(text)) = &argument.expr else { return Ok(()) };
    let text = String::from_utf8_lossy(text);
    match (function.name, place) {
        ("date_trunc" | "date_part", 0) => {
            let part = CalendarPart::from_name(&text);
            let is_there = match function.name {
                "date_trunc" => part.is_some_and(CalendarPart::is_span),
                _ => part.is_some(),
            };
            if !is_there {
                let more = if function.name == "date_part" { ", doy, dow" } else { "" };
                let why = format!(
                    "'{text}' is no part of a date; give year, quarter, month, week, day, hour, \
                     minute, second{more}"
                );
                return fail(argument.span, why);
            }
        }
        ("strftime", 1) if format_pattern(0, scope.unit, &scope.zone, &text).is_none() => {
            let why =
                format!("'{text}' is no pattern of a time; write it like '%Y-%m-%d %H:%M:%S'");
            return fail(argument.span, why);
        }
        ("strptime", 1) => {
            if let Err(error) = TimeFormat::parse(&text) {
                return fail(argument.span, error.to_string());
            }
        }
        _ => {}
    }
    Ok(())
}

fn special(name: &str, mut arguments: Vec<Typed>, span: Span, scope: &Scope) -> Result<Typed> {
    let wanted = match name {
        "if" => 3..=3,
        "nullif" | "ifnull" => 2..=2,
        _ => 1..=usize::MAX,
    };
    if !wanted.contains(&arguments.len()) {
        let (count, least) = (arguments.len(), wanted.start());
        let wanted = match least {
            1 => "a value or more".to_owned(),
            least => format!("{least} values"),
        };
        return fail(span, format!("{name} takes {wanted}, and here are {count}"));
    }
    let depth = depth_of(&arguments);
    match name {
        "if" => {
            let (otherwise, then) = (arguments.pop(), arguments.pop());
            let arms = arguments.pop().zip(then).into_iter().collect();
            case(None, arms, otherwise, span, scope)
        }
        "nullif" => {
            let other = arguments.pop();
            let value = arguments.pop();
            let null = Typed::constant(Value::Null, span);
            let arms = other.map(|other| (other, null)).into_iter().collect();
            case(value.clone(), arms, value, span, scope)
        }
        "concat" => {
            let list = arguments.into_iter().map(|argument| argument.expr).collect();
            Typed::over(Expr::Concat(list), Kind::Text, span, depth)
        }
        _ => {
            let (list, kind) = alike(arguments, scope)?;
            let list = list.into_iter().map(|part| part.expr).collect();
            let expr = match name {
                "greatest" => Expr::Greatest(list),
                "least" => Expr::Least(list),
                _ => Expr::Coalesce(list),
            };
            Typed::over(expr, kind, span, depth)
        }
    }
}
