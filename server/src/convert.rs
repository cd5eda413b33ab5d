//! `convert`: profiles in another format.

use std::path::Path;

use athanor_chassis::Status;
use athanor_profile::dot::StackTotals;
use athanor_profile::tree::Tree;
use athanor_profile::{Profile, dot, folded, pprof, prune, speedscope, svg};

use crate::args::{self, Format};
use crate::output::Output;
use crate::views::FocusedStacks;
use crate::{failure, input, views};

/// Most functions in a picture, if nothing else is asked.
const SVG_NODES: usize = 8192;
/// Most nodes of a call graph, if nothing else is asked: more cannot be read.
const DOT_NODES: usize = 80;

/// Writes one profile, merged from all files.
pub fn run(args: &args::Convert, output: &Output) -> Result<(), Status> {
    let format = format(&args.out, args.to)?;
    let profile = input::merged(&args.input.files, &args.input.picked)?;
    let value = input::value_of(&args.input.files[0], &profile, &args.input.picked)?;
    let shape = Shape { format, max_nodes: args.max_nodes, focus: args.focus.as_deref() };
    write(profile, value, (&args.out, shape, title(&args.input.files[0])), output)
}

/// The format of an output: as asked, else as its name tells.
pub fn format(out: &Path, asked: Option<Format>) -> Result<Format, Status> {
    asked.or_else(|| by_name(out)).ok_or_else(|| {
        let why = "its name tells no format; add --to pprof, folded, speedscope, dot or svg";
        failure::invalid(out, why)
    })
}

/// What to write of a profile.
#[derive(Clone, Copy)]
pub struct Shape<'a> {
    /// How.
    pub format: Format,
    /// Most functions in a picture.
    pub max_nodes: Option<usize>,
    /// Only what this function called.
    pub focus: Option<&'a str>,
}

/// Writes a profile to a file and, in JSON, says what was written.
pub fn write(
    profile: Profile,
    value: usize,
    (out, shape, title): (&Path, Shape<'_>, String),
    output: &Output,
) -> Result<(), Status> {
    let samples = profile.samples.len();
    let bytes = match shape.format {
        Format::Svg | Format::Dot | Format::Folded => picture(profile, value, shape)?,
        Format::Pprof | Format::Speedscope => encode(profile, value, shape.format, title),
    };
    output.result(out, &bytes, samples)
}

fn by_name(out: &Path) -> Option<Format> {
    let name = out.file_name()?.to_str()?.to_lowercase();
    let ends = |endings: &[&str]| endings.iter().any(|ending| name.ends_with(ending));
    let known = [
        (Format::Speedscope, &[".speedscope.json", ".speedscope"][..]),
        (Format::Svg, &[".svg"]),
        (Format::Dot, &[".dot", ".gv"]),
        (Format::Folded, &[".folded", ".collapsed", ".txt"]),
        (Format::Pprof, &[".pb.gz", ".pb", ".pprof.gz", ".pprof", ".prof"]),
    ];
    known.into_iter().find(|(_, endings)| ends(endings)).map(|(format, _)| format)
}

/// What a document is called: its first input's name.
fn title(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// Views of one type. Pictures leave out the frames that a profile declares uninteresting.
fn picture(profile: Profile, value: usize, shape: Shape<'_>) -> Result<Vec<u8>, Status> {
    let Shape { format, max_nodes, focus } = shape;
    if format == Format::Folded {
        let tree = views::focused(Tree::of(&profile, value), focus)?;
        return Ok(folded::write(&tree).into_bytes());
    }
    let (pruned, bad) = prune::prune(profile);
    if let Some(bad) = bad {
        eprintln!("athanor: {bad}");
    }
    let shown = pruned.header.types[value].clone();
    if format == Format::Dot {
        let FocusedStacks { dictionary, totals } = views::focused_stacks(pruned, value, focus)?;
        let stacks = StackTotals { dictionary: &dictionary, totals: &totals, addresses: false };
        return Ok(dot::write(stacks, &shown.unit, max_nodes.unwrap_or(DOT_NODES)).into_bytes());
    }
    let mut tree = views::focused(Tree::of(&pruned, value), focus)?;
    tree.truncate(max_nodes.unwrap_or(SVG_NODES));
    Ok(svg::write(&tree, &shown.unit, &views::type_name(&shown)).into_bytes())
}

/// The whole profile in a format that holds it, or one type of it in any other.
pub fn encode(profile: Profile, value: usize, format: Format, title: String) -> Vec<u8> {
    match format {
        Format::Pprof => pprof::gzip(&pprof::encode(&profile)),
        Format::Speedscope => speedscope::write(&profile, &title).into_bytes(),
        Format::Folded | Format::Svg | Format::Dot => {
            let shape = Shape { format, max_nodes: None, focus: None };
            picture(profile, value, shape).expect("only a focus can fail, and there is none")
        }
    }
}
