//! What functions do with text. Places and lengths count characters; of what is no UTF-8, each
//! wrong byte counts as one.

use std::borrow::Cow;

use super::columns::Scope;
use super::function::float;
use super::value::Value;

type Result<'a> = Option<Value<'a>>;

/// The text of a value, what is no UTF-8 replaced.
fn chars<'v>(value: &'v Value<'_>) -> Option<Cow<'v, str>> {
    match value {
        Value::Text(text) => Some(String::from_utf8_lossy(text)),
        _ => None,
    }
}

fn bytes<'v>(value: &'v Value<'_>) -> Option<&'v [u8]> {
    match value {
        Value::Text(text) => Some(text),
        _ => None,
    }
}

/// A count or a place; what is far out of any text stays so.
fn whole(value: &Value<'_>) -> Option<i64> {
    float(value).map(|number| number as i64)
}

pub(super) fn lower<'a>(_: &Scope, values: &mut [Value<'a>]) -> Result<'a> {
    Some(Value::text(chars(&values[0])?.to_lowercase()))
}

pub(super) fn upper<'a>(_: &Scope, values: &mut [Value<'a>]) -> Result<'a> {
    Some(Value::text(chars(&values[0])?.to_uppercase()))
}

pub(super) fn length<'a>(_: &Scope, values: &mut [Value<'a>]) -> Result<'a> {
    Some(Value::Int(chars(&values[0])?.chars().count() as i64))
}

/// The characters from one place (the first is 1) on, so many at the most.
pub(super) fn substr<'a>(_: &Scope, values: &mut [Value<'a>]) -> Result<'a> {
    let (text, from) = (chars(&values[0])?, whole(&values[1])?);
    let len = values.get(2).map_or(Some(i64::MAX), whole)?.max(0);
    // Places before the first count, but hold nothing.
    let to = from.saturating_add(len).max(1);
    Some(part(&text, from.max(1), to))
}

/// The first characters; with a negative number all but so many at the end.
pub(super) fn left<'a>(_: &Scope, values: &mut [Value<'a>]) -> Result<'a> {
    let (text, count) = (chars(&values[0])?, whole(&values[1])?);
    let len = text.chars().count() as i64;
    let to = if count < 0 { len.saturating_add(count).max(0) } else { count };
    Some(part(&text, 1, to.saturating_add(1)))
}

/// The last characters; with a negative number all but so many at the start.
pub(super) fn right<'a>(_: &Scope, values: &mut [Value<'a>]) -> Result<'a> {
    let (text, count) = (chars(&values[0])?, whole(&values[1])?);
    let len = text.chars().count() as i64;
    let skip = if count < 0 { count.saturating_neg() } else { len.saturating_sub(count).max(0) };
    Some(part(&text, skip.saturating_add(1), i64::MAX))
}

/// The characters at `from..to`, the first is 1.
fn part<'a>(text: &str, from: i64, to: i64) -> Value<'a> {
    let count = usize::try_from(to.saturating_sub(from)).unwrap_or(0);
    let skip = usize::try_from(from - 1).unwrap_or(0);
    Value::text(text.chars().skip(skip).take(count).collect::<String>())
}

pub(super) fn trim<'a>(_: &Scope, values: &mut [Value<'a>]) -> Result<'a> {
    trimmed(values, true, true)
}

pub(super) fn ltrim<'a>(_: &Scope, values: &mut [Value<'a>]) -> Result<'a> {
    trimmed(values, true, false)
}

pub(super) fn rtrim<'a>(_: &Scope, values: &mut [Value<'a>]) -> Result<'a> {
    trimmed(values, false, true)
}

/// Without white space at its ends, or without the characters of the second text.
fn trimmed<'a>(values: &[Value<'a>], start: bool, end: bool) -> Result<'a> {
    let text = chars(&values[0])?;
    let set = values.get(1).map(|set| chars(set).ok_or(())).transpose().ok()?;
    let is_out = |c: char| match &set {
        Some(set) => set.contains(c),
        None => c.is_whitespace(),
    };
    let mut rest: &str = &text;
    if start {
        rest = rest.trim_start_matches(is_out);
    }
    if end {
        rest = rest.trim_end_matches(is_out);
    }
    Some(Value::text(rest))
}

pub(super) fn starts_with<'a>(_: &Scope, values: &mut [Value<'a>]) -> Result<'a> {
    Some(Value::Bool(bytes(&values[0])?.starts_with(bytes(&values[1])?)))
}

pub(super) fn ends_with<'a>(_: &Scope, values: &mut [Value<'a>]) -> Result<'a> {
    Some(Value::Bool(bytes(&values[0])?.ends_with(bytes(&values[1])?)))
}

pub(super) fn contains<'a>(_: &Scope, values: &mut [Value<'a>]) -> Result<'a> {
    Some(Value::Bool(memchr::memmem::find(bytes(&values[0])?, bytes(&values[1])?).is_some()))
}

/// Where one text first stands in another, from 1; 0 if nowhere.
pub(super) fn strpos<'a>(_: &Scope, values: &mut [Value<'a>]) -> Result<'a> {
    let (text, part) = (chars(&values[0])?, chars(&values[1])?);
    let place = text.find(&*part).map_or(0, |at| text[..at].chars().count() + 1);
    Some(Value::Int(place as i64))
}

pub(super) fn replace<'a>(_: &Scope, values: &mut [Value<'a>]) -> Result<'a> {
    let (text, from, to) = (chars(&values[0])?, chars(&values[1])?, chars(&values[2])?);
    // Nothing is nowhere.
    let replaced = if from.is_empty() { text.into_owned() } else { text.replace(&*from, &to) };
    Some(Value::text(replaced))
}

/// The part between separators, from 1; with a negative number from the end. Empty where there is
/// none.
pub(super) fn split_part<'a>(_: &Scope, values: &mut [Value<'a>]) -> Result<'a> {
    let (text, separator, number) = (chars(&values[0])?, chars(&values[1])?, whole(&values[2])?);
    let place = usize::try_from(number.unsigned_abs().saturating_sub(1)).unwrap_or(usize::MAX);
    let part = match number {
        0 => None,
        _ if separator.is_empty() => (place == 0).then_some(&*text),
        1.. => text.split(&*separator).nth(place),
        _ => text.rsplit(&*separator).nth(place),
    };
    Some(Value::text(part.unwrap_or_default()))
}
