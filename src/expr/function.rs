//! The functions: their names, what they take and what they give.

use super::columns::Scope;
use super::text;
use super::value::{self, Kind, Value};
use crate::time::text::{CalendarPart, TimeFormat, TimeParser, format_pattern};

/// Arguments of the function that takes most.
pub(super) const ARGUMENTS_MAX: usize = 3;

/// A function of some values none of which is null: where one is, it gives null.
#[derive(Debug)]
pub(super) struct Function {
    pub(super) name: &'static str,
    pub(super) arguments: &'static [Kind],
    /// So many of them must be there.
    pub(super) least: usize,
    /// [`Kind::Any`] is that of the first argument.
    pub(super) result: Kind,
    pub(super) call: Call,
}

/// `None` for values of the wrong type.
type Call = for<'a> fn(&Scope, &mut [Value<'a>]) -> Option<Value<'a>>;

const fn function(
    name: &'static str,
    arguments: &'static [Kind],
    result: Kind,
    call: Call,
) -> Function {
    Function { name, arguments, least: arguments.len(), result, call }
}

impl Function {
    /// The last argument may be left out.
    const fn or_without(self) -> Function {
        Function { least: self.arguments.len() - 1, ..self }
    }
}

/// Functions that are not in the table, as they take any number of values or give what depends on
/// them.
pub(super) const SPECIAL: [&str; 7] =
    ["coalesce", "concat", "greatest", "if", "ifnull", "least", "nullif"];

/// The function of a name, in any case.
pub(super) fn find(name: &str) -> Option<&'static Function> {
    let name = match name.to_ascii_lowercase().as_str() {
        "substring" => "substr".to_owned(),
        "ceiling" => "ceil".to_owned(),
        "pow" => "power".to_owned(),
        "char_length" | "len" => "length".to_owned(),
        "position" | "instr" => "strpos".to_owned(),
        "datepart" => "date_part".to_owned(),
        other => other.to_owned(),
    };
    FUNCTIONS.iter().find(|function| function.name == name)
}

/// All names, in alphabetical order.
pub(super) fn names() -> Vec<String> {
    let mut names: Vec<String> =
        FUNCTIONS.iter().map(|f| f.name).chain(SPECIAL).map(str::to_owned).collect();
    names.sort_unstable();
    names
}

use Kind::{Any, Duration, Number, Text, Time};

static FUNCTIONS: [Function; 40] = [
    // Text.
    function("lower", &[Text], Text, text::lower),
    function("upper", &[Text], Text, text::upper),
    function("length", &[Text], Number, text::length),
    function("substr", &[Text, Number, Number], Text, text::substr).or_without(),
    function("left", &[Text, Number], Text, text::left),
    function("right", &[Text, Number], Text, text::right),
    function("trim", &[Text, Text], Text, text::trim).or_without(),
    function("ltrim", &[Text, Text], Text, text::ltrim).or_without(),
    function("rtrim", &[Text, Text], Text, text::rtrim).or_without(),
    function("starts_with", &[Text, Text], Kind::Bool, text::starts_with),
    function("ends_with", &[Text, Text], Kind::Bool, text::ends_with),
    function("contains", &[Text, Text], Kind::Bool, text::contains),
    function("strpos", &[Text, Text], Number, text::strpos),
    function("replace", &[Text, Text, Text], Text, text::replace),
    function("split_part", &[Text, Text, Number], Text, text::split_part),
    // Numbers, and durations where they make sense.
    function("abs", &[Any], Any, abs),
    function("sign", &[Any], Number, sign),
    function("round", &[Number, Number], Number, round).or_without(),
    function("floor", &[Number], Number, |_, v| rounded(v, f64::floor)),
    function("ceil", &[Number], Number, |_, v| rounded(v, f64::ceil)),
    function("trunc", &[Number], Number, |_, v| rounded(v, f64::trunc)),
    function("sqrt", &[Number], Number, |_, v| Some(Value::float(float(&v[0])?.sqrt()))),
    function("exp", &[Number], Number, |_, v| Some(Value::float(float(&v[0])?.exp()))),
    function("ln", &[Number], Number, |_, v| Some(Value::float(float(&v[0])?.ln()))),
    function("log10", &[Number], Number, |_, v| Some(Value::float(float(&v[0])?.log10()))),
    function("power", &[Number, Number], Number, |_, v| {
        Some(Value::float(float(&v[0])?.powf(float(&v[1])?)))
    }),
    function("mod", &[Number, Number], Number, modulo),
    // Times and durations.
    function("date_trunc", &[Text, Time], Time, date_trunc),
    function("date_part", &[Text, Time], Number, date_part),
    function("seconds", &[Duration], Number, seconds),
    function("epoch", &[Any], Number, seconds),
    function("epoch_ms", &[Any], Number, |scope, v| epoch(scope, v, 1_000_000)),
    function("epoch_us", &[Any], Number, |scope, v| epoch(scope, v, 1_000)),
    function("epoch_ns", &[Any], Number, |scope, v| epoch(scope, v, 1)),
    function("from_epoch_ms", &[Number], Time, |scope, v| from_epoch(scope, v, 1_000_000)),
    function("from_epoch_s", &[Number], Time, |scope, v| from_epoch(scope, v, 1_000_000_000)),
    function("strftime", &[Time, Text], Text, strftime),
    function("strptime", &[Text, Text], Time, strptime),
    function("duration_ms", &[Number], Duration, |scope, v| duration(scope, v, 1_000_000)),
    function("duration_s", &[Number], Duration, |scope, v| duration(scope, v, 1_000_000_000)),
];

pub(super) fn float(value: &Value<'_>) -> Option<f64> {
    match value {
        Value::Int(int) => Some(*int as f64),
        Value::Float(float) => Some(*float),
        _ => None,
    }
}

fn abs<'a>(_: &Scope, values: &mut [Value<'a>]) -> Option<Value<'a>> {
    Some(match values[0] {
        Value::Int(int) => int.checked_abs().map_or(Value::Float(-(int as f64)), Value::Int),
        Value::Float(float) => Value::Float(float.abs()),
        Value::Duration(ticks) => Value::Duration(ticks.saturating_abs()),
        _ => return None,
    })
}

fn sign<'a>(_: &Scope, values: &mut [Value<'a>]) -> Option<Value<'a>> {
    Some(Value::Int(match values[0] {
        Value::Int(int) => int.signum(),
        Value::Float(0.0) => 0,
        Value::Float(float) => float.signum() as i64,
        Value::Duration(ticks) => ticks.signum(),
        _ => return None,
    }))
}

fn rounded<'a>(values: &mut [Value<'a>], round: fn(f64) -> f64) -> Option<Value<'a>> {
    match values[0] {
        Value::Int(int) => Some(Value::Int(int)),
        Value::Float(float) => Some(value::whole(round(float))),
        _ => None,
    }
}

/// To so many digits behind the point, halves away from zero.
fn round<'a>(_: &Scope, values: &mut [Value<'a>]) -> Option<Value<'a>> {
    let Some(digits) = values.get(1) else { return rounded(values, f64::round) };
    let digits = float(digits)?.clamp(-300.0, 300.0) as i32;
    match (&values[0], digits) {
        (Value::Int(int), 0..) => Some(Value::Int(*int)),
        (number, _) => {
            let (number, scale) = (float(number)?, 10_f64.powi(digits.abs()));
            let scaled = if digits < 0 { number / scale } else { number * scale };
            // What has no digits so far behind the point stays as it is.
            if !scaled.is_finite() {
                return Some(Value::float(number));
            }
            let whole = scaled.round();
            Some(Value::float(if digits < 0 { whole * scale } else { whole / scale }))
        }
    }
}

fn modulo<'a>(_: &Scope, values: &mut [Value<'a>]) -> Option<Value<'a>> {
    match (&values[0], &values[1]) {
        (Value::Int(_), Value::Int(0)) => Some(Value::Null),
        (Value::Int(a), Value::Int(b)) => Some(Value::Int(a.wrapping_rem(*b))),
        (a, b) => Some(Value::float(float(a)? % float(b)?)),
    }
}

fn calendar_part(value: &Value<'_>) -> Option<CalendarPart> {
    match value {
        Value::Text(name) => CalendarPart::from_name(std::str::from_utf8(name).ok()?),
        _ => None,
    }
}

fn date_trunc<'a>(scope: &Scope, values: &mut [Value<'a>]) -> Option<Value<'a>> {
    let (part, Value::Time(ticks)) = (calendar_part(&values[0])?, &values[1]) else { return None };
    let start = part.truncate(*ticks, scope.unit, &scope.zone);
    Some(start.map_or(Value::Null, Value::Time))
}

fn date_part<'a>(scope: &Scope, values: &mut [Value<'a>]) -> Option<Value<'a>> {
    let (part, Value::Time(ticks)) = (calendar_part(&values[0])?, &values[1]) else { return None };
    let number = part.number(*ticks, scope.unit, &scope.zone);
    Some(number.map_or(Value::Null, Value::Int))
}

/// Of a duration, or of a time since 1970.
fn seconds<'a>(scope: &Scope, values: &mut [Value<'a>]) -> Option<Value<'a>> {
    let (Value::Duration(ticks) | Value::Time(ticks)) = values[0] else { return None };
    Some(Value::float(ticks as f64 / scope.unit.ticks_per_second() as f64))
}

/// Whole units of so many nanoseconds, downwards.
fn epoch<'a>(scope: &Scope, values: &mut [Value<'a>], ns: i64) -> Option<Value<'a>> {
    let (Value::Duration(ticks) | Value::Time(ticks)) = values[0] else { return None };
    let all = i128::from(ticks) * i128::from(scope.unit.ns());
    let units = i64::try_from(all.div_euclid(i128::from(ns)));
    Some(units.map_or(Value::Null, Value::Int))
}

/// Ticks of so many units of so many nanoseconds each.
fn ticks(scope: &Scope, value: &Value<'_>, ns: i64) -> Option<Option<i64>> {
    if let Value::Int(int) = value {
        let ticks = i128::from(*int) * i128::from(ns) / i128::from(scope.unit.ns());
        return Some(i64::try_from(ticks).ok());
    }
    let ticks = float(value)? * (ns as f64 / scope.unit.ns() as f64);
    Some(match value::whole(ticks) {
        Value::Int(ticks) => Some(ticks),
        _ => None,
    })
}

fn from_epoch<'a>(scope: &Scope, values: &mut [Value<'a>], ns: i64) -> Option<Value<'a>> {
    // What no calendar has is no time.
    let time = ticks(scope, &values[0], ns)?.filter(|&ticks| scope.unit.has_date(ticks));
    Some(time.map_or(Value::Null, Value::Time))
}

fn duration<'a>(scope: &Scope, values: &mut [Value<'a>], ns: i64) -> Option<Value<'a>> {
    Some(ticks(scope, &values[0], ns)?.map_or(Value::Null, Value::Duration))
}

fn strftime<'a>(scope: &Scope, values: &mut [Value<'a>]) -> Option<Value<'a>> {
    let (Value::Time(ticks), Value::Text(pattern)) = (&values[0], &values[1]) else { return None };
    let pattern = String::from_utf8_lossy(pattern);
    let text = format_pattern(*ticks, scope.unit, &scope.zone, &pattern);
    Some(text.map_or(Value::Null, Value::text))
}

fn strptime<'a>(scope: &Scope, values: &mut [Value<'a>]) -> Option<Value<'a>> {
    let (Value::Text(text), Value::Text(pattern)) = (&values[0], &values[1]) else { return None };
    let format = TimeFormat::Pattern(String::from_utf8_lossy(pattern).into_owned());
    let time = TimeParser::new(&format, &scope.zone, scope.unit).parse(text);
    Some(time.map_or(Value::Null, Value::Time))
}
