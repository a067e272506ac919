//! A page of HTML with everything in it: no script, nothing that has to be fetched.

use crate::cli::plot::{Chart, escape};

/// A page, from top to bottom.
pub(in crate::cli) struct Page {
    pub(in crate::cli) title: String,
    pub(in crate::cli) parts: Vec<Part>,
}

/// A part of a page; all text is plain.
pub(in crate::cli) enum Part {
    Heading(String),
    Paragraph(String),
    /// Kept as it stands, in letters of one width.
    Text(String),
    /// A bold line: what it comes to. The flag is whether that is good.
    Verdict(String, bool),
    /// The first row is the head, the first column the rows' names.
    Table(Vec<Vec<String>>),
    List(Vec<String>),
    Chart(Box<Chart>),
}

const STYLE: &str = "\
:root { color-scheme: light; background: #fff; } \
body { font-family: system-ui, sans-serif; margin: 2em auto; max-width: 72em; padding: 0 1em; \
color: #222; line-height: 1.45; } \
h1 { font-size: 1.5em; } h2 { font-size: 1.15em; margin-top: 2em; } \
svg { max-width: 100%; height: auto; display: block; margin: 1em 0; } \
pre { overflow-x: auto; } .wide { overflow-x: auto; } \
table { border-collapse: collapse; font-size: 0.9em; font-variant-numeric: tabular-nums; } \
th, td { padding: 0.25em 0.45em; border-bottom: 1px solid #ddd; text-align: right; \
white-space: nowrap; } \
th { white-space: normal; vertical-align: bottom; } \
th:first-child, td:first-child { text-align: left; } \
.good, .poor { font-weight: bold; padding: 0.4em 0.8em; border-left: 5px solid #009e73; } \
.poor { border-color: #d55e00; }";

impl Page {
    /// The document; `first` is a chart to stand before everything else.
    pub(super) fn html_with(&self, first: Option<&Chart>) -> String {
        let title = escape(&self.title);
        let mut html = format!(
            "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
             <title>{title}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<h1>{title}</h1>\n"
        );
        if let Some(chart) = first {
            html.push_str(&chart.svg());
        }
        self.parts.iter().for_each(|part| part.write(&mut html));
        html.push_str("</body>\n</html>\n");
        html
    }
}

impl Part {
    fn write(&self, html: &mut String) {
        let element = |name: &str, text: &str| format!("<{name}>{}</{name}>\n", escape(text));
        match self {
            Part::Heading(text) => html.push_str(&element("h2", text)),
            Part::Paragraph(text) => html.push_str(&element("p", text)),
            Part::Text(text) => html.push_str(&element("pre", text)),
            Part::Verdict(text, is_good) => {
                let class = if *is_good { "good" } else { "poor" };
                html.push_str(&format!("<p class=\"{class}\">{}</p>\n", escape(text)));
            }
            Part::List(items) => {
                html.push_str("<ul>\n");
                items.iter().for_each(|item| html.push_str(&element("li", item)));
                html.push_str("</ul>\n");
            }
            Part::Table(rows) => {
                html.push_str("<div class=\"wide\"><table>\n");
                for (index, row) in rows.iter().enumerate() {
                    let name = if index == 0 { "th" } else { "td" };
                    let cells: String = row.iter().map(|cell| element(name, cell)).collect();
                    html.push_str(&format!("<tr>\n{cells}</tr>\n"));
                }
                html.push_str("</table></div>\n");
            }
            Part::Chart(chart) => html.push_str(&chart.svg()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_is_there_and_no_text_is_markup() {
        let bad = || "<script>&".to_owned();
        let parts = vec![
            Part::Heading(bad()),
            Part::Paragraph(bad()),
            Part::Text(bad()),
            Part::Verdict(bad(), true),
            Part::List(vec![bad()]),
            Part::Table(vec![vec![bad()], vec![bad()]]),
        ];
        let html = Page { title: bad(), parts }.html_with(None);
        assert_eq!(html.matches("&lt;script&gt;&amp;").count(), 9, "{html}");
        assert!(!html.contains("<script") && !html.contains("http"), "{html}");
        for name in ["h1", "h2", "p", "pre", "li", "ul", "th", "td", "tr", "table", "div", "body"] {
            let (opened, closed) = (format!("<{name}"), format!("</{name}>"));
            let opened = html.matches(&format!("{opened}>")).count()
                + html.matches(&format!("{opened} ")).count();
            assert_eq!(opened, html.matches(&closed).count(), "{name}: {html}");
        }
    }
}
