//! `--plot FILE`: where a chart or a page goes.

use std::path::{Path, PathBuf};

use crate::cli::Failure;
use crate::cli::plot::{Chart, Page, Part};
use crate::sink::{OpenMode, Output};

/// What a plot file is to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::cli) struct PlotFile {
    path: PathBuf,
    is_page: bool,
}

impl PlotFile {
    /// From a name that ends in `.svg` or `.html`, for clap.
    pub(in crate::cli) fn parse(text: &str) -> Result<PlotFile, String> {
        let ending = Path::new(text).extension().and_then(|ending| ending.to_str());
        match ending.map(str::to_ascii_lowercase).as_deref() {
            Some("svg") => Ok(PlotFile { path: text.into(), is_page: false }),
            Some("html" | "htm") => Ok(PlotFile { path: text.into(), is_page: true }),
            _ => Err("end the name in .svg or .html".to_owned()),
        }
    }

    /// Whether it is a page rather than a chart.
    pub(in crate::cli) fn is_page(&self) -> bool {
        self.is_page
    }

    /// Opens the file, before the work whose result it is to show.
    ///
    /// # Errors
    /// [`Failure::Failed`] says why it cannot be written.
    pub(in crate::cli) fn open(&self) -> Result<OpenPlot, Failure> {
        let opened = Output::open(&self.path, OpenMode::Replace);
        let (output, _) = opened.map_err(|error| Failure::failed(format!("--plot {error}")))?;
        Ok(OpenPlot { output, is_page: self.is_page })
    }
}

/// A file that takes its place when the plot is written.
pub(in crate::cli) struct OpenPlot {
    output: Output,
    is_page: bool,
}

impl OpenPlot {
    /// Writes the chart; a page has `words` (plain text) below it.
    ///
    /// # Errors
    /// [`Failure::Failed`] says why it cannot be written.
    pub(in crate::cli) fn write(self, chart: &Chart, words: &str) -> Result<(), Failure> {
        if !self.is_page {
            return self.write_text(&chart.svg());
        }
        let page = Page { title: chart.title.clone(), parts: vec![Part::Text(words.to_owned())] };
        self.write_text(&page.html_with(Some(chart)))
    }

    /// Writes a page, or, where only a chart was asked for, a chart.
    ///
    /// # Errors
    /// [`Failure::Failed`] says why it cannot be written.
    pub(in crate::cli) fn write_page(self, chart: &Chart, page: &Page) -> Result<(), Failure> {
        let text = if self.is_page { page.html_with(None) } else { chart.svg() };
        self.write_text(&text)
    }

    fn write_text(self, text: &str) -> Result<(), Failure> {
        let written = self.output.write(text.as_bytes(), 0).and_then(|()| self.output.commit());
        written
            .map_err(|error| Failure::failed(format!("--plot {error}; the results are complete")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ending_says_what_to_write() {
        assert!(PlotFile::parse("a.SVG").is_ok_and(|file| !file.is_page));
        assert!(PlotFile::parse("a/b.html").is_ok_and(|file| file.is_page));
        assert!(PlotFile::parse("a.png").is_err() && PlotFile::parse("svg").is_err());
    }
}
