//! `extant man`: writes the manual, one page for each verb, from the definition of the command
//! line.

use crate::failure::Failure;
use clap::Command;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, roman};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Write the manual pages into a directory: extant.1, and one page per verb.
///
/// They have the text of `--help`, and always describe this version.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "Examples:
  extant man /usr/local/share/man/man1
  extant man pages && man -l pages/extant-build.1

Exit status: 0 all pages were written, 1 failed.")]
pub(crate) struct Args {
    /// Output directory; it is created if it does not exist
    #[arg(value_name = "DIR")]
    dir: PathBuf,
}

impl Args {
    pub(crate) fn run(self, command: Command) -> Result<u8, Failure> {
        let dir = &self.dir;
        fs::create_dir_all(dir).map_err(|error| Failure::of_file("make", dir, error))?;
        for (name, text) in pages(command) {
            let path = self.dir.join(name);
            fs::write(&path, text).map_err(|error| Failure::of_file("write", &path, error))?;
        }
        Ok(0)
    }
}

/// Name and text of every page: one for the command, then one for each verb that `--help` lists.
fn pages(command: Command) -> Vec<(PathBuf, Vec<u8>)> {
    let version = format!("extant {}", env!("CARGO_PKG_VERSION"));
    let mut command = command.version(env!("CARGO_PKG_VERSION")).disable_help_subcommand(true);
    command.build();
    let verbs = command.get_subcommands().filter(|verb| !verb.is_hide_set()).cloned();
    let all: Vec<Command> = std::iter::once(command.clone()).chain(verbs).collect();
    all.into_iter()
        .map(|command| {
            // "extant-build" and not "build": the name in the manual and in the page's header.
            let name = command.get_display_name().unwrap_or_else(|| command.get_name()).to_owned();
            let text = page(command, &name, &version).expect("memory takes all that is written");
            (Path::new(&name).with_extension("1"), text)
        })
        .collect()
}

/// A page, in roff.
fn page(command: Command, name: &str, version: &str) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    let lists_verbs = command.get_subcommands().any(|verb| !verb.is_hide_set());
    let after = command.get_after_long_help().or(command.get_after_help());
    let after = after.map(ToString::to_string).unwrap_or_default();
    let man = Man::new(command).title(name).section("1").source(version).manual("extant");
    man.render_title(&mut text)?;
    man.render_name_section(&mut text)?;
    man.render_synopsis_section(&mut text)?;
    man.render_description_section(&mut text)?;
    man.render_options_section(&mut text)?;
    if lists_verbs {
        man.render_subcommands_section(&mut text)?;
    }
    let (examples, status) = after.split_once("Exit status:").unwrap_or((&after, ""));
    let examples = examples.trim_start_matches("Examples:").trim_matches('\n');
    section("EXAMPLES", examples, &mut text)?;
    section("EXIT STATUS", status.trim(), &mut text)?;
    Ok(text)
}

/// A section with `lines` unchanged. Nothing if `lines` is empty.
fn section(title: &str, lines: &str, text: &mut Vec<u8>) -> io::Result<()> {
    if lines.is_empty() {
        return Ok(());
    }
    let mut roff = Roff::new();
    roff.control("SH", [title]).control("nf", []);
    for line in lines.lines() {
        roff.text([roman(line)]);
    }
    roff.control("fi", []);
    roff.to_writer(text)
}
