//! Conditions and columns as users write them (`--where`, `--select`), evaluated on rows.
//!
//! A text is read once ([`Filter::parse`], [`Selection::parse`]): names are looked up in a
//! [`Scope`], types are checked as far as they are known, and what is wrong is told with its place.
//! What remains is a tree that every core walks, without locks: it reads the cells that it needs
//! out of the rows as they stand.
//!
//! # The language
//!
//! That of SQL's conditions: `= <> != < <= > >=`, `AND OR NOT`, `+ - * / %`, `||`, `IN`, `BETWEEN`,
//! `LIKE` and `ILIKE`, `IS [NOT] NULL`, `IS [NOT] TRUE`, `IS [NOT] DISTINCT FROM`, `CASE`, `CAST`
//! and `::`, `EXTRACT`, `INTERVAL '5m'`, functions. Words are the same in any case; names of
//! columns are not, and stand in double quotes where they are no plain words.
//!
//! Logic has three values: what is compared with null is unknown, and what is unknown does not
//! hold. A cell of CSV that is empty is null, as is a JSON field that is `null` or missing, and
//! every column of a side that is not there. No value is an error: what divides by zero, overflows
//! or does not parse is null. Values that are not of their column's type are counted
//! ([`Scope::warnings`]).
//!
//! Whole numbers are exact; sums that no `i64` holds go on as floats, and `/` always gives one.
//! Times and durations are in ticks of the run. A text that is written out beside a time, a
//! duration or a number is taken for one: `ts > '2024-01-31'`, `right.ts - left.ts < '30s'`.
//!
//! # Why no library
//!
//! What others would add: CPU seconds of a build in this package's release profile, and the CPU
//! time of `amount_right >= amount * 0.99 AND status <> 'REFUSED'` on a pair of short CSV rows. All
//! on one busy virtual machine, so to be read as ratios.
//!
//! | | packages | CPU s | ns a pair | |
//! | --- | --- | --- | --- | --- |
//! | `sqlparser` 0.64 | 2 | 82 | | the grammar alone; 16 s if not optimised |
//! | `evalexpr` 13.1 | 1 | 2 | 1340 | no null, its own operators, AGPL |
//! | `cel` 0.15 | 83 | 115 | 770 | another language, no unknown |
//! | DataFusion 55 | 219 | not built | | by batches of Arrow columns |
//! | `polars-expr` 0.55 | 326 | not built | | likewise |
//! | this room | 0 | | 210 | |
//!
//! A fresh build takes some 2 minutes, and pairs are found one by one, as rows of bytes. So the
//! grammar, which is the small part, is written out here, with a place in every message, and the
//! evaluation reads rows as they stand. `cargo bench --bench expressions` has its figures.

mod build;
mod columns;
mod error;
mod function;
mod lex;
mod like;
mod parse;
mod select;
mod text;
mod tree;
mod value;

#[cfg(test)]
mod tests;

use std::sync::Arc;

pub use columns::{ColumnType, Row, Rows, Scope, SideColumns};
pub use error::{ExprError, Span};
pub use select::{Picked, Selection};
pub use value::Value;

use parse::Parser;
use tree::Expr;

/// A condition on a pair.
///
/// ```
/// use std::sync::Arc;
/// use intervale::expr::{ColumnType, Filter, Row, Scope, SideColumns};
/// use intervale::source::RowFormat;
/// use intervale::time::text::{TimeUnit, Zone};
///
/// let names = |list: &[&str]| list.iter().map(|name| name.to_string()).collect::<Vec<_>>();
/// let side = |columns: &[&str], output: &[&str]| SideColumns {
///     format: RowFormat::CSV,
///     names: names(columns),
///     output_names: names(output),
///     types: vec![ColumnType::Text, ColumnType::Number],
///     given: vec![true; 2],
/// };
/// let columns = ["id", "amount"];
/// let sides = [side(&columns, &columns), side(&columns, &["r", "paid"])];
/// let scope = Arc::new(Scope::new(sides, TimeUnit::Ms, &Zone::UTC));
/// let filter = Filter::parse("paid >= amount * 0.99 AND id LIKE 'o%'", &scope).unwrap();
/// let row = |bytes| Row { bytes, ts: 0 };
/// assert!(filter.holds(row(b"o1,100"), row(b"o1,99.5")));
/// assert!(!filter.holds(row(b"o1,100"), row(b"o1,")), "null is unknown, which does not hold");
/// let error = Filter::parse("amont = paid", &scope).unwrap_err().to_string();
/// assert!(error.contains("there is no column \"amont\" (did you mean \"amount\"?)"));
/// ```
#[derive(Clone, Debug)]
pub struct Filter {
    expr: Expr,
    scope: Arc<Scope>,
}

impl Filter {
    /// Makes sense of a text.
    ///
    /// # Errors
    /// [`ExprError`] says what and where.
    pub fn parse(text: &str, scope: &Arc<Scope>) -> Result<Filter, ExprError> {
        let read = || {
            let mut parser = Parser::new(text, scope)?;
            let whole = parser.expr()?;
            if !parser.is_at_end() {
                return parser.wrong("an operator, or the end,");
            }
            build::whole_condition(whole, scope)
        };
        let expr = read().map_err(|error| error.of(text))?.expr;
        Ok(Filter { expr, scope: Arc::clone(scope) })
    }

    /// Whether it holds of a pair; not if that is unknown. A comparison of two numbers takes about
    /// 120 ns where they stand in short CSV rows, and 600 ns in JSON Lines.
    pub fn holds(&self, left: Row<'_>, right: Row<'_>) -> bool {
        self.holds_of(&Rows::of_sides([Some(left), Some(right)]))
    }

    /// Whether it holds of rows of any number of streams.
    pub fn holds_of(&self, rows: &Rows<'_>) -> bool {
        self.expr.truth(&self.scope, rows) == Some(true)
    }

    /// The columns that it is about, and the counts of values that were not of their type.
    pub fn scope(&self) -> &Arc<Scope> {
        &self.scope
    }
}
