//! Values: what they are, how they compare, how they turn into each other.

use std::borrow::Cow;
use std::cmp::Ordering;

/// A value of a row, or made of some.
#[derive(Clone, Debug, PartialEq)]
pub enum Value<'a> {
    /// Nothing is known: an empty cell of CSV, `null` or a missing field of JSON, the cells of a
    /// row that is not there.
    Null,
    /// True or false.
    Bool(bool),
    /// A whole number.
    Int(i64),
    /// Any other number; finite.
    Float(f64),
    /// Text; not always UTF-8.
    Text(Cow<'a, [u8]>),
    /// An instant, in ticks of the run.
    Time(i64),
    /// A length of time, in ticks of the run.
    Duration(i64),
}

/// What kind of value it is, as far as that is known before there are rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Known with each row only; of the word NULL never.
    Any,
    Bool,
    Number,
    Text,
    Time,
    Duration,
}

impl Kind {
    /// In a sentence.
    pub(super) fn name(self) -> &'static str {
        match self {
            Kind::Any => "of any type",
            Kind::Bool => "true or false",
            Kind::Number => "a number",
            Kind::Text => "text",
            Kind::Time => "a time",
            Kind::Duration => "a duration",
        }
    }
}

impl<'a> Value<'a> {
    pub(super) fn kind(&self) -> Kind {
        match self {
            Value::Null => Kind::Any,
            Value::Bool(_) => Kind::Bool,
            Value::Int(_) | Value::Float(_) => Kind::Number,
            Value::Text(_) => Kind::Text,
            Value::Time(_) => Kind::Time,
            Value::Duration(_) => Kind::Duration,
        }
    }

    pub(super) fn is_null(&self) -> bool {
        matches!(self, Value::Null)
    }

    pub(super) fn text(text: impl Into<String>) -> Value<'a> {
        Value::Text(Cow::Owned(text.into().into_bytes()))
    }

    /// A float, or null for what is no number: what overflows, roots of negative numbers.
    pub(super) fn float(number: f64) -> Value<'a> {
        if number.is_finite() { Value::Float(number) } else { Value::Null }
    }
}

/// The order of two values of one kind that are not null; `None` for others. Numbers compare
/// exactly, whichever way they are held; texts by their bytes.
pub(super) fn compare(a: &Value<'_>, b: &Value<'_>) -> Option<Ordering> {
    match (a, b) {
        (Value::Bool(a), Value::Bool(b)) => Some(a.cmp(b)),
        (Value::Int(a), Value::Int(b)) => Some(a.cmp(b)),
        (Value::Float(a), Value::Float(b)) => a.partial_cmp(b),
        (Value::Int(a), Value::Float(b)) => Some(compare_mixed(*a, *b)),
        (Value::Float(a), Value::Int(b)) => Some(compare_mixed(*b, *a).reverse()),
        (Value::Text(a), Value::Text(b)) => Some(a.cmp(b)),
        (Value::Time(a), Value::Time(b)) | (Value::Duration(a), Value::Duration(b)) => {
            Some(a.cmp(b))
        }
        _ => None,
    }
}

/// 2 to the power of 63: the first float that no `i64` reaches.
const BEYOND_INT: f64 = 9_223_372_036_854_775_808.0;

fn compare_mixed(int: i64, float: f64) -> Ordering {
    if float >= BEYOND_INT {
        return Ordering::Less;
    }
    if float < -BEYOND_INT {
        return Ordering::Greater;
    }
    // The whole part fits now; the fraction decides between equal ones.
    let whole = float.trunc();
    int.cmp(&(whole as i64)).then_with(|| whole.partial_cmp(&float).unwrap_or(Ordering::Equal))
}

/// A number as people and programs write it: digits with a sign, a point and an exponent; no
/// words like `inf`. Spaces around it do not count. About 10 ns for a whole number, 30 for others.
pub(super) fn number<'a>(text: &[u8]) -> Option<Value<'a>> {
    let text = text.trim_ascii();
    if let Some(short) = short_number(text) {
        return Some(short);
    }
    let is_part =
        |byte: &u8| byte.is_ascii_digit() || matches!(byte, b'+' | b'-' | b'.' | b'e' | b'E');
    if !text.iter().all(is_part) {
        return None;
    }
    let text = std::str::from_utf8(text).ok()?;
    if let Ok(int) = text.parse::<i64>() {
        return Some(Value::Int(int));
    }
    text.parse::<f64>().ok().filter(|float| float.is_finite()).map(Value::Float)
}

/// Whole numbers of up to 18 digits, and broken ones of up to 15, digits before and behind the
/// point: these and the power of ten are floats exactly, so the quotient is the float next to the
/// number.
#[inline]
fn short_number<'a>(text: &[u8]) -> Option<Value<'a>> {
    let (is_negative, digits) = match text {
        [b'-', digits @ ..] => (true, digits),
        digits => (false, digits),
    };
    if digits.is_empty() || digits.len() > 18 {
        return None;
    }
    let (mut number, mut point) = (0_i64, None);
    for (place, &byte) in digits.iter().enumerate() {
        let digit = byte.wrapping_sub(b'0');
        if digit <= 9 {
            number = number * 10 + i64::from(digit);
        } else if byte == b'.' && point.is_none() {
            point = Some(place);
        } else {
            return None;
        }
    }
    let number = if is_negative { -number } else { number };
    match point {
        None => Some(Value::Int(number)),
        Some(point) if point > 0 && point + 1 < digits.len() && digits.len() <= 16 => {
            let float = number as f64 / POWERS_OF_TEN[digits.len() - 1 - point];
            // Minus nothing is left to the long way.
            (number != 0 || !is_negative).then_some(Value::Float(float))
        }
        Some(_) => None,
    }
}

const POWERS_OF_TEN: [f64; 16] =
    [1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15];

/// The whole number next to a float, halves away from zero; a float where none is so large, null
/// for what is no number.
pub(super) fn whole<'a>(float: f64) -> Value<'a> {
    let rounded = float.round();
    if (-BEYOND_INT..BEYOND_INT).contains(&rounded) {
        Value::Int(rounded as i64)
    } else {
        Value::float(rounded)
    }
}

/// `true` or `false`, in any case.
pub(super) fn boolean(text: &[u8]) -> Option<bool> {
    let text = text.trim_ascii();
    if text.eq_ignore_ascii_case(b"true") {
        Some(true)
    } else {
        text.eq_ignore_ascii_case(b"false").then_some(false)
    }
}

/// A number's text, as short as it can be to come back the same.
pub(super) fn float_text(number: f64) -> String {
    let size = number.abs();
    if size != 0.0 && !(1e-5..1e16).contains(&size) {
        format!("{number:e}")
    } else {
        number.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn numbers_are_numbers_and_words_are_none() {
        for (text, value) in [
            ("0", Some(Value::Int(0))),
            (" -12 ", Some(Value::Int(-12))),
            ("+7", Some(Value::Int(7))),
            ("1.50", Some(Value::Float(1.5))),
            (".5", Some(Value::Float(0.5))),
            ("1e3", Some(Value::Float(1000.0))),
            ("9223372036854775807", Some(Value::Int(i64::MAX))),
            ("-9223372036854775808", Some(Value::Int(i64::MIN))),
            ("9223372036854775808", Some(Value::Float(BEYOND_INT))),
            ("1e999", None),
            ("inf", None),
            ("nan", None),
            ("e", None),
            ("-", None),
            ("", None),
            ("1,5", None),
            ("0x10", None),
        ] {
            assert_eq!(number(text.as_bytes()), value, "{text:?}");
        }
    }

    #[test]
    fn numbers_compare_exactly() {
        let order = |a, b| compare(&a, &b);
        let (int, float) = (Value::Int, Value::Float);
        assert_eq!(order(int(1), float(1.0)), Some(Ordering::Equal));
        assert_eq!(order(int(-1), float(-1.5)), Some(Ordering::Greater));
        assert_eq!(order(float(0.5), int(0)), Some(Ordering::Greater));
        let large = (1 << 53) + 1;
        assert_eq!(order(int(large), float(9_007_199_254_740_992.0)), Some(Ordering::Greater));
        assert_eq!(order(int(i64::MAX), float(BEYOND_INT)), Some(Ordering::Less));
        assert_eq!(order(int(i64::MIN), float(-BEYOND_INT)), Some(Ordering::Equal));
        assert_eq!(order(int(i64::MIN), float(-1e300)), Some(Ordering::Greater));
        assert_eq!(order(int(1), Value::text("1")), None);
    }

    proptest! {
        #[test]
        fn texts_of_numbers_come_back(float: f64, int: i64) {
            if float.is_finite() {
                let back = number(float_text(float).as_bytes()).unwrap();
                prop_assert_eq!(compare(&back, &Value::Float(float)), Some(Ordering::Equal));
            }
            prop_assert_eq!(number(int.to_string().as_bytes()), Some(Value::Int(int)));
        }

        #[test]
        fn short_numbers_are_read_as_the_long_way_does(text in "-?[0-9]{1,12}\\.[0-9]{1,8}") {
            let expected: f64 = text.parse().unwrap();
            let Some(Value::Float(found)) = number(text.as_bytes()) else { panic!("{text}") };
            prop_assert_eq!(found.to_bits(), expected.to_bits(), "{}", text);
        }
    }
}
