//! Completion in a shell: of commands and options by a script that clap writes, and of the names of
//! a project by a hidden command, which the script asks with the words that were typed.
//!
//! clap can answer all of it from the program itself, but calls that unstable. A script of its own
//! goes on working when the program is replaced.

use clap::{Arg, Args, Command};
use clap_complete::Shell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

/// The arguments of `completions`.
#[derive(Debug, Args)]
#[command(after_help = "\
Ids of threads, directives and models are completed too, those of the project that the command \
line names.

  source <(threadkeep completions bash)              # in ~/.bashrc
  threadkeep completions zsh > ~/.zfunc/_threadkeep  # a directory of $fpath
  threadkeep completions fish > ~/.config/fish/completions/threadkeep.fish")]
pub struct CompletionsArgs {
    /// The shell
    pub shell: Shell,
}

/// The arguments of the hidden command.
#[derive(Debug, Args)]
#[command(after_help = "  threadkeep complete-words -- threadkeep show des")]
pub struct CompleteWordsArgs {
    /// The words of the command line, the program first, up to the one that is typed
    #[arg(last = true)]
    pub words: Vec<String>,
}

/// A kind of names that a project has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NameKind {
    /// Ids of threads.
    Thread,
    /// Directives.
    Directive,
    /// Models and tiers.
    Model,
}

impl NameKind {
    /// Returns the kind of the values of an argument, if they are names of the project.
    fn of_argument(argument: &Arg) -> Option<Self> {
        match argument.get_id().as_str() {
            "thread" | "threads" | "parent" | "chain" | "forks" | "after" => Some(Self::Thread),
            "directive" => Some(Self::Directive),
            "model" => Some(Self::Model),
            _ => None,
        }
    }
}

/// Returns the kind of names that the last word may be one of.
pub fn kind_of_last(words: &[String]) -> Option<NameKind> {
    let mut root = super::command();
    root.build();
    let (last, before) = words.split_last()?;
    let mut place = WordPlace {
        command: &root,
        positionals: 0,
        option: None,
    };
    for word in before.iter().skip(1) {
        place.pass(word);
    }
    match place.option {
        Some(option) => NameKind::of_argument(option),
        None if last.starts_with('-') => None,
        None => place.next_positional().and_then(NameKind::of_argument),
    }
}

/// Returns the project that the words name.
pub fn project_of(words: &[String]) -> Option<PathBuf> {
    let mut words = words.iter();
    while let Some(word) = words.next() {
        match word.strip_prefix("--project") {
            Some("") => return words.next().map(PathBuf::from),
            Some(rest) => return rest.strip_prefix('=').map(PathBuf::from),
            None => {}
        }
    }
    None
}

/// The place of a word on a command line: the command, and the arguments before it.
struct WordPlace<'a> {
    command: &'a Command,
    positionals: usize,
    /// The option whose value comes next.
    option: Option<&'a Arg>,
}

impl<'a> WordPlace<'a> {
    /// Goes on behind a word.
    fn pass(&mut self, word: &str) {
        if self.option.take().is_some() {
            return;
        }
        if let Some(name) = word.strip_prefix("--") {
            let found = self.command.get_arguments();
            let mut found = found.filter(|arg| arg.get_long() == Some(name));
            self.option = found.next().filter(|arg| arg.get_action().takes_values());
            return;
        }
        if word.starts_with('-') {
            return;
        }
        match self
            .command
            .find_subcommand(word)
            .filter(|_| self.positionals == 0)
        {
            Some(below) => self.command = below,
            None => self.positionals += 1,
        }
    }

    /// Returns the positional argument that comes next; the last takes all that follow if it may be
    /// repeated.
    fn next_positional(&self) -> Option<&'a Arg> {
        let found: Vec<&Arg> = self.command.get_positionals().collect();
        let last = found.last().copied();
        let repeats = |arg: &&Arg| matches!(arg.get_action(), clap::ArgAction::Append);
        found
            .get(self.positionals)
            .copied()
            .or(last.filter(repeats))
    }
}

/// Returns true for a name that every shell takes as one word: no other is suggested, for a shell
/// would run what stands in it.
pub fn is_plain_word(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-/.:@+".contains(&byte);
    !name.is_empty() && !name.starts_with('-') && name.bytes().all(is_plain)
}

/// Returns the script that completes commands, options and names in a shell.
pub fn generate_completions(shell: Shell) -> String {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut super::command(), "threadkeep", &mut script);
    let script = String::from_utf8_lossy(&script).into_owned();
    match shell {
        Shell::Bash => format!("{script}{BASH_NAMES}"),
        Shell::Zsh => {
            // The words are those of the whole line only before clap's function narrows them.
            let renamed = script.replacen("_threadkeep() {", "_threadkeep_options() {", 1);
            let asked = renamed.replace(":_default'", ":_threadkeep_names'");
            asked.replacen("_threadkeep_options() {", ZSH_NAMES, 1)
        }
        Shell::Fish => format!("{script}{}", complete_names_in_fish()),
        _ => script,
    }
}

/// Returns the lines by which fish asks for names. It completes the value of an option only by what
/// is said of that option.
fn complete_names_in_fish() -> String {
    let mut root = super::command();
    root.build();
    let mut options = BTreeMap::new();
    collect_name_options(&root, &mut options);
    let mut lines = format!("\ncomplete -c threadkeep -a '({FISH_NAMES})'\n");
    for (option, commands) in options {
        let commands = commands.into_iter().collect::<Vec<_>>().join(" ");
        lines += &format!(
            "complete -c threadkeep -n '__fish_seen_subcommand_from {commands}' -l {option} -r -f \
             -a '({FISH_NAMES})'\n"
        );
    }
    lines
}

/// Adds the options of a command and those below it whose values are names, each with its commands.
fn collect_name_options(command: &Command, options: &mut BTreeMap<String, BTreeSet<String>>) {
    let named = command.get_arguments();
    let named = named.filter(|argument| NameKind::of_argument(argument).is_some());
    for option in named.filter_map(Arg::get_long) {
        let commands = options.entry(option.to_owned()).or_default();
        commands.insert(command.get_name().to_owned());
    }
    for below in command.get_subcommands() {
        collect_name_options(below, options);
    }
}

const BASH_NAMES: &str = r#"
_threadkeep_with_names() {
    _threadkeep "$@"
    local name names=()
    while IFS= read -r name; do
        names+=("$name")
    done < <("$1" complete-words -- "${COMP_WORDS[@]:0:COMP_CWORD+1}" 2>/dev/null)
    if ((${#names[@]})); then
        COMPREPLY=("${names[@]}")
    fi
}
complete -F _threadkeep_with_names -o bashdefault -o default threadkeep
"#;

const ZSH_NAMES: &str = r#"_threadkeep_names() {
    local -a names
    names=("${(@f)$("${typed[1]}" complete-words -- "${typed[@]}" 2>/dev/null)}")
    names=("${(@)names:#}")
    if (( ${#names} )); then compadd -a names; else _default; fi
}

_threadkeep() {
    local -a typed
    typed=("${(@)words[1,CURRENT]}")
    _threadkeep_options "$@"
}

_threadkeep_options() {"#;

const FISH_NAMES: &str =
    "threadkeep complete-words -- (commandline -opc) (commandline -ct) 2>/dev/null";

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        line.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn the_words_before_tell_what_comes_next() {
        use NameKind::{Directive, Model, Thread};
        for (line, expected) in [
            ("threadkeep show a", Some(Thread)),
            ("threadkeep show ", Some(Thread)),
            ("threadkeep show --events 5 a", Some(Thread)),
            ("threadkeep show --utc a", Some(Thread)),
            ("threadkeep show --events 5", None),
            ("threadkeep show a b", None),
            ("threadkeep --project p show a", Some(Thread)),
            ("threadkeep budget show a", Some(Thread)),
            ("threadkeep export html a", Some(Thread)),
            ("threadkeep budget s", None),
            ("threadkeep repair a b", Some(Thread)),
            ("threadkeep message a hello", None),
            ("threadkeep chat a", Some(Thread)),
            ("threadkeep list --parent a", Some(Thread)),
            ("threadkeep list --after=a b", None),
            ("threadkeep list --directive d", Some(Directive)),
            ("threadkeep run d", Some(Directive)),
            ("threadkeep run d --model m", Some(Model)),
            ("threadkeep run --m", None),
            ("threadkeep sh", None),
            ("threadkeep", None),
        ] {
            assert_eq!(kind_of_last(&words(line)), expected, "{line}");
        }
        assert_eq!(kind_of_last(&[]), None);
    }

    #[test]
    fn the_project_is_the_one_that_is_named() {
        for (line, expected) in [
            ("threadkeep --project p show a", Some("p")),
            ("threadkeep show --project=q/r a", Some("q/r")),
            ("threadkeep show a --project", None),
            ("threadkeep show --projects p", None),
            ("threadkeep show a", None),
        ] {
            assert_eq!(
                project_of(&words(line)),
                expected.map(PathBuf::from),
                "{line}"
            );
        }
    }

    #[test]
    fn no_shell_runs_what_is_suggested() {
        for name in ["a", "beta/one", "gpt-4o-mini", "meta:llama3.1", "a_b@c+d"] {
            assert!(is_plain_word(name), "{name}");
        }
        for name in [
            "", "-x", "$(id)", "a b", "a;b", "`id`", "a'b", "~", "a*", "é", "a\nb",
        ] {
            assert!(!is_plain_word(name), "{name:?}");
        }
    }

    #[test]
    fn every_script_asks_for_names() {
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            let script = generate_completions(shell);
            assert!(script.contains("complete-words"), "{shell}");
        }
        let zsh = generate_completions(Shell::Zsh);
        assert_eq!(zsh.matches("_threadkeep() {").count(), 1);
        assert!(
            zsh.contains("Its id:_threadkeep_names'"),
            "the values of arguments"
        );
    }
}
