//! The command line: its verbs and the options that they share.

use crate::failure::Failure;
use crate::verb;
use clap::{CommandFactory, Parser, Subcommand};
use std::ffi::{OsStr, OsString};
use std::process::ExitCode;

/// Create, build, read, change and check ext2, ext3 and ext4 volumes, without root and without a
/// mount.
///
/// IMG is an image file or a block device: a volume, or a disk with partitions of which one has a
/// volume. IMG?partition=2 names a partition (also partuuid=, partlabel=, label=, uuid=),
/// IMG?offset=1M the volume's first byte, IMG?member=IMG2 a volume on several devices. PATH is a
/// path inside the volume, relative to its root.
///
/// If a volume was not unmounted, its journal is replayed in memory before it is shown; reading
/// never writes to IMG. A change is one transaction of the volume's journal: after an interruption,
/// either all of it is on the volume, or nothing.
#[derive(Debug, Parser)]
#[command(
    name = "extant",
    version,
    max_term_width = 100,
    after_help = "Exit status: 0 done, 1 failed, 2 wrong usage; `check` and `repair` have their own.\n\
                  `extant VERB --help` explains a verb, with examples. `extant man DIR` writes \
                  manual pages,\n\
                  `extant completions SHELL` completions for a shell."
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    Mkfs(verb::mkfs::Args),
    Build(verb::build::Args),
    Ls(verb::ls::Args),
    Tree(verb::tree::Args),
    Cat(verb::cat::Args),
    Stat(verb::stat::Args),
    Get(verb::get::Args),
    Put(verb::put::Args),
    Rm(verb::rm::Args),
    Mkdir(verb::mkdir::Args),
    Mv(verb::mv::Args),
    Ln(verb::ln::Args),
    Chmod(verb::chmod::Args),
    Chown(verb::chown::Args),
    Chattr(verb::chattr::Args),
    Xattr(verb::xattr::Args),
    ApplyTar(verb::apply_tar::Args),
    Resize(verb::resize::Args),
    Tune(verb::tune::Args),
    Quota(verb::quota::Args),
    Info(verb::info::Args),
    Report(verb::report::Args),
    Check(verb::check::Args),
    Repair(verb::repair::Args),
    Replay(verb::replay::Args),
    Undelete(verb::undelete::Args),
    Dump(verb::dump::Args),
    Scrub(verb::scrub::Args),
    Rebuild(verb::rebuild::Args),
    Trim(verb::trim::Args),
    Defrag(verb::defrag::Args),
    Mount(verb::mount::Args),
    #[command(alias = "umount")]
    Unmount(verb::unmount::Args),
    #[command(hide = true)]
    Completions(verb::completions::Args),
    #[command(hide = true)]
    Man(verb::man::Args),
}

/// The exit status after an error of the parser, which also reports a request for help as one.
///
/// `repair` has the exit status of e2fsck, where 2 asks for a reboot.
pub(crate) fn status_of_wrong_usage(arguments: &[OsString], error: &clap::Error) -> ExitCode {
    let is_repair = arguments.get(1).is_some_and(|verb| verb == "repair");
    match error.exit_code() {
        0 => ExitCode::SUCCESS,
        _ if is_repair => ExitCode::from(verb::repair::WRONG_USAGE),
        _ => ExitCode::from(2),
    }
}

impl Cli {
    /// Whether a word is the name of a verb.
    pub(crate) fn has_verb(word: &OsStr) -> bool {
        word == "help" || Cli::command().find_subcommand(word).is_some()
    }

    /// Runs the verb and returns the exit status.
    pub(crate) fn run(self) -> Result<u8, Failure> {
        match self.verb {
            Verb::Mkfs(args) => args.run(),
            Verb::Build(args) => args.run(Cli::command),
            Verb::Ls(args) => args.run(),
            Verb::Tree(args) => args.run(),
            Verb::Cat(args) => args.run(),
            Verb::Stat(args) => args.run(),
            Verb::Get(args) => args.run(),
            Verb::Put(args) => args.run(),
            Verb::Rm(args) => args.run(),
            Verb::Mkdir(args) => args.run(),
            Verb::Mv(args) => args.run(),
            Verb::Ln(args) => args.run(),
            Verb::Chmod(args) => args.run(),
            Verb::Chown(args) => args.run(),
            Verb::Chattr(args) => args.run(),
            Verb::Xattr(args) => args.run(),
            Verb::ApplyTar(args) => args.run(),
            Verb::Resize(args) => args.run(),
            Verb::Tune(args) => args.run(),
            Verb::Quota(args) => args.run(),
            Verb::Info(args) => args.run(),
            Verb::Report(args) => args.run(),
            Verb::Check(args) => args.run(),
            Verb::Repair(args) => args.run(),
            Verb::Replay(args) => args.run(),
            Verb::Undelete(args) => args.run(),
            Verb::Dump(args) => args.run(),
            Verb::Scrub(args) => args.run(),
            Verb::Rebuild(args) => args.run(),
            Verb::Trim(args) => args.run(),
            Verb::Defrag(args) => args.run(),
            Verb::Mount(args) => args.run(),
            Verb::Unmount(args) => args.run(),
            Verb::Completions(args) => args.run(&Cli::command()),
            Verb::Man(args) => args.run(Cli::command()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_arguments_fit_together() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_verb_teaches_with_examples_and_its_exit_status() {
        for verb in Cli::command().get_subcommands_mut() {
            let help = verb.render_long_help().to_string();
            for part in ["Examples:", "Exit status:", "extant "] {
                assert!(help.contains(part), "{}: no {part:?} in its help", verb.get_name());
            }
        }
    }
}
