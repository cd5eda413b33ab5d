//! Flame graphs for the terminal, root on top.

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use crate::call_tree::tree::Tree;
use crate::render::layout::{FlameBar, bar_name, bar_value, layout_bars};

/// Size and colors of a graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AnsiOptions {
    /// Width in terminal columns; every line fills them.
    pub width: usize,
    /// Maximum height in lines.
    pub height: usize,
    /// Uses 256 colors; without colors, bars are in brackets.
    pub color: bool,
}

const RESET_SEQUENCE: &str = "\x1b[0m";
/// Palette of the bars, from red to yellow.
const WARM_COLORS: [u8; 12] = [167, 173, 179, 209, 208, 214, 215, 220, 221, 203, 216, 222];
/// Color of the root and of the nodes that replace truncated ones.
const GRAY_COLOR: u8 = 248;

/// Returns the flame graph of a tree. Bars narrower than half a column are omitted. If rows are omitted, the
/// last line contains their number.
pub fn write(tree: &Tree, unit: &str, options: AnsiOptions) -> String {
    let AnsiOptions { width, height, .. } = options;
    if width == 0 || height == 0 {
        return String::new();
    }
    let bars = layout_bars(tree);
    let columns = |bar: &FlameBar| {
        let column = |place: f64| (place * width as f64).round() as usize;
        (column(bar.start), column(bar.end).min(width))
    };
    let levels = bars.iter().map(|bar| bar.level + 1).max().unwrap_or(0);
    let wide = bars.iter().filter(|bar| columns(bar).0 < columns(bar).1);
    let visible = wide.map(|bar| bar.level + 1).max().unwrap_or(0);
    let shown = if visible == levels && levels <= height { levels } else { visible.min(height - 1) };
    let mut rows = vec![TerminalRow::default(); shown];
    for (at, bar) in bars.iter().enumerate().take_while(|(_, bar)| bar.level < shown) {
        let (start, end) = columns(bar);
        if start < end {
            let node = &tree.nodes()[at];
            let name = bar_name(tree, at);
            let fill = if node.other || at == 0 { BarColor::Grey } else { BarColor::from_name(&name) };
            let label = label(&name, &bar_value(tree, at, unit), label_width(end - start, options.color));
            rows[bar.level].push(start, end, &label, fill, options.color);
        }
    }
    let mut text = String::new();
    for mut row in rows {
        row.fill_to(width);
        text.push_str(&row.text);
        text.push('\n');
    }
    if shown < levels {
        let cut = levels - shown;
        text.push_str(&fit(&format!("… {cut} more row{}", if cut == 1 { "" } else { "s" }), width, ' '));
        text.push('\n');
    }
    text
}

/// Color of a bar.
#[derive(Clone, Copy, PartialEq, Eq)]
enum BarColor {
    Grey,
    /// Index into [`WARM_COLORS`].
    Warm(usize),
}

impl BarColor {
    /// Returns a color that depends only on the name.
    fn from_name(name: &str) -> BarColor {
        BarColor::Warm(
            (crate::encoding::hash::hash_bytes(name.as_bytes()) % WARM_COLORS.len() as u128) as usize,
        )
    }
}

/// Line that is being written.
#[derive(Clone, Default)]
struct TerminalRow {
    text: String,
    column: usize,
    last: Option<BarColor>,
}

impl TerminalRow {
    fn fill_to(&mut self, to: usize) {
        if to > self.column {
            self.text.extend(std::iter::repeat_n(' ', to - self.column));
            (self.column, self.last) = (to, None);
        }
    }
    fn push(&mut self, start: usize, end: usize, label: &str, fill: BarColor, color: bool) {
        self.fill_to(start);
        let width = end - start;
        if color {
            // Adjacent bars get different colors.
            let fill = match fill {
                BarColor::Warm(at) if self.last == Some(fill) => BarColor::Warm((at + 1) % WARM_COLORS.len()),
                fill => fill,
            };
            let code = if let BarColor::Warm(at) = fill { WARM_COLORS[at] } else { GRAY_COLOR };
            let label = fit(label, width, ' ');
            self.text.push_str(&format!("\x1b[38;5;16;48;5;{code}m{label}{RESET_SEQUENCE}"));
            self.last = Some(fill);
        } else if width == 1 {
            self.text.push('|');
        } else {
            self.text.push_str(&format!("[{}]", fit(label, width - 2, '-')));
        }
        self.column = end;
    }
}

/// Returns the columns that a bar has for its label.
fn label_width(width: usize, color: bool) -> usize {
    if color { width } else { width.saturating_sub(2) }
}

fn label(name: &str, value: &str, width: usize) -> String {
    let whole = format!("{name} {value}");
    if whole.width() <= width { whole } else { name.to_owned() }
}

/// Returns the text truncated or padded to exactly this many columns.
fn fit(text: &str, width: usize, fill: char) -> String {
    let mut fitted = String::with_capacity(width);
    let mut used = 0;
    let whole = columns(text) <= width;
    let room = if whole { width } else { width.saturating_sub(1) };
    for c in text.chars() {
        let columns = c.width().unwrap_or(0);
        if used + columns > room {
            break;
        }
        fitted.push(c);
        used += columns;
    }
    if !whole && width > 0 {
        fitted.push('…');
        used += 1;
    }
    fitted.extend(std::iter::repeat_n(fill, width - used));
    fitted
}

/// Returns the width in columns, character by character.
fn columns(text: &str) -> usize {
    text.chars().map(|c| c.width().unwrap_or(0)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call_tree::tree::tests::tree;
    use crate::generate::arbitrary_profile;
    use proptest::prelude::*;

    const PLAIN: AnsiOptions = AnsiOptions { width: 40, height: 10, color: false };

    #[test]
    fn bars_are_in_brackets_where_there_are_no_colours() {
        let text = write(&tree(&[("main;work", 20), ("main;a_rather_long_name", 10), ("x", 10)]), "", PLAIN);
        let expected = [
            "[total 40, 100.00 %--------------------]",
            "[main 30, 75.00 %------------][x-------]",
            "[a_rathe…][work 20, 50.00 %--]          ",
        ];
        assert_eq!(text.lines().collect::<Vec<_>>(), expected);
    }

    #[test]
    fn a_last_line_tells_what_is_cut() {
        let deep = tree(&[("a;b;c;d", 39), ("e;f;g;h;i;j", 1)]);
        let lines = |height| -> Vec<String> {
            let text = write(&deep, "", AnsiOptions { height, ..PLAIN });
            text.lines().map(|line| line.trim_end().to_owned()).collect()
        };
        assert_eq!(lines(10).len(), 7);
        let cut = lines(3);
        assert_eq!((cut.len(), cut[2].as_str()), (3, "… 5 more rows"));
        assert_eq!(lines(1), ["… 7 more rows"]);
        assert_eq!(lines(0), [""; 0]);
        let narrow = write(&deep, "", AnsiOptions { width: 10, ..PLAIN });
        assert_eq!(narrow.lines().last(), Some("… 2 more …"), "rows of nothing but narrow bars are cut too");
    }

    #[test]
    fn colours_are_of_256_and_neighbours_differ() {
        let mut whole = tree(&[("a", 1), ("b;a", 1), ("b;a;a", 3)]);
        let text = write(&whole, "", AnsiOptions { color: true, ..PLAIN });
        assert!(text.starts_with("\x1b[38;5;16;48;5;248mtotal 5, 100.00 %"));
        assert_eq!(text.matches("\x1b[").count(), 2 * 5);
        whole.truncate(1);
        assert_eq!(write(&whole, "", AnsiOptions { color: true, ..PLAIN }).matches("48;5;248m").count(), 3);
    }

    #[test]
    fn names_are_neutralised() {
        let text = write(&tree(&[("\x1b[2J\u{9b}\r\nx\u{202e}", 1)]), "\x1b[1m", PLAIN);
        assert!(text.contains("[\u{fffd}[2J\u{fffd}\u{fffd}\u{fffd}x\u{fffd} 1 \u{fffd}[1m, 100.00 %"));
    }

    /// Without the colours.
    fn bare(text: &str) -> String {
        let mut parts = text.split("\x1b[");
        let first = parts.next().unwrap().to_owned();
        first + &parts.map(|part| part.split_once('m').unwrap().1).collect::<String>()
    }

    proptest! {
        #[test]
        fn graphs_fit(seed: u64, wide in any::<bool>(), width in 0usize..120, height in 0usize..30) {
            let profile = arbitrary_profile(seed);
            let mut tree = Tree::from_profile(&profile, 0);
            if wide {
                tree.merge(&crate::call_tree::tree::tests::tree(&[("日本語の名前;e\u{301}a\u{301};👩‍👩‍👧‍👦", 1 << 60)]));
            }
            let text = write(&tree, "count", AnsiOptions { width, height, color: false });
            prop_assert!(text.lines().count() <= height);
            let colored = write(&tree, "count", AnsiOptions { width, height, color: true });
            prop_assert_eq!(text.lines().count(), colored.lines().count());
            for line in text.lines().chain(bare(&colored).lines()) {
                prop_assert_eq!(columns(line), width);
                prop_assert!(line.width() <= width);
                prop_assert!(!line.contains(char::is_control));
            }
        }
    }
}
