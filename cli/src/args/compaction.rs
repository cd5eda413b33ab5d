//! Arguments of `athanor compaction`.

use athanor_chassis::TenantId;
use clap::{Args, Subcommand};

use super::ServerConfigArgs;

#[derive(Args)]
pub struct CompactionArgs {
    #[command(subcommand)]
    pub command: CompactionSubcommand,
}

#[derive(Subcommand)]
pub enum CompactionSubcommand {
    /// Show the waiting and running jobs, the blocks by level, and the parts that failed
    ///
    /// A part is the profiles of one tenant in one block. After three failures of a job it is halved, down to one part.
    /// That part is quarantined: compaction skips it, and queries still read it.
    #[command(after_help = "Example:\n  athanor compaction status --data /var/lib/athanor")]
    Status(ServerConfigArgs),
    /// Pause compaction on all nodes; running jobs finish
    ///
    /// Queries become slower while blocks are not merged. Removal of expired blocks continues.
    #[command(after_help = "Example:\n  athanor compaction pause --data /var/lib/athanor")]
    Pause(ServerConfigArgs),
    /// Resume paused compaction
    #[command(after_help = "Example:\n  athanor compaction resume --data /var/lib/athanor")]
    Resume(ServerConfigArgs),
    /// Retry quarantined parts, after the cause of their failures is fixed
    #[command(
        after_help = "Examples:\n  athanor compaction retry --data /var/lib/athanor\n  athanor compaction retry 0196b1c5d0a3f1e2c4b5a69788796a5b team-a --data /var/lib/athanor"
    )]
    Retry {
        /// Id of the block [default: all parts that failed]
        #[arg(value_name = "BLOCK", requires = "tenant")]
        block: Option<String>,
        /// Tenant of the part in the block
        #[arg(value_name = "TENANT")]
        tenant: Option<TenantId>,
        #[command(flatten)]
        settings: ServerConfigArgs,
    },
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::args::{Cli, CliCommand};

    fn parse(arguments: &[&str]) -> Result<CompactionSubcommand, clap::Error> {
        let cli = Cli::try_parse_from(["athanor", "compaction"].iter().chain(arguments))?;
        match cli.command {
            CliCommand::Compaction(args) => Ok(args.command),
            _ => panic!("{arguments:?} is another command"),
        }
    }

    #[test]
    fn retry_names_one_part_or_all() {
        let retried = |arguments: &[&str]| match parse(arguments).unwrap() {
            CompactionSubcommand::Retry { block, tenant, .. } => {
                (block, tenant.map(|tenant| tenant.to_string()))
            }
            _ => panic!("{arguments:?} is another command"),
        };
        assert_eq!(retried(&["retry"]), (None, None));
        let one = (Some("1f".to_owned()), Some("team-a".to_owned()));
        assert_eq!(retried(&["retry", "1f", "team-a", "--data", "d"]), one);
        for refused in
            [&["retry", "1f"][..], &["retry", "1f", ""], &["retry", "1f", "a", "b"], &["stop"], &[]]
        {
            assert!(parse(refused).is_err(), "{refused:?}");
        }
    }

    #[test]
    fn status_pause_and_resume_take_server_settings() {
        for command in ["status", "pause", "resume"] {
            let parsed = parse(&[command, "--data", "d"]).unwrap();
            let settings = match parsed {
                CompactionSubcommand::Status(settings)
                | CompactionSubcommand::Pause(settings)
                | CompactionSubcommand::Resume(settings) => settings,
                CompactionSubcommand::Retry { .. } => panic!("{command} is another command"),
            };
            assert_eq!(settings.data.as_deref(), Some("d"));
        }
    }
}
