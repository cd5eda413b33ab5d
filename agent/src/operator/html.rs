//! HTML of the pages. All methods escape their texts, so no label or error of another host becomes markup.

use std::fmt::Write;

const STYLE: &str = "body{font:14px/1.4 system-ui,sans-serif;margin:1.5em;color:#222;background:#fff}\
nav a{margin-right:1em}table{border-collapse:collapse;margin:.5em 0 1.5em}\
th,td{border:1px solid #ccc;padding:.25em .6em;text-align:left;vertical-align:top}th{background:#f2f2f2}\
.bad{color:#a00}.warning{background:#fff3cd;padding:.5em 1em}pre{background:#f6f6f6;padding:1em;overflow:auto}\
@media(prefers-color-scheme:dark){body{color:#ddd;background:#181818}th,pre{background:#262626}\
th,td{border-color:#444}a{color:#8ab4f8}.bad{color:#f88}.warning{background:#4d3f00}}";

const PAGES: [(&str, &str); 4] =
    [("/targets", "Targets"), ("/status", "Status"), ("/config", "Configuration"), ("/metrics", "Metrics")];

/// Page under construction.
pub(super) struct HtmlPage {
    text: String,
}

/// Cell of a table.
pub(super) struct Cell {
    text: String,
    is_bad: bool,
}

impl HtmlPage {
    /// Begins a page with a title, warnings and links to the other pages.
    pub(super) fn new(title: &str, warnings: &[String]) -> Self {
        let mut text = String::from("<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><title>");
        push_escaped(&mut text, title);
        let _ = write!(text, " - athanor-agent</title><style>{STYLE}</style></head><body><nav>");
        for (path, name) in PAGES {
            let _ = write!(text, "<a href=\"{path}\">{name}</a>");
        }
        text.push_str("</nav>");
        let mut page = HtmlPage { text };
        page.element("h1", title);
        warnings.iter().for_each(|warning| page.warning(warning));
        page
    }

    /// Adds the heading of a section.
    pub(super) fn heading(&mut self, text: &str) {
        self.element("h2", text);
    }

    /// Adds a paragraph.
    pub(super) fn paragraph(&mut self, text: &str) {
        self.element("p", text);
    }

    /// Adds a highlighted paragraph.
    pub(super) fn warning(&mut self, text: &str) {
        self.text.push_str("<p class=\"warning\">");
        push_escaped(&mut self.text, text);
        self.text.push_str("</p>");
    }

    /// Adds text with its line breaks.
    pub(super) fn preformatted(&mut self, text: &str) {
        self.element("pre", text);
    }

    /// Adds a table.
    pub(super) fn table(&mut self, columns: &[&str], rows: impl IntoIterator<Item = Vec<Cell>>) {
        self.text.push_str("<table><thead><tr>");
        columns.iter().for_each(|column| self.element("th", column));
        self.text.push_str("</tr></thead><tbody>");
        for row in rows {
            self.text.push_str("<tr>");
            for cell in row {
                self.text.push_str(if cell.is_bad { "<td class=\"bad\">" } else { "<td>" });
                push_escaped(&mut self.text, &cell.text);
                self.text.push_str("</td>");
            }
            self.text.push_str("</tr>");
        }
        self.text.push_str("</tbody></table>");
    }

    /// Adds a table if it has a row.
    pub(super) fn table_unless_empty(&mut self, columns: &[&str], rows: impl IntoIterator<Item = Vec<Cell>>) {
        let mut rows = rows.into_iter().peekable();
        if rows.peek().is_some() {
            self.table(columns, rows);
        }
    }

    /// Ends the page.
    pub(super) fn finish(mut self) -> String {
        self.text.push_str("</body></html>\n");
        self.text
    }

    fn element(&mut self, name: &str, text: &str) {
        let _ = write!(self.text, "<{name}>");
        push_escaped(&mut self.text, text);
        let _ = write!(self.text, "</{name}>");
    }
}

impl Cell {
    /// Creates a cell.
    pub(super) fn new(text: impl Into<String>) -> Self {
        Cell { text: text.into(), is_bad: false }
    }

    /// Creates a cell that is highlighted unless it is empty.
    pub(super) fn problem(text: impl Into<String>) -> Self {
        Cell { is_bad: true, ..Cell::new(text) }
    }
}

fn push_escaped(out: &mut String, text: &str) {
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c => out.push(c),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_text_becomes_markup() {
        let attack = "<script>\"'&</script>";
        let mut page = HtmlPage::new(attack, &[attack.to_owned()]);
        page.heading(attack);
        page.paragraph(attack);
        page.preformatted(attack);
        page.table(&[attack], [vec![Cell::new(attack), Cell::problem(attack)]]);
        let text = page.finish();
        assert!(!text.contains("<script") && !text.contains("\"'&"), "{text}");
        assert_eq!(text.matches("&lt;script&gt;&quot;&#39;&amp;").count(), 9);
    }
}
