//! `diff`: compares two profiles.

use std::fmt::Write;
use std::slice;

use athanor_chassis::Status;
use athanor_profile::analysis::diff::{FunctionDiff, diff_weights};
use athanor_profile::analysis::top_table::{FunctionWeights, function_weights};
use athanor_profile::analysis::value_divisor::ValueDivisor;
use athanor_profile::call_tree::tree::Tree;
use athanor_profile::render::units::format_value;
use athanor_profile::{Profile, ValueType};
use serde_json::{Value, json};

use crate::output::{ConsoleOutput, format_percent, harmless, type_name};
use crate::{args, failure, profile::input};

/// Compares two profiles function by function.
pub fn run(args: &args::DiffArgs, output: &ConsoleOutput) -> Result<(), Status> {
    let (left, left_value) = input::merge_for_view(slice::from_ref(&args.left), &args.picked)?;
    let (right, right_value) = input::merge_for_view(slice::from_ref(&args.right), &args.picked)?;
    let shown = &left.header.types[left_value];
    let other = &right.header.types[right_value];
    if shown != other {
        let shown = type_name(shown);
        let other = type_name(other);
        let why = format!(
            "type {other} differs from type {shown} of {}; select one with --type",
            args.left.display()
        );
        return Err(failure::invalid_file(&args.right, why));
    }
    let left = DiffSide::from_profile(&left, left_value, ValueDivisor::default());
    let right = DiffSide::from_profile(&right, right_value, ValueDivisor::default());
    compare(&left, &right, shown, args.limit, output)
}

/// Side of a comparison. Values are divided after they are added up.
pub struct DiffSide {
    tree: Tree,
    divisor: ValueDivisor,
}

impl DiffSide {
    /// Creates a side from one value of a profile.
    pub fn from_profile(profile: &Profile, value: usize, divisor: ValueDivisor) -> Self {
        DiffSide { tree: Tree::from_profile(profile, value), divisor }
    }

    fn total(&self) -> i64 {
        self.divisor.divide(self.tree.total())
    }

    fn weights(&self) -> Vec<(&str, FunctionWeights)> {
        let weights = function_weights(&self.tree).into_iter();
        weights.map(|(name, weights)| (name, self.divisor.divide_weights(weights))).collect()
    }
}

/// Prints the functions that changed most, at most `limit` of them.
pub fn compare(
    left: &DiffSide,
    right: &DiffSide,
    shown: &ValueType,
    limit: usize,
    output: &ConsoleOutput,
) -> Result<(), Status> {
    let all = diff_weights(left.weights(), right.weights());
    let averaged = [left, right].map(|side| side.divisor.averaged_profiles());
    let rows = &all[..limit.min(all.len())];
    output.print_json_or_text(
        || {
            let rows: Vec<Value> = rows.iter().map(change_json).collect();
            json!({ "type": type_name(shown), "unit": shown.unit, "left_total": left.total(),
                "right_total": right.total(), "averaged_profiles": averaged, "changed": all.len(), "rows": rows })
        },
        || {
            let unit = &shown.unit;
            let mut text = format!("Type: {}\n", harmless(&type_name(shown)));
            if averaged != [0, 0] {
                let [before, after] = averaged;
                let _ = writeln!(text, "Values: averages of {before} profiles before, {after} after");
            }
            // Writing to a string cannot fail, here and below.
            let change = right.total().wrapping_sub(left.total());
            let before = format_value(left.total(), unit);
            let after = format_value(right.total(), unit);
            let _ = writeln!(
                text,
                "Total: {before} before, {after} after, {}",
                signed(change, left.total(), unit)
            );
            let _ = writeln!(text, "Showing {} of {} functions that changed", rows.len(), all.len());
            let columns = ["before", "after", "change", "cum before", "cum after", "cum change"];
            let head = columns.map(|column| format!("{column:>11}")).join(" ");
            let _ = writeln!(text, "{}", output.format_bold(&format!("{head}  name")));
            rows.iter().for_each(|row| line(&mut text, row, unit, output.color));
            text
        },
    )
}

fn change_json(change: &FunctionDiff) -> Value {
    json!({
        "name": change.name, "delta": change.delta, "cum_delta": change.cum_delta,
        "left": { "flat": change.left.flat, "cum": change.left.cum },
        "right": { "flat": change.right.flat, "cum": change.right.cum },
    })
}

fn plus(value: i64, unit: &str) -> String {
    let sign = if value > 0 { "+" } else { "" };
    format!("{sign}{}", format_value(value, unit))
}

fn signed(change: i64, before: i64, unit: &str) -> String {
    let change_text = plus(change, unit);
    if before == 0 {
        return change_text;
    }
    let share = format_percent(change as f64 / before as f64);
    let sign = if change > 0 { "+" } else { "" };
    format!("{change_text} ({sign}{share})")
}

fn line(text: &mut String, change: &FunctionDiff, unit: &str, color: bool) {
    let left = &change.left;
    let right = &change.right;
    let [before, after, cum_before, cum_after] =
        [left.flat, right.flat, left.cum, right.cum].map(|value| format_value(value, unit));
    let flat = plus(change.delta, unit);
    let cum = plus(change.cum_delta, unit);
    // Increases are red, decreases green.
    let (on, off) = match (color, change.delta.signum()) {
        (true, 1) => ("\x1b[31m", "\x1b[0m"),
        (true, -1) => ("\x1b[32m", "\x1b[0m"),
        _ => ("", ""),
    };
    let name = harmless(&change.name);
    let _ = writeln!(
        text,
        "{before:>11} {after:>11} {on}{flat:>11}{off} {cum_before:>11} {cum_after:>11} {cum:>11}  {name}"
    );
}
