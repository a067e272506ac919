//! The columns of an output: `id, left.*, amount - amount_right AS rest`.

use std::borrow::Cow;
use std::sync::Arc;

use super::columns::{Cell, Column, Rows, Scope};
use super::error::{ExprError, Span};
use super::parse::Parser;
use super::tree::Expr;
use super::value::Value;

/// The columns that users have chosen for an output. Immutable: all cores share one.
#[derive(Clone, Debug)]
pub struct Selection {
    scope: Arc<Scope>,
    names: Vec<String>,
    items: Vec<Item>,
    /// By stream: the columns that are taken as they stand.
    plain: Vec<Vec<Column>>,
}

#[derive(Clone, Debug)]
enum Item {
    /// A column as it stands: its stream and its place among the plain ones there.
    Plain(usize, usize),
    Made(Expr),
}

/// What stands in a chosen column.
#[derive(Clone, Debug, PartialEq)]
pub enum Picked<'a> {
    /// Nothing: the row lacks the column, or is not there.
    Missing,
    /// The text of a cell of CSV or TSV.
    Text(Cow<'a, [u8]>),
    /// The text of a JSON value.
    Json(&'a str),
    /// The value of an expression.
    Value(Value<'a>),
}

impl Selection {
    /// Makes sense of a list of columns: names, `*`, `left.*`, `then1.*`, expressions with AS and a
    /// name. With `left_only` there are no right columns.
    ///
    /// # Errors
    /// [`ExprError`] says what and where.
    pub fn parse(text: &str, scope: &Arc<Scope>, left_only: bool) -> Result<Selection, ExprError> {
        let mut selection = Selection {
            scope: Arc::clone(scope),
            names: Vec::new(),
            items: Vec::new(),
            plain: vec![Vec::new(); scope.streams().len()],
        };
        selection.read(text, left_only).map_err(|error| error.of(text))?;
        Ok(selection)
    }

    fn read(&mut self, text: &str, left_only: bool) -> Result<(), ExprError> {
        let scope = Arc::clone(&self.scope);
        let mut parser = Parser::new(text, &scope)?;
        loop {
            let start = parser.here();
            if let Some((streams, span)) = parser.all_of(left_only)? {
                for stream in streams {
                    let names = &scope.streams()[stream].output_names;
                    for (place, name) in names.iter().enumerate() {
                        self.add(name, Expr::Column(scope.column(stream, place)), span)?;
                    }
                }
            } else {
                let (name, part) = parser.item(left_only)?;
                self.add(&name, part.expr, start.to(part.span))?;
            }
            if parser.is_at_end() {
                return Ok(());
            }
            if !parser.eat(",") {
                return parser.wrong("a comma, or AS and a name,");
            }
        }
    }

    fn add(&mut self, name: &str, expr: Expr, span: Span) -> Result<(), ExprError> {
        if self.names.iter().any(|other| other == name) {
            let why =
                format!("two columns of the output would be called \"{name}\"; name one with AS");
            return Err(ExprError::new(span, why));
        }
        self.names.push(name.to_owned());
        self.items.push(match expr {
            Expr::Column(column) => {
                let (stream, plain) = (column.stream, &mut self.plain[column.stream]);
                // A column that is chosen twice is read once.
                let known = plain.iter().position(|other| other.place == column.place);
                let place = known.unwrap_or(plain.len());
                if known.is_none() {
                    plain.push(column);
                }
                Item::Plain(stream, place)
            }
            expr => Item::Made(expr),
        });
        Ok(())
    }

    /// The columns that it is about, and the counts of values that were not of their type.
    pub fn scope(&self) -> &Arc<Scope> {
        &self.scope
    }

    /// The names of the columns.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// What stands in each column for some rows, in order.
    pub fn pick<'a>(&'a self, rows: &Rows<'a>, mut take: impl FnMut(Picked<'a>)) {
        let cells =
            self.plain.iter().enumerate().map(|(stream, plain)| match rows.stream(stream) {
                Some(row) => Column::cells(plain, row.bytes),
                None => Vec::new(),
            });
        let cells: Vec<_> = cells.collect();
        for item in &self.items {
            take(match item {
                Item::Plain(stream, place) => match cells[*stream].get(*place).cloned().flatten() {
                    None => Picked::Missing,
                    Some(Cell::Text(text)) => Picked::Text(text),
                    Some(Cell::Json(json)) => Picked::Json(json),
                },
                Item::Made(expr) => Picked::Value(expr.value(&self.scope, rows)),
            });
        }
    }

    /// The text of a value; `None` for null.
    pub fn text<'a>(&self, value: Value<'a>) -> Option<Cow<'a, [u8]>> {
        self.scope.text(value)
    }
}
