//! Checks of a command line that span several arguments, run before any input is read.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use clap::error::ErrorKind;
use clap::{CommandFactory, Error};

use super::{Cli, CliCommand, OutputFormat, ProfileSelectionArgs, PushArgs, QuerySubcommand};
use crate::profile::convert;
use crate::table_output;

/// Rejects selections that do not apply to the inputs, duplicate labels and formats that cannot be written.
pub fn validate_args(cli: Cli) -> Result<Cli, Error> {
    match &cli.command {
        CliCommand::Top(args) => of_blocks(&args.input.files, &args.input.picked)?,
        CliCommand::Flamegraph(args) => of_blocks(&args.input.files, &args.input.picked)?,
        CliCommand::Info(args) => of_blocks(&args.files, &args.picked)?,
        CliCommand::Diff(args) => of_blocks([&args.left, &args.right], &args.picked)?,
        CliCommand::Push(args) => labels(args)?,
        CliCommand::Convert(args) => {
            of_blocks(&args.input.files, &args.input.picked)?;
            written(&args.out, args.to)?;
        }
        CliCommand::Query(query) => {
            let into = match &query.command {
                QuerySubcommand::Top(args) => &args.written,
                QuerySubcommand::Flamegraph(args) => &args.written,
                QuerySubcommand::Samples(args) => return table_file(&args.out).map(|()| cli),
                QuerySubcommand::Functions(args) => return table_file(&args.out).map(|()| cli),
                QuerySubcommand::Series(args) => {
                    return args.out.as_deref().map_or(Ok(()), table_file).map(|()| cli);
                }
                _ => return Ok(cli),
            };
            into.out.as_ref().map_or(Ok(()), |out| written(out, into.to))?;
        }
        _ => {}
    }
    Ok(cli)
}

fn written(out: &Path, to: Option<OutputFormat>) -> Result<(), Error> {
    convert::format(out, to).map(|_| ()).map_err(|status| usage(&status.message))
}

/// Rejects the name of a table's file if its ending is unknown.
fn table_file(out: &Path) -> Result<(), Error> {
    table_output::format(out).map(|_| ()).map_err(|status| usage(&status.message))
}

/// Rejects a push that gives one label two values.
fn labels(args: &PushArgs) -> Result<(), Error> {
    let mut seen = BTreeMap::from([("service_name", args.service.as_str())]);
    for (name, value) in &args.labels {
        let Some(before) = seen.insert(name, value) else { continue };
        let why = match name.as_str() {
            "service_name" => {
                format!(
                    "--label {name}={value} and --service {before} set the same label; remove one of them"
                )
            }
            _ => format!(
                "--label {name} is given twice, with values {before:?} and {value:?}; remove one of them"
            ),
        };
        return Err(usage(&why));
    }
    Ok(())
}

/// Rejects a second `-`, since standard input can be read once. Rejects `--tenant`, `--selector`, `--since` and
/// `--until` for inputs that are not blocks. Only a block stores its tenant, its labels and the time of its
/// profiles.
fn of_blocks<'p>(
    files: impl IntoIterator<Item = &'p PathBuf>,
    picked: &ProfileSelectionArgs,
) -> Result<(), Error> {
    let files: Vec<&PathBuf> = files.into_iter().collect();
    if files.iter().filter(|path| path.as_os_str() == "-").count() > 1 {
        return Err(usage(
            "- is given twice, but standard input can be read only once; write one input to a file",
        ));
    }
    let given = [
        ("--tenant", picked.tenant.is_some()),
        ("--selector", picked.selector.is_some()),
        ("--since", picked.since.is_some()),
        ("--until", picked.until.is_some()),
    ];
    let Some((name, _)) = given.iter().find(|(_, is_given)| *is_given) else { return Ok(()) };
    // A path that does not exist is reported when the command opens it.
    let is_no_folder = |path: &Path| path.as_os_str() == "-" || (path.exists() && !path.is_dir());
    match files.into_iter().find(|path| is_no_folder(path)) {
        None => Ok(()),
        Some(path) => {
            let path = path.display();
            let why = format!(
                "{path}: {name} applies only to blocks, but this is a file; remove {name}, or build a block with `athanor block build`"
            );
            Err(usage(&why))
        }
    }
}

fn usage(why: &str) -> Error {
    Cli::command().error(ErrorKind::ValueValidation, why)
}
