//! The pages of the manual, as clap writes them from the help.

use crate::exit::CommandFault;
use clap::Args;
use clap_mangen::Man;

/// The arguments of `man`.
#[derive(Debug, Args)]
#[command(after_help = "\
The page goes to standard output, in the language of man:

  threadkeep man run | man --local-file -
  threadkeep man budget hold > threadkeep-budget-hold.1")]
pub struct ManArgs {
    /// The command, or nothing for the page of threadkeep itself
    #[arg(value_name = "COMMAND")]
    pub words: Vec<String>,
}

/// Returns the page of the command that these words name.
///
/// # Errors
/// A usage fault for words that name none.
pub fn man_page(words: &[String]) -> Result<String, CommandFault> {
    let mut root = super::command();
    root.build();
    let mut command = &root;
    for word in words {
        command = command.find_subcommand(word).ok_or_else(|| {
            CommandFault::usage(format!("there is no command {:?}", words.join(" ")))
                .with_hint("see `threadkeep --help`")
        })?;
    }
    let mut page = Vec::new();
    let written = Man::new(command.clone()).render(&mut page);
    written.map_err(|error| CommandFault::new("io", format!("the page is not made: {error}")))?;
    Ok(String::from_utf8_lossy(&page).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_has_a_page() {
        let page = |line: &str| {
            let words = line
                .split_whitespace()
                .map(str::to_owned)
                .collect::<Vec<_>>();
            man_page(&words)
        };
        for (line, title) in [
            ("", ".TH threadkeep 1"),
            ("run", ".TH threadkeep-run 1"),
            ("budget hold", ".TH threadkeep-budget-hold 1"),
        ] {
            let page = page(line).unwrap();
            assert!(page.contains(title), "{line}: {page}");
            assert!(page.contains("\\-\\-project"), "{line}");
        }
        assert_eq!(page("budget nothing").unwrap_err().code, "usage");
    }
}
