//! `extant completions`: writes a shell's completions for the command line.

use crate::failure::Failure;
use crate::out::Out;
use clap::Command;
use clap_complete::Shell;

/// Write completions for a shell to standard output.
///
/// They are generated from the definition of the command line, and contain every verb and option.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "Examples:
  extant completions bash > /etc/bash_completion.d/extant
  extant completions zsh > \"${fpath[1]}/_extant\"
  extant completions fish > ~/.config/fish/completions/extant.fish

Exit status: 0 written, 1 failed.")]
pub(crate) struct Args {
    /// Name of the shell
    #[arg(value_name = "SHELL")]
    shell: Shell,
}

impl Args {
    pub(crate) fn run(self, command: &Command) -> Result<u8, Failure> {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut listed(command), "extant", &mut script);
        let mut out = Out::new();
        out.bytes(&script)?;
        out.finish()?;
        Ok(0)
    }
}

/// The command line with the verbs that its help lists. clap_complete does not omit hidden ones by
/// itself.
fn listed(command: &Command) -> Command {
    let verbs = command.get_subcommands().filter(|verb| !verb.is_hide_set());
    Command::new("extant")
        .version(env!("CARGO_PKG_VERSION"))
        .args(command.get_arguments().cloned())
        .subcommands(verbs.cloned())
}
