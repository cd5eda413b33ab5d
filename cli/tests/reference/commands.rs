//! Page of all commands, generated from the command tree.

use std::fmt::Write;

use athanor_chassis::ErrorCode;
use athanor_chassis::code::EXIT_USAGE;
use clap::{Arg, Command};

const INTRODUCTION: &str = "\
# Command line

This page lists the commands of `athanor` with their flags and examples.
It is generated from the code by `just docs`. The `--help` of each command prints the same texts.

";

const FILE_FORMATS: &str = "\
## Files

A file has one of these formats; the content decides which:

- pprof, plain or compressed with gzip or zstd;
- folded stacks;
- speedscope or flamebearer JSON;
- a Java flight recording;
- the output of `perf script`;
- the folder of a block.

`-` is standard input or standard output. `--json` prints every result as one JSON document.

";

const EXIT_CODES: &str = "\
## Exit codes

An error message names the file, the cause and the way out. [errors.md](errors.md) describes the error codes.
[ADR 0014](../adr/0014-damaged-block-exits-65.md) explains the exit code for a damaged block.

| exit code | meaning | error codes |
|---|---|---|
";

/// Returns the whole page.
pub fn render_page(tree: &Command) -> String {
    let mut page = INTRODUCTION.to_owned();
    page.push_str("## Commands\n\n| command | action |\n|---|---|\n");
    for command in leaf_commands(tree) {
        let name = command_name(command);
        let anchor = name.replace(' ', "-");
        // Writing to a string cannot fail, here and below.
        let _ = writeln!(page, "| [`{name}`](#{anchor}) | {} |", table_cell(&about(command)));
    }
    page.push('\n');
    page.push_str(FILE_FORMATS);
    render_global_flags(&mut page, tree);
    render_exit_codes(&mut page);
    for command in leaf_commands(tree) {
        render_command(&mut page, command);
    }
    page
}

/// Returns the commands without subcommands, in the order of the help text.
fn leaf_commands(command: &Command) -> Vec<&Command> {
    let mut leaves = Vec::new();
    let mut has_subcommands = false;
    for subcommand in command.get_subcommands().filter(|subcommand| subcommand.get_name() != "help") {
        has_subcommands = true;
        leaves.extend(leaf_commands(subcommand));
    }
    if !has_subcommands {
        leaves.push(command);
    }
    leaves
}

/// Returns the name of a command with those of its parents.
fn command_name(command: &Command) -> String {
    command.get_bin_name().unwrap_or_else(|| command.get_name()).to_owned()
}

fn about(command: &Command) -> String {
    command.get_about().map(ToString::to_string).unwrap_or_default()
}

fn render_global_flags(page: &mut String, tree: &Command) {
    page.push_str("## Flags of all commands\n\n");
    let is_global = |arg: &&Arg| arg.is_global_set() && !arg.is_hide_set();
    render_arguments(page, tree.get_arguments().filter(is_global));
}

fn render_exit_codes(page: &mut String) {
    page.push_str(EXIT_CODES);
    let _ = writeln!(page, "| {EXIT_USAGE} | invalid command line or setting | |");
    let mut exit_codes: Vec<u8> = ErrorCode::ALL.iter().map(|code| code.exit_code()).collect();
    exit_codes.sort_unstable();
    exit_codes.dedup();
    for exit_code in exit_codes {
        let codes = ErrorCode::ALL.into_iter().filter(|code| code.exit_code() == exit_code);
        let names: Vec<String> = codes.map(|code| format!("`{code}`")).collect();
        let _ = writeln!(page, "| {exit_code} | {} | {} |", exit_meaning(exit_code), names.join(", "));
    }
    page.push('\n');
}

fn exit_meaning(exit_code: u8) -> &'static str {
    match exit_code {
        65 => "invalid or damaged data",
        66 => "the named file or object does not exist",
        69 => "unavailable or unreachable",
        70 => "bug or unexpected environment",
        73 => "the output exists, or the object changed meanwhile",
        74 => "the server lost data",
        75 => "temporary failure, retry later",
        77 => "not allowed",
        unknown => panic!("exit code {unknown} has no description here"),
    }
}

fn render_command(page: &mut String, command: &Command) {
    let _ = writeln!(page, "## `{}`\n", command_name(command));
    let description = command.get_long_about().map_or_else(|| about(command), ToString::to_string);
    for paragraph in description.split("\n\n") {
        let _ = writeln!(page, "{}\n", sentence(paragraph));
    }
    let usage = command.clone().render_usage().to_string();
    let _ = writeln!(page, "```\n{}\n```\n", usage.trim_start_matches("Usage: "));
    let is_listed = |arg: &&Arg| {
        !arg.is_global_set() && !arg.is_hide_set() && !["help", "version"].contains(&arg.get_id().as_str())
    };
    render_arguments(page, command.get_arguments().filter(is_listed));
    if let Some(examples) = command.get_after_help() {
        render_examples(page, &examples.to_string());
    }
}

fn render_arguments<'a>(page: &mut String, arguments: impl Iterator<Item = &'a Arg>) {
    let rows: Vec<String> = arguments.map(argument_row).collect();
    if !rows.is_empty() {
        let _ = writeln!(page, "| argument | description |\n|---|---|\n{}", rows.concat());
    }
}

fn argument_row(arg: &Arg) -> String {
    let value = arg.get_value_names().into_iter().flatten().map(|name| name.as_str()).collect::<Vec<_>>();
    let mut name = match (arg.get_short(), arg.get_long()) {
        (None, None) => String::new(),
        (None, Some(long)) => format!("--{long}"),
        (Some(short), long) => format!("-{short}, --{}", long.unwrap_or_default()),
    };
    if arg.get_action().takes_values() {
        let separator = if name.is_empty() { "" } else { " " };
        name = format!("{name}{separator}{}", value.join(" "));
    }
    let help = arg.get_long_help().or(arg.get_help()).map(ToString::to_string).unwrap_or_default();
    let paragraphs: Vec<String> = help.split("\n\n").map(sentence).collect();
    let mut description = paragraphs.join(" ");
    let takes_values = arg.get_action().takes_values();
    let values = if takes_values { arg.get_possible_values() } else { Vec::new() };
    if !values.is_empty() {
        let described = values.iter().map(|value| {
            let meaning = value.get_help().map(|help| format!(" ({help})")).unwrap_or_default();
            format!("`{}`{meaning}", value.get_name())
        });
        let _ = write!(description, " Values: {}.", described.collect::<Vec<_>>().join(", "));
    }
    let defaults: Vec<_> = arg.get_default_values().iter().map(|value| value.to_string_lossy()).collect();
    if takes_values && !defaults.is_empty() {
        let _ = write!(description, " Default: `{}`.", defaults.join(" "));
    }
    if let Some(variable) = arg.get_env() {
        let _ = write!(description, " Environment: `{}`.", variable.to_string_lossy());
    }
    format!("| `{name}` | {} |\n", table_cell(&description))
}

/// Renders the text after the help: indented lines are code, others are prose.
fn render_examples(page: &mut String, text: &str) {
    let mut is_code = false;
    for line in text.lines() {
        let code = line.strip_prefix("  ");
        if code.is_some() != is_code {
            page.push_str(if is_code { "```\n" } else { "\n```sh\n" });
            is_code = code.is_some();
        }
        let _ = writeln!(page, "{}", code.unwrap_or(line));
    }
    page.push_str(if is_code { "```\n\n" } else { "\n" });
}

/// Ends a text with a full stop.
fn sentence(text: &str) -> String {
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    if text.is_empty() || text.ends_with(['.', '?', ':']) { text } else { format!("{text}.") }
}

fn table_cell(text: &str) -> String {
    text.replace('|', "\\|").replace('*', "\\*")
}
