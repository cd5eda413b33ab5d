//! Writer of flame graphs as self-contained SVG files: names on hover, zoom on click, a search box.
//!
//! A graph fills the width of its window. Its script lays the boxes out for each width, so that text keeps its size.
//! Without the script, as inside an image, the graph scales as a whole.
//!
//! All displayed text is escaped. The script contains no part of a profile and writes text only.

use std::fmt::Write;

use crate::call_tree::tree::Tree;
use crate::data_model::symbols::NO_ENTRY;
use crate::render::layout::{bar_name, bar_value, layout_bars};
use crate::render::printable::{replace_control, shorten_name};

/// Width of the coordinates in the file. The script replaces it by the width of the window.
const GRAPH_WIDTH_PX: f64 = 1200.0;
/// Height above the root, for title and search box.
const HEADER_HEIGHT_PX: usize = 34;
const ROW_HEIGHT_PX: usize = 17;
/// Width of a letter. Boxes with space for fewer than three letters have no text.
const LETTER_WIDTH_PX: f64 = 7.25;
/// Distance of the search box from the right edge. The title ends before it.
const SEARCH_BOX_OFFSET_PX: f64 = 260.0;
const EMPTY_GRAPH_TEXT: &str = "There are no samples of this in this time.";
/// Minimum width of a box. Narrower ones are left out.
const MIN_BOX_WIDTH_PX: f64 = 0.1;

const GRAPH_STYLE: &str = "svg{width:100%;height:auto}text{font:12px monospace;fill:#111;pointer-events:none}\
    .b{cursor:pointer}.b:hover rect{stroke:#111}.d rect{opacity:.45}.h{display:none}.m rect{fill:#c3f}\
    input{font:12px monospace;width:100%;box-sizing:border-box}";

/// Script of every graph. It is constant, so servers can allow it by its hash.
pub const GRAPH_SCRIPT: &str = r#"
"use strict";
(function () {
  const svg = document.currentScript.ownerSVGElement, written = svg.viewBox.baseVal;
  const letter = 7.25, fileWidth = written.width, height = written.height, offset = 260, least = 480;
  const field = svg.querySelector("foreignObject"), heading = svg.querySelector("text");
  const title = svg.querySelector("title").textContent;
  const boxes = Array.from(svg.querySelectorAll("g.b"), function (g) {
    const rect = g.querySelector("rect");
    const x = rect.getAttribute("x") / fileWidth, w = rect.getAttribute("width") / fileWidth;
    const name = g.querySelector("title").textContent.split("\n")[0];
    return { g, rect, text: g.querySelector("text"), name, x, w, y: +rect.getAttribute("y") };
  });
  let zoomed = { x: 0, w: 1, y: 0 };
  function fit(name, w) {
    const letters = Math.floor((w - 6) / letter), all = Array.from(name);
    if (letters < 3) return "";
    return all.length <= letters ? name : all.slice(0, letters - 1).join("") + "…";
  }
  function draw() {
    const width = Math.max(least, svg.getBoundingClientRect().width || fileWidth);
    const scale = width / zoomed.w, slack = 1e-6;
    svg.setAttribute("viewBox", "0 0 " + width + " " + height);
    field.setAttribute("x", width - offset);
    heading.textContent = fit(title, width - offset);
    for (const box of boxes) {
      const above = box.y < zoomed.y;
      const covers = box.x <= zoomed.x + slack && box.x + box.w >= zoomed.x + zoomed.w - slack;
      const within = box.x >= zoomed.x - slack && box.x + box.w <= zoomed.x + zoomed.w + slack;
      const shown = above ? covers : within;
      box.g.classList.toggle("h", !shown);
      box.g.classList.toggle("d", above && shown);
      if (!shown) continue;
      const x = above ? 0 : (box.x - zoomed.x) * scale, w = above ? width : box.w * scale;
      box.rect.setAttribute("x", x);
      box.rect.setAttribute("width", w);
      box.text.setAttribute("x", x + 3);
      box.text.textContent = fit(box.name, w);
    }
  }
  for (const box of boxes) {
    box.g.addEventListener("click", function () {
      zoomed = box;
      draw();
    });
  }
  svg.querySelector("input").addEventListener("input", function (event) {
    const wanted = event.target.value.toLowerCase();
    for (const box of boxes) {
      box.g.classList.toggle("m", wanted !== "" && box.name.toLowerCase().includes(wanted));
    }
  });
  window.addEventListener("resize", draw);
  draw();
})();
"#;

/// Writes the flame graph of a tree, root on top. Boxes that are too narrow to be visible are left out.
pub fn write(tree: &Tree, unit: &str, title: &str) -> String {
    let bars = layout_bars(tree);
    let seen = |at: usize| at == 0 || (bars[at].end - bars[at].start) * GRAPH_WIDTH_PX >= MIN_BOX_WIDTH_PX;
    let rows = (0..bars.len()).filter(|&at| seen(at)).map(|at| bars[at].level + 1).max().unwrap_or(0);
    let height = HEADER_HEIGHT_PX + rows * ROW_HEIGHT_PX + 4;
    let title = replace_control(title);
    let search_x = GRAPH_WIDTH_PX - SEARCH_BOX_OFFSET_PX;
    let drawn = escape(&fit(&title, search_x));
    let title = escape(&title);
    let has_samples = bars.len() > 1;
    // Writing to a string cannot fail.
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"100%\" viewBox=\"0 0 {GRAPH_WIDTH_PX} {height}\" \
         preserveAspectRatio=\"xMinYMin meet\">\n<title>{title}</title>\n<style>{GRAPH_STYLE}</style>\n\
         <rect width=\"100%\" height=\"{height}\" fill=\"#fff\"/>\n<text x=\"3\" y=\"21\">{drawn}</text>\n\
         <foreignObject x=\"{search_x}\" y=\"5\" width=\"256\" height=\"26\"><input \
         xmlns=\"http://www.w3.org/1999/xhtml\" type=\"search\" placeholder=\"search\"/></foreignObject>\n"
    );
    if !has_samples {
        let _ = writeln!(text, "<text x=\"3\" y=\"{}\">{EMPTY_GRAPH_TEXT}</text>", HEADER_HEIGHT_PX + 12);
    }
    for at in (0..bars.len()).filter(|&at| has_samples && seen(at)) {
        let node = &tree.nodes()[at];
        let x = bars[at].start * GRAPH_WIDTH_PX;
        let width = (bars[at].end - bars[at].start) * GRAPH_WIDTH_PX;
        let y = HEADER_HEIGHT_PX + bars[at].level * ROW_HEIGHT_PX;
        let name = bar_name(tree, at);
        let name = shorten_name(&name);
        let fill = if node.other || node.parent == NO_ENTRY { "#bbb".into() } else { warm(&name) };
        let full = escape(&name);
        let cut = escape(&fit(&name, width));
        let _ = writeln!(
            text,
            "<g class=\"b\"><title>{full}\n{}</title><rect x=\"{x:.3}\" y=\"{y}\" width=\"{width:.3}\" \
             height=\"{}\" fill=\"{fill}\"/><text x=\"{:.3}\" y=\"{}\">{cut}</text></g>",
            escape(&bar_value(tree, at, unit)),
            ROW_HEIGHT_PX - 1,
            x + 3.0,
            y + 12,
        );
    }
    let _ = write!(text, "<script><![CDATA[{GRAPH_SCRIPT}]]></script>\n</svg>\n");
    text
}

/// Returns a color between red and yellow, derived from the name.
fn warm(name: &str) -> String {
    let hash = crate::encoding::hash::hash_bytes(name.as_bytes());
    format!("hsl({},{}%,{}%)", 5 + hash % 50, 70 + (hash >> 16) % 25, 60 + (hash >> 32) % 12)
}

fn fit(name: &str, width: f64) -> String {
    let letters = ((width - 6.0) / LETTER_WIDTH_PX).max(0.0) as usize;
    if letters < 3 {
        String::new()
    } else if name.chars().count() <= letters {
        name.to_owned()
    } else {
        name.chars().take(letters - 1).chain(['…']).collect()
    }
}

/// Escapes text for element content and quoted attributes.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            _ => escaped.push(c),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Dictionary;
    use crate::call_tree::tree::tests::tree;
    use crate::generate::arbitrary_profile;

    /// The tags of a text in their order, and what is between them; panics where XML is not well-formed.
    fn parse(text: &str) -> (Vec<String>, Vec<String>) {
        let (mut open, mut tags, mut texts) = (Vec::<String>::new(), Vec::new(), Vec::new());
        let mut rest = text;
        while let Some(start) = rest.find('<') {
            texts.push(rest[..start].to_owned());
            rest = &rest[start + 1..];
            if let Some(data) = rest.strip_prefix("![CDATA[") {
                rest = &data[data.find("]]>").unwrap() + 3..];
                continue;
            }
            let end = rest.find('>').unwrap();
            let tag = &rest[..end];
            rest = &rest[end + 1..];
            match tag.strip_prefix('/') {
                Some(name) => assert_eq!(open.pop().as_deref(), Some(name)),
                None => {
                    let name = tag.split([' ', '/']).next().unwrap().to_owned();
                    if !tag.ends_with('/') {
                        open.push(name.clone());
                    }
                    tags.push(name);
                }
            }
        }
        assert!(open.is_empty(), "{open:?} are not closed");
        (tags, texts)
    }

    #[test]
    fn hostile_names_stay_text() {
        let hostile = [
            "</title><script>alert(1)</script>",
            "\" onload=\"alert(1)",
            "]]><script>alert(2)</script>",
            "' x='",
            "&lt;b>&#60;\0\x1b",
            "<!-- ",
            "\u{ffff}\u{202e}\nsecond line",
        ];
        let side_by_side = |names: [&str; 7]| {
            let mut dictionary = Dictionary::default();
            names.iter().for_each(|name| _ = dictionary.intern_named_stack([*name].into_iter()));
            Tree::from_totals(&dictionary, &[10; 7])
        };
        let tame = write(&side_by_side(["a", "b", "c", "d", "e", "f", "g"]), "x", "t");
        for title in hostile {
            let text = write(&side_by_side(hostile), "</g><script>", title);
            let (tags, texts) = parse(&text);
            assert_eq!(tags, parse(&tame).0, "no tag comes from a name");
            assert_eq!(tags.iter().filter(|tag| *tag == "script").count(), 1);
            assert!(texts.iter().all(|text| !text.contains(|c: char| c.is_control() && c != '\n')));
            assert_eq!(text.matches("]]>").count(), 1);
        }
    }

    #[test]
    fn boxes_have_their_places() {
        let mut whole = tree(&[("main;a", 7500), ("main;b", 2499), ("main;c", 1)]);
        let text = write(&whole, "count", "cpu");
        assert!(text.contains("<title>main\n10000, 100.00 %</title><rect x=\"0.000\" y=\"51\""));
        assert!(text.contains("<title>a\n7500, 75.00 %</title><rect x=\"0.000\" y=\"68\" width=\"900.000\""));
        assert!(text.contains("<title>c\n"), "0.12 pixels are shown");
        whole.merge(&tree(&[("main;b", 10_000)]));
        let text = write(&whole, "count", "cpu");
        assert!(!text.contains("<title>c\n"), "0.06 pixels are not");
        whole.truncate(2);
        let text = write(&whole, "count", "cpu");
        let other = text.lines().position(|line| line.contains("<title>other")).unwrap();
        assert!(text.lines().nth(other + 1).unwrap().contains("fill=\"#bbb\""));
    }

    #[test]
    fn graph_fills_the_width_of_its_window() {
        let text = write(&tree(&[("main;a", 3)]), "count", &"long title ".repeat(40));
        let head = &text[..text.find('>').unwrap()];
        assert!(head.contains("width=\"100%\" viewBox=\"0 0 1200 "), "{head}");
        assert!(!head.contains(" height="), "the height follows from the width: {head}");
        let drawn = text.split("<text x=\"3\" y=\"21\">").nth(1).unwrap().split('<').next().unwrap();
        assert!(drawn.ends_with('…') && drawn.chars().count() as f64 * LETTER_WIDTH_PX < 940.0, "{drawn}");
        // The script derives all sizes from those in the file.
        for size in [format!("letter = {LETTER_WIDTH_PX}"), format!("offset = {SEARCH_BOX_OFFSET_PX}")] {
            assert!(GRAPH_SCRIPT.contains(&size), "{size}");
        }
    }

    #[test]
    fn whatever_is_in_a_profile_the_file_is_well_formed() {
        for seed in 0..200 {
            let profile = arbitrary_profile(seed);
            for value in 0..profile.header.types.len() {
                parse(&write(&Tree::from_profile(&profile, value), &profile.header.types[value].unit, "t"));
            }
        }
    }
}
