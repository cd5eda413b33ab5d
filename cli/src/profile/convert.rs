//! `convert`: writes profiles in another format.

use std::path::Path;

use athanor_chassis::Status;
use athanor_profile::call_tree::tree::Tree;
use athanor_profile::render::dot::StackTotals;
use athanor_profile::{
    Profile, analysis::prune, formats::folded, formats::pprof, formats::speedscope, render::dot, render::svg,
};

use crate::args::{self, OutputFormat};
use crate::output::{ConsoleOutput, type_name};
use crate::profile::sample_table::{self, BlockInput};
use crate::{failure, profile::input, profile::profile_views};

/// Default maximum of functions in a flame graph image.
const DEFAULT_SVG_NODES: usize = 8192;
/// Default maximum of nodes in a call graph: larger graphs are unreadable.
const DEFAULT_DOT_NODES: usize = 80;

/// Merges all input files and writes the result as one profile.
pub fn run(args: &args::ConvertArgs, output: &ConsoleOutput) -> Result<(), Status> {
    let format = format(&args.out, args.to)?;
    let files = &args.input.files;
    if let Some(format) = format.table_format()
        && files.iter().all(|path| path.is_dir())
    {
        let input =
            BlockInput { folders: files, picked: &args.input.picked, transforms: &args.stacks.transforms };
        return sample_table::write_blocks(input, format, &args.out, output);
    }
    let profile = input::merge_files(&args.input.files, &args.input.picked)?;
    let value = input::select_value(&args.input.files[0], &profile, &args.input.picked)?;
    let shape = ConversionOptions { format, max_nodes: args.max_nodes };
    // Frames that the profile declares uninteresting do not count for images, as in pprof.
    let profile = if shape.format.omits_uninteresting_frames() { pruned(profile) } else { profile };
    let profile = profile_views::transform_profile(profile, &args.stacks.transforms)?;
    write(profile, value, &args.out, shape, title(&args.input.files[0]), output)
}

/// Returns the output format: the requested one, else the one of the file name.
pub fn format(out: &Path, asked: Option<OutputFormat>) -> Result<OutputFormat, Status> {
    asked.or_else(|| by_name(out)).ok_or_else(|| {
        let why = "unknown format of this file name; add --to pprof, folded, speedscope, dot, svg, arrow, parquet or csv";
        failure::invalid_file(out, why)
    })
}

/// Options of a conversion.
#[derive(Clone, Copy)]
pub struct ConversionOptions {
    /// Format of the output.
    pub format: OutputFormat,
    /// Maximum number of functions in an image.
    pub max_nodes: Option<usize>,
}

/// Writes a profile to a file. In JSON mode, also reports the bytes and samples written.
pub fn write(
    profile: Profile,
    value: usize,
    out: &Path,
    shape: ConversionOptions,
    title: String,
    output: &ConsoleOutput,
) -> Result<(), Status> {
    let samples = profile.samples.len();
    let bytes = encode(profile, value, shape, title)?;
    output.write_result(out, &bytes, samples)
}

fn by_name(out: &Path) -> Option<OutputFormat> {
    let name = out.file_name()?.to_str()?.to_lowercase();
    let ends = |endings: &[&str]| endings.iter().any(|ending| name.ends_with(ending));
    let known = [
        (OutputFormat::Speedscope, &[".speedscope.json", ".speedscope"][..]),
        (OutputFormat::Svg, &[".svg"]),
        (OutputFormat::Arrow, &[".arrow"]),
        (OutputFormat::Parquet, &[".parquet"]),
        (OutputFormat::Csv, &[".csv"]),
        (OutputFormat::Dot, &[".dot", ".gv"]),
        (OutputFormat::Folded, &[".folded", ".collapsed", ".txt"]),
        (OutputFormat::Pprof, &[".pb.gz", ".pb", ".pprof.gz", ".pprof", ".prof"]),
    ];
    known.into_iter().find(|(_, endings)| ends(endings)).map(|(format, _)| format)
}

/// Returns the title of a document: the name of its first input.
fn title(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// Returns a profile without the frames that it declares uninteresting.
pub fn pruned(profile: Profile) -> Profile {
    let (profile, bad) = prune::prune(profile);
    if let Some(bad) = bad {
        eprintln!("athanor: {bad}");
    }
    profile
}

/// Renders one type as folded stacks or an image. Images omit the frames that the profile declares
/// uninteresting.
fn picture(profile: Profile, value: usize, shape: ConversionOptions) -> Result<Vec<u8>, Status> {
    let ConversionOptions { format, max_nodes } = shape;
    input::check_sums(&profile, value)?;
    if format == OutputFormat::Folded {
        return Ok(folded::write(&Tree::from_profile(&profile, value)).into_bytes());
    }
    let pruned = pruned(profile);
    let shown = pruned.header.types[value].clone();
    if format == OutputFormat::Dot {
        let totals = pruned.totals_by_stack(value);
        let stacks = StackTotals { dictionary: &pruned.dictionary, totals: &totals, addresses: false };
        return Ok(dot::write(stacks, &shown.unit, max_nodes.unwrap_or(DEFAULT_DOT_NODES)).into_bytes());
    }
    let mut tree = Tree::from_profile(&pruned, value);
    tree.truncate(max_nodes.unwrap_or(DEFAULT_SVG_NODES));
    Ok(svg::write(&tree, &shown.unit, &type_name(&shown)).into_bytes())
}

/// Encodes the whole profile if the format can hold it, else one type of it.
fn encode(
    profile: Profile,
    value: usize,
    shape: ConversionOptions,
    title: String,
) -> Result<Vec<u8>, Status> {
    if let Some(format) = shape.format.table_format() {
        return sample_table::encode_profile(&profile, value, format);
    }
    match shape.format {
        OutputFormat::Pprof => Ok(pprof::gzip(&pprof::encode(&profile))),
        OutputFormat::Speedscope => Ok(speedscope::write(&profile, &title).into_bytes()),
        _ => picture(profile, value, shape),
    }
}
