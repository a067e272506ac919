//! Values that begin with a word: CASE, CAST, EXTRACT, INTERVAL, calls of functions.

use super::{Parser, Result};
use crate::expr::build::{self, Typed};
use crate::expr::columns::ColumnType;
use crate::expr::error::{ExprError, Span};
use crate::expr::lex::Token;
use crate::expr::value::Value;

impl Parser<'_> {
    pub(super) fn case(&mut self, start: Span) -> Result<Typed> {
        self.advance();
        let subject = if self.is_word("when") { None } else { Some(self.expr()?) };
        let mut arms = Vec::new();
        while self.eat_word("when") {
            let when = self.expr()?;
            self.expect_word("THEN", "behind the condition of WHEN")?;
            arms.push((when, self.expr()?));
        }
        if arms.is_empty() {
            return self.wrong("WHEN");
        }
        let otherwise = if self.eat_word("else") { Some(self.expr()?) } else { None };
        self.expect_word("END", "of the CASE")?;
        build::case(subject, arms, otherwise, start.to(self.before()), self.scope)
    }

    pub(super) fn cast(&mut self, start: Span) -> Result<Typed> {
        self.advance();
        self.advance();
        let operand = self.expr()?;
        self.expect_word("AS", "and a type")?;
        let to = self.type_name()?;
        self.expect(")", "for the CAST")?;
        build::cast(operand, to, start.to(self.before()), self.scope)
    }

    pub(super) fn type_name(&mut self) -> Result<ColumnType> {
        let wanted = format!("a type ({})", ColumnType::NAMES);
        let Token::Word(name) = self.peek().clone() else { return self.wrong(&wanted) };
        let Some(found) = ColumnType::from_name(&name) else { return self.wrong(&wanted) };
        self.advance();
        Ok(found)
    }

    pub(super) fn extract(&mut self, start: Span) -> Result<Typed> {
        self.advance();
        self.advance();
        let part_span = self.here();
        let (Token::Word(part) | Token::Text(part)) = self.peek().clone() else {
            return self.wrong("a part of the date, like HOUR");
        };
        self.advance();
        self.expect_word("FROM", "and a time")?;
        let operand = self.expr()?;
        self.expect(")", "for the EXTRACT")?;
        let span = start.to(self.before());
        if part.eq_ignore_ascii_case("epoch") {
            return build::call("epoch", start, vec![operand], span, self.scope);
        }
        let part = Typed::constant(Value::text(part), part_span);
        build::call("date_part", start, vec![part, operand], span, self.scope)
    }

    /// `INTERVAL '5m'`, `INTERVAL '5 minutes'`.
    pub(super) fn interval(&mut self, start: Span) -> Result<Typed> {
        self.advance();
        let (token, span) = self.advance();
        let Token::Text(text) = token else { return self.wrong("a duration in quotes") };
        let short = shortened(&text);
        match build::duration(short.as_deref().unwrap_or(&text), self.scope) {
            Ok(ticks) => Ok(Typed::constant(Value::Duration(ticks), start.to(span))),
            Err(why) => Err(ExprError::new(span, format!("'{text}' is no duration{why}"))),
        }
    }

    pub(super) fn call(&mut self, name: &str, start: Span) -> Result<Typed> {
        self.advance();
        self.advance();
        let arguments = self.list()?;
        build::call(name, start, arguments, start.to(self.before()), self.scope)
    }
}

/// `5 minutes` as `5m`.
fn shortened(text: &str) -> Option<String> {
    let (number, unit) = text.trim().split_once(' ')?;
    let unit = unit.trim().to_ascii_lowercase();
    let short = match unit.strip_suffix('s').unwrap_or(&unit) {
        "week" => "w",
        "day" => "d",
        "hour" => "h",
        "minute" | "min" => "m",
        "second" | "sec" => "s",
        "millisecond" => "ms",
        "microsecond" => "us",
        "nanosecond" => "ns",
        _ => return None,
    };
    Some(format!("{number}{short}"))
}
