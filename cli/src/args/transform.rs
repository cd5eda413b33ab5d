//! Options that change stacks, in the order of the command line.

use athanor_profile::analysis::transform::{StackTransform, StackTransforms};
use clap::error::ErrorKind;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches};

/// Heading of the options in help texts.
const HELP_HEADING: &str = "Transforms of stacks";

/// Transforms of stacks, in the order of the command line.
#[derive(Clone, Debug, Default)]
pub struct TransformArgs {
    /// Valid list of transforms.
    pub transforms: StackTransforms,
}

/// Option of a transform.
struct TransformOption {
    /// Name with underscores, as in URLs.
    name: &'static str,
    long: &'static str,
    value_name: &'static str,
    help: &'static str,
}

const TRANSFORM_OPTIONS: [TransformOption; 6] = [
    TransformOption {
        name: "focus",
        long: "focus",
        value_name: "PATTERN",
        help: "Keep only stacks with a matching frame. PATTERN is a regular expression for a part of a function name, \
               file or binary, as in pprof, or =NAME for an exact function name. Transforms are applied in the order \
               of the command line, and stacks without any frame left are dropped",
    },
    TransformOption {
        name: "ignore",
        long: "ignore",
        value_name: "PATTERN",
        help: "Drop stacks with a matching frame",
    },
    TransformOption {
        name: "hide",
        long: "hide",
        value_name: "PATTERN",
        help: "Remove matching frames; their value goes to the caller",
    },
    TransformOption { name: "show", long: "show", value_name: "PATTERN", help: "Keep only matching frames" },
    TransformOption {
        name: "show_from",
        long: "show-from",
        value_name: "PATTERN",
        help: "Begin each stack at the matching frame nearest the root, and drop stacks without one. As in pprof, a \
               regular expression also removes the lines outside of the outermost match from other matching locations",
    },
    TransformOption {
        name: "collapse",
        long: "collapse",
        value_name: "RULE",
        help: "Fold frames: recursion folds recursive calls of all functions, recursion:PATTERN those of matching \
               functions, below:PATTERN all calls of the matching frame nearest the root",
    },
];

impl Args for TransformArgs {
    fn augment_args(command: Command) -> Command {
        TRANSFORM_OPTIONS.iter().fold(command, |command, option| {
            let arg = Arg::new(option.name).long(option.long).value_name(option.value_name).help(option.help);
            command.arg(arg.action(ArgAction::Append).help_heading(HELP_HEADING))
        })
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for TransformArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut options: Vec<(usize, &str, &String)> = Vec::new();
        for TransformOption { name, .. } in &TRANSFORM_OPTIONS {
            let places = matches.indices_of(name).into_iter().flatten();
            let texts = matches.get_many::<String>(name).into_iter().flatten();
            options.extend(places.zip(texts).map(|(place, text)| (place, *name, text)));
        }
        options.sort_unstable();
        let transforms =
            options.into_iter().filter_map(|(_, name, text)| StackTransform::parse_option(name, text));
        let transforms = transforms.collect::<Result<Vec<_>, _>>().and_then(StackTransforms::new);
        let transforms = transforms.map_err(|error| clap::Error::raw(ErrorKind::ValueValidation, error))?;
        Ok(TransformArgs { transforms })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}
