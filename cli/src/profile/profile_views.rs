//! Commands `top`, `flamegraph` and `info`.

use std::fmt::Write;

use athanor_chassis::{ErrorCode, Status};
use athanor_profile::analysis::sandwich::SandwichView;
use athanor_profile::analysis::top_table::{TopRow, TopTable};
use athanor_profile::analysis::transform::StackTransforms;
use athanor_profile::analysis::value_divisor::ValueDivisor;
use athanor_profile::call_tree::flamegraph::Flamegraph;
use athanor_profile::call_tree::tree::Tree;
use athanor_profile::render::units::format_value;
use athanor_profile::{Profile, ValueType, render::ansi};
use serde_json::{Value, json};

use crate::args::{FlamegraphViewArgs, TopViewArgs};
use crate::output::{ConsoleOutput, format_percent, format_rfc3339, harmless, type_name};
use crate::{args, profile::input};

/// Lists the functions with the highest cost.
pub fn top(args: &args::TopArgs, output: &ConsoleOutput) -> Result<(), Status> {
    let (profile, value) = input::merge_input_for_view(&args.input)?;
    let profile = transform_profile(profile, &args.view.stacks.transforms)?;
    table(&profile, value, ValueDivisor::default(), &args.view, output)
}

/// Lists the functions of a profile with the highest cost, or the callers and callees of one function. Values are
/// divided after they are added up.
pub fn table(
    profile: &Profile,
    value: usize,
    divisor: ValueDivisor,
    view: &TopViewArgs,
    output: &ConsoleOutput,
) -> Result<(), Status> {
    let tree = Tree::from_profile(profile, value);
    let shown = &profile.header.types[value];
    if let Some(function) = &view.sandwich {
        return sandwich(view, &tree, function, shown, divisor, output);
    }
    let mut table = TopTable::from_tree(&tree);
    divisor.divide_table(&mut table);
    let rows = &table.rows[..view.limit.min(table.rows.len())];
    output.print_json_or_text(
        || {
            let rows: Vec<Value> = rows.iter().map(row_json).collect();
            json!({ "type": type_name(shown), "unit": shown.unit, "total": table.total,
                "averaged_profiles": divisor.averaged_profiles(), "functions": table.rows.len(), "rows": rows })
        },
        || table_text(profile, value, &table, divisor, rows, output),
    )
}

fn row_json(row: &TopRow) -> Value {
    json!({
        "name": row.name, "flat": row.flat, "flat_share": row.flat_share, "sum_share": row.sum_share,
        "cum": row.cum, "cum_share": row.cum_share,
    })
}

fn table_text(
    profile: &Profile,
    value: usize,
    table: &TopTable,
    divisor: ValueDivisor,
    rows: &[TopRow],
    output: &ConsoleOutput,
) -> String {
    let shown = &profile.header.types[value];
    let mut text = String::new();
    // Writing to a string does not fail, here and below.
    let _ = writeln!(text, "Type: {}", harmless(&type_name(shown)));
    text.push_str(&averages_line(divisor));
    if profile.header.time_nanos != 0 {
        let _ = write!(text, "Time: {}", format_rfc3339(profile.header.time_nanos));
        if profile.header.duration_nanos > 0 {
            let _ =
                write!(text, ", duration: {}", format_value(profile.header.duration_nanos, "nanoseconds"));
        }
        text.push('\n');
    }
    let seen = rows.iter().fold(0i64, |sum, row| sum.wrapping_add(row.flat));
    let share = rows.last().map_or(0.0, |row| row.sum_share);
    let count = rows.len();
    let all = table.rows.len();
    let seen = format_value(seen, &shown.unit);
    let total = format_value(table.total, &shown.unit);
    let _ = writeln!(
        text,
        "Showing {count} of {all} functions, accounting for {seen}, {} of {total} total",
        format_percent(share)
    );
    let head = format!("{:>10} {:>7} {:>7} {:>10} {:>7}  name", "flat", "flat%", "sum%", "cum", "cum%");
    let _ = writeln!(text, "{}", output.format_bold(&head));
    for row in rows {
        let flat = format_value(row.flat, &shown.unit);
        let cum = format_value(row.cum, &shown.unit);
        let [flat_share, sum, all] = [row.flat_share, row.sum_share, row.cum_share].map(format_percent);
        let _ =
            writeln!(text, "{flat:>10} {flat_share:>7} {sum:>7} {cum:>10} {all:>7}  {}", harmless(&row.name));
    }
    text
}

/// Returns a line that names the number of averaged profiles, or nothing if values are sums.
fn averages_line(divisor: ValueDivisor) -> String {
    match divisor.averaged_profiles() {
        0 => String::new(),
        profiles => format!("Values: averages of {profiles} profiles\n"),
    }
}

/// Checks that a function exists. The error names similar functions.
fn known(tree: &Tree, function: &str) -> Result<(), Status> {
    // The empty name of the root may be that of a function too.
    let mut nodes = tree.nodes().iter().skip(1);
    if nodes.any(|node| !node.other && tree.name(node) == function) {
        return Ok(());
    }
    let wanted = function.to_lowercase();
    let like = tree.names().iter().filter(|name| !name.is_empty() && name.to_lowercase().contains(&wanted));
    let like: Vec<String> = like.take(5).map(|name| harmless(name)).collect();
    let hint = match like.is_empty() {
        true => "`athanor top` lists the functions".to_owned(),
        false => format!("similar: {}", like.join(", ")),
    };
    Err(Status::new(ErrorCode::NotFound, format!("no function {function:?} in the profile; {hint}")))
}

/// Returns the profile with all stacks rewritten. Rejects transforms that leave no stack.
pub fn transform_profile(profile: Profile, transforms: &StackTransforms) -> Result<Profile, Status> {
    if transforms.is_empty() {
        return Ok(profile);
    }
    let rewritten = transforms.apply_to(&profile);
    if rewritten.samples.is_empty() && !profile.samples.is_empty() {
        let message = "transforms leave no stack of the profile; `athanor top` lists the functions";
        return Err(Status::new(ErrorCode::NotFound, message));
    }
    Ok(rewritten)
}

fn sandwich(
    view: &TopViewArgs,
    tree: &Tree,
    function: &str,
    shown: &ValueType,
    divisor: ValueDivisor,
    output: &ConsoleOutput,
) -> Result<(), Status> {
    known(tree, function)?;
    let mut around = SandwichView::from_tree(tree, function, view.depth);
    let share = share_of(around.callees.total(), tree.total());
    for side in [&mut around.callers, &mut around.callees] {
        side.truncate(view.max_nodes);
    }
    let cum = divisor.divide(around.callees.total());
    let total = divisor.divide(tree.total());
    output.print_json_or_text(
        || {
            let callers = graph_json(&divisor.divide_tree(&around.callers));
            let callees = graph_json(&divisor.divide_tree(&around.callees));
            json!({ "type": type_name(shown), "unit": shown.unit, "function": function, "total": total,
                "averaged_profiles": divisor.averaged_profiles(), "cum": cum, "callers": callers, "callees": callees })
        },
        || {
            let share = format_percent(share);
            let mut text = format!("Type: {}\n{}", harmless(&type_name(shown)), averages_line(divisor));
            let cum = format_value(cum, &shown.unit);
            let total = format_value(total, &shown.unit);
            let _ = writeln!(text, "{}: {cum}, {share} of {total} total", harmless(function));
            for (title, side) in [("Called by", &around.callers), ("Calls", &around.callees)] {
                let _ = writeln!(text, "\n{}", output.format_bold(title));
                outline(&mut text, side, divisor, &shown.unit);
            }
            text
        },
    )
}

/// Returns the share of a part in a total. The share of a total of 0 is 0.
fn share_of(part: i64, total: i64) -> f64 {
    if total == 0 { 0.0 } else { part as f64 / total as f64 }
}

/// Appends a tree as indented lines, the heaviest first. Shares are those of undivided values.
fn outline(text: &mut String, tree: &Tree, divisor: ValueDivisor, unit: &str) {
    let mut open: Vec<(u32, usize)> = vec![(0, 0)];
    while let Some((at, depth)) = open.pop() {
        let node = &tree.nodes()[at as usize];
        if at > 0 {
            let total = format_value(divisor.divide(node.total), unit);
            let share = format_percent(share_of(node.total, tree.total()));
            let indent = "  ".repeat(depth);
            let name = harmless(tree.name(node));
            let _ = writeln!(text, "{total:>10} {share:>7}  {indent}{name}");
        }
        let mut callees: Vec<u32> = tree.children(at).collect();
        callees.sort_by_key(|&callee| tree.nodes()[callee as usize].total);
        open.extend(callees.into_iter().map(|callee| (callee, if at == 0 { 0 } else { depth + 1 })));
    }
}

fn graph_json(tree: &Tree) -> Value {
    let graph = Flamegraph::from_tree(tree);
    json!({ "names": graph.names, "levels": graph.levels, "total": graph.total, "max_self": graph.max_self })
}

/// Draws a flame graph.
pub fn flamegraph(args: &args::FlamegraphArgs, output: &ConsoleOutput) -> Result<(), Status> {
    let (profile, value) = input::merge_input_for_view(&args.input)?;
    let profile = transform_profile(profile, &args.view.stacks.transforms)?;
    draw_flamegraph(&profile, value, ValueDivisor::default(), &args.view, output)
}

/// Draws the flame graph of a profile. Values are divided after they are added up.
pub fn draw_flamegraph(
    profile: &Profile,
    value: usize,
    divisor: ValueDivisor,
    view: &FlamegraphViewArgs,
    output: &ConsoleOutput,
) -> Result<(), Status> {
    let mut tree = Tree::from_profile(profile, value);
    tree.truncate(view.max_nodes);
    let tree = divisor.divide_tree(&tree);
    let shown = &profile.header.types[value];
    output.print_json_or_text(
        || {
            let mut graph = graph_json(&tree);
            graph["type"] = json!(type_name(shown));
            graph["unit"] = json!(shown.unit);
            graph["averaged_profiles"] = json!(divisor.averaged_profiles());
            graph
        },
        || {
            let options =
                ansi::AnsiOptions { width: output.width, height: view.max_lines, color: output.color };
            averages_line(divisor) + &ansi::write(&tree, &shown.unit, options)
        },
    )
}

/// Prints the metadata of a profile.
pub fn info(args: &args::InputArgs, output: &ConsoleOutput) -> Result<(), Status> {
    let profile = input::merge_files(&args.files, &args.picked)?;
    let shown = input::select_value(&args.files[0], &profile, &args.picked)?;
    let header = &profile.header;
    (0..header.types.len()).try_for_each(|value| input::check_sums(&profile, value))?;
    let symbols = &profile.dictionary.symbols;
    let functions = TopTable::from_profile(&profile, shown).rows.len();
    let totals: Vec<i64> = (0..header.types.len()).map(|value| profile.total(value)).collect();
    let locations = symbols.locations().len();
    let mappings = symbols.mappings().len();
    output.print_json_or_text(
        || {
            let types = header.types.iter().zip(&totals);
            let types = types.map(|(value, total)| json!({ "type": value.kind, "unit": value.unit, "total": total }));
            json!({
                "files": args.files.len(), "types": types.collect::<Vec<_>>(), "shown": type_name(&header.types[shown]),
                "time_nanos": header.time_nanos, "duration_nanos": header.duration_nanos, "period": header.period,
                "period_type": header.period_type.as_ref().map(type_name), "samples": profile.samples.len(),
                "stacks": profile.dictionary.stacks.len(), "functions": functions, "locations": locations,
                "mappings": mappings, "comments": header.comments, "drop_frames": header.drop_frames,
                "keep_frames": header.keep_frames,
            })
        },
        || {
            let mut text = String::new();
            for (at, (value, &total)) in header.types.iter().zip(&totals).enumerate() {
                let mark = if at == shown { " (shown)" } else { "" };
                let name = harmless(&type_name(value));
                let total = format_value(total, &value.unit);
                let _ = writeln!(text, "{:<10} {name}: {total}{mark}", "type");
            }
            if header.time_nanos != 0 {
                let _ = writeln!(text, "{:<10} {}", "time", format_rfc3339(header.time_nanos));
            }
            let _ = writeln!(text, "{:<10} {}", "duration", format_value(header.duration_nanos, "nanoseconds"));
            if let Some(period) = &header.period_type {
                let amount = format_value(header.period, &period.unit);
                let _ = writeln!(text, "{:<10} {amount} of {}", "period", harmless(&period.kind));
            }
            let samples = profile.samples.len();
            let counts = [("samples", samples), ("stacks", profile.dictionary.stacks.len()), ("functions", functions)];
            for (what, count) in counts.into_iter().chain([("locations", locations), ("mappings", mappings)]) {
                let _ = writeln!(text, "{what:<10} {count}");
            }
            for comment in &header.comments {
                let _ = writeln!(text, "{:<10} {}", "comment", harmless(comment));
            }
            text
        },
    )
}
