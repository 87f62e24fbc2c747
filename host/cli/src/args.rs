//! Every command and option, with its help. The words are those of the documentation.

mod budget;
mod chat;
mod completion;
mod copy_store;
mod decisions;
mod export;
mod external_loop;
mod help;
mod init;
mod listing;
mod man;
mod output;
mod run_display;
mod state_files;
mod top;
mod usage;
mod versions;

pub use budget::{
    BillArgs, BudgetArgs, BudgetCommand, EstimateArgs, HoldArgs, ReleaseArgs, SettleArgs, TreeArgs,
};
pub use chat::ChatArgs;
pub use completion::{
    CompleteWordsArgs, CompletionsArgs, NameKind, generate_completions, is_plain_word,
    kind_of_last, project_of,
};
pub use copy_store::{CopyArgs, DurableStoreKind};
pub use decisions::{AnswerArgs, ApproveArgs, DecidedArgs, DenyArgs};
pub use export::{ExportArgs, ExportCommand};
pub use external_loop::{AppendArgs, CloseArgs, CloseOutcome, OpenArgs};
pub use help::{HELP_WIDTH, command};
pub use init::InitArgs;
pub use listing::{LIST_ALL_MAX, ListArgs, ListFilter};
pub use man::{ManArgs, man_page};
pub use output::{ColorMode, OutputArgs};
pub use run_display::RunDisplayArgs;
pub use state_files::{ImportArgs, PruneArgs};
pub use top::TopArgs;
pub use usage::{UsageArgs, UsageKey};
pub use versions::{
    CheckpointsArgs, ForkArgs, ShowArgs, StateArgs, TranscriptArgs, TranscriptFormat,
};

use crate::{inputs, money};
use clap::{Args, Parser, Subcommand, ValueEnum};
use std::path::PathBuf;
use std::time::Duration;

const CANCELS: &str = "\
A model call that is under way is dropped within seconds, and charged by estimate where nobody \
knows what it cost; tools that run are waited for. Exit code 0: it is cancelled, or will be. \
The command that runs the thread ends with 1.";

const CHAINS: &str = "\
A thread that was handed off, because the window of its model was nearly full, or resumed \
after its end goes on in another thread. Any link names the chain:

  threadkeep chain describe-1771322456000-a1b2c3";

const AUDITS: &str = "\
Every figure is computed anew from the histories, without the code that wrote it. Runs may go \
on meanwhile. Exit code 1 if something is wrong: each finding says what was expected, what is \
there and what to do.";

const EXIT_CODES: &str = "\
Exit codes: 0 done, 1 error, 2 usage, 3 suspended, 4 conflict or busy, 130 stopped by a second \
Ctrl-C. With --json every command prints one JSON document, with the code as its field exit.

Begin with threadkeep demo: it needs no network, no key and no project. What a project has and \
what it lacks is said by threadkeep doctor.";

/// Keeps the threads of LLM agents: runs, budgets, histories, recovery.
#[derive(Debug, Parser)]
#[command(
    name = "threadkeep",
    version,
    after_help = EXIT_CODES,
    subcommand_required = true,
    arg_required_else_help = true
)]
pub struct CommandLine {
    /// The options of every command.
    #[command(flatten)]
    pub common: CommonArgs,
    /// The command.
    #[command(subcommand)]
    pub command: CliCommand,
}

/// The options of every command.
#[derive(Debug, Clone, Args)]
pub struct CommonArgs {
    /// The project: the directory that holds `.ai` [default: the nearest one, from here upwards]
    #[arg(long, global = true, value_name = "DIR")]
    pub project: Option<PathBuf>,
    /// Where threads are kept: in `.ai/threads/registry.db`, in plain files in
    /// `.ai/threads/store.d`, or in memory until the command ends [default: the one that is there,
    /// sqlite in a new project]
    #[arg(long, global = true, value_name = "KIND")]
    pub store: Option<StoreKind>,
    /// Answer for every model from this script: `scripted:FILE` [default: as .ai/config/models.yaml
    /// says]
    #[arg(long, global = true, value_name = "PROVIDER", value_parser = provider)]
    pub provider: Option<ProviderOverride>,
    /// The operator's policy: a YAML file outside the project [default: everything, with the caps
    /// of the preset local]
    #[arg(long, global = true, value_name = "FILE")]
    pub policy: Option<PathBuf>,
    /// Print one JSON document and nothing else on standard output
    #[arg(long, global = true)]
    pub json: bool,
    /// Colours, and how much is printed.
    #[command(flatten)]
    pub output: OutputArgs,
}

/// The place where threads are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum StoreKind {
    /// In `.ai/threads/registry.db`.
    Sqlite,
    /// In plain files in `.ai/threads/store.d`, which hosts without SQLite share.
    Files,
    /// Nowhere: gone when the command ends.
    Memory,
}

/// A source of answers that replaces the project's providers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProviderOverride {
    /// A file of answers.
    Scripted(PathBuf),
}

/// A command.
#[derive(Debug, Subcommand)]
pub enum CliCommand {
    /// Begin a project: a directive, a model table for your keys, a line in .gitignore
    Init(InitArgs),
    /// Run a directive: create a thread and carry it to its end
    Run(RunArgs),
    /// Talk: a new chat, or one that is idle or suspended
    Chat(ChatArgs),
    /// Go on with a thread: in place, or in a successor if it has ended
    Resume(ResumeArgs),
    /// Allow calls that wait for a decision, and go on with the thread
    Approve(ApproveArgs),
    /// Refuse calls that wait for a decision, and go on with the thread
    Deny(DenyArgs),
    /// Give a call that waits for a decision a text as its result, and go on with the thread
    Answer(AnswerArgs),
    /// Make a thread without running it: of a directive, or a chat
    Create(CreateArgs),
    /// Send a message to a thread: a running one gets it before its next turn
    Message(MessageArgs),
    /// List threads, newest first
    List(ListArgs),
    /// Show one thread and its last events
    Show(ShowArgs),
    /// List the threads that one goes on in: its chain, the first link at first
    #[command(after_help = CHAINS)]
    Chain(ThreadArgs),
    /// Print the transcript of a thread
    Transcript(TranscriptArgs),
    /// Print the state document of a thread
    State(StateArgs),
    /// List the committed versions of a thread, newest first
    Checkpoints(CheckpointsArgs),
    /// Begin a new thread as another was at a version
    Fork(ForkArgs),
    /// Lift caps of a thread, so that a suspended one can be resumed
    Raise(RaiseArgs),
    /// Lease a thread to an external loop (one of your own), and print the token of the lease
    Open(OpenArgs),
    /// Add events and changes of the state to a thread: one JSON object a line of standard input
    Append(AppendArgs),
    /// End the lease of an external loop: the thread is idle again, or has ended
    Close(CloseArgs),
    /// Give a thread a title, or take it away
    Title(TitleArgs),
    /// End a thread: a model call under way is dropped, tools finish first
    #[command(after_help = CANCELS)]
    Cancel(ThreadArgs),
    /// End a thread at once
    Kill(ThreadArgs),
    /// Show what a thread may spend, and hold and settle the money of a loop of your own
    Budget(BudgetArgs),
    /// Show a thread and all that it spawned, with what each spent and has left
    Tree(TreeArgs),
    /// Watch threads as a live tree on the terminal
    Top(TopArgs),
    /// Write a thread for people elsewhere
    Export(ExportArgs),
    /// Add up money and tokens by day, model, directive and agent
    Usage(UsageArgs),
    /// Close the runs of processes that died; `resume` goes on with their threads
    Recover(RecoverArgs),
    /// Write the documents of threads anew from the store
    Repair(RepairArgs),
    /// Remove copies of checkpoints that the settings do not keep, each named with why
    Prune(PruneArgs),
    /// Make a thread from a state.json, with its messages as history
    Import(ImportArgs),
    /// Move the threads to the other kind of store, audited before it counts
    Copy(CopyArgs),
    /// Check that histories, heads, accounts, indexes and documents agree; writes nothing
    #[command(after_help = AUDITS)]
    Audit,
    /// Say what is configured, where each value came from, what works and what is missing
    Doctor(DoctorArgs),
    /// Run a small project from end to end, with no network and no key
    Demo,
    /// Print what a shell needs to complete commands and options
    Completions(CompletionsArgs),
    /// Print the page of the manual about a command
    Man(ManArgs),
    /// Name what a word may be, for the script of a shell
    #[command(hide = true)]
    CompleteWords(CompleteWordsArgs),
}

impl CliCommand {
    /// Returns true if the command works on a project that is there.
    pub fn needs_project(&self) -> bool {
        !matches!(
            self,
            Self::Init(_)
                | Self::Demo
                | Self::Completions(_)
                | Self::Man(_)
                | Self::CompleteWords(_)
        )
    }
}

/// The options of `doctor`.
#[derive(Debug, Default, Args)]
pub struct DoctorArgs {
    /// Make one small request to this provider of the model table, and say what came of it; it may
    /// cost a little
    #[arg(long, value_name = "PROVIDER")]
    pub probe: Option<String>,
}

/// Caps. A cap that is left out is the directive's, then the preset's.
#[derive(Debug, Clone, Default, PartialEq, Eq, Args)]
pub struct CapArgs {
    /// Most model calls of a run
    #[arg(long, value_name = "N")]
    pub turns: Option<u32>,
    /// Most tokens of a run, of every kind
    #[arg(long, value_name = "N")]
    pub tokens: Option<u64>,
    /// Most money of the whole thread, in US dollars, such as 0.25
    #[arg(long, value_name = "USD", value_parser = money::parse)]
    pub spend: Option<u64>,
    /// Most child threads that the thread spawns
    #[arg(long, value_name = "N")]
    pub spawns: Option<u32>,
    /// Most levels of children below the thread
    #[arg(long, value_name = "N")]
    pub depth: Option<u32>,
    /// Longest time of a run, such as 90 (seconds), 10m or 1h30m; waiting does not count
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub duration: Option<Duration>,
}

impl CapArgs {
    /// True if no cap is named.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// The arguments of `run`.
#[derive(Debug, Args)]
#[command(after_help = "\
Ctrl-C once cancels the run, twice stops it at once. Either way the thread says how it ended, \
and what it cost is kept.

  threadkeep run describe --input file=notes.txt --spend 0.10")]
pub struct RunArgs {
    /// Name of the directive: its file is .ai/directives/<DIRECTIVE>.md
    pub directive: String,
    /// An input of the directive, as text; may be repeated
    #[arg(long = "input", value_name = "NAME=VALUE", value_parser = inputs::pair)]
    pub input: Vec<(String, String)>,
    /// Inputs as a JSON object, for values that are not text
    #[arg(long, value_name = "JSON")]
    pub inputs: Option<String>,
    /// A first message beside the directive's prompt
    #[arg(long, value_name = "TEXT")]
    pub message: Option<String>,
    /// An image that the first message shows to the model (png, jpeg, gif or webp); may be repeated
    #[arg(long, value_name = "FILE")]
    pub image: Vec<PathBuf>,
    /// The output beside its replies.
    #[command(flatten)]
    pub display: RunDisplayArgs,
    /// The properties of the new thread.
    #[command(flatten)]
    pub thread: NewThreadArgs,
}

/// The properties of a new thread.
#[derive(Debug, Clone, Default, PartialEq, Eq, Args)]
pub struct NewThreadArgs {
    /// A model or tier, instead of the directive's or the default one
    #[arg(long, value_name = "NAME")]
    pub model: Option<String>,
    /// Caps, at most the operator's.
    #[command(flatten)]
    pub caps: CapArgs,
    /// The id of the thread, instead of a new one: letters, digits, _ and - in segments joined by /
    #[arg(long, value_name = "ID", allow_hyphen_values = true, value_parser = new_id)]
    pub id: Option<String>,
    /// A title for people
    #[arg(long, value_name = "TEXT")]
    pub title: Option<String>,
    /// Its owner, by which `list` finds it
    #[arg(long, value_name = "NAME")]
    pub agent: Option<String>,
    /// A task of yours, by which `list` finds it
    #[arg(long, value_name = "NAME")]
    pub task: Option<String>,
}

/// The arguments of `create`.
#[derive(Debug, Args)]
#[command(after_help = "\
Nothing runs: `threadkeep resume` starts it, `threadkeep chat` talks with a chat, and \
`threadkeep open` is for a loop of your own. The id alone goes to standard output:

  thread=$(threadkeep create describe --input file=notes.txt)")]
pub struct CreateArgs {
    /// Name of a directive; a chat without it
    pub directive: Option<String>,
    /// An input of the directive, as text; may be repeated
    #[arg(long = "input", value_name = "NAME=VALUE", value_parser = inputs::pair)]
    pub input: Vec<(String, String)>,
    /// Inputs as a JSON object, for values that are not text
    #[arg(long, value_name = "JSON")]
    pub inputs: Option<String>,
    /// A capability of a chat; a directive names its own
    #[arg(long, value_name = "NAME")]
    pub capability: Vec<String>,
    /// The properties of the new thread.
    #[command(flatten)]
    pub thread: NewThreadArgs,
}

/// The arguments of `message`.
#[derive(Debug, Args)]
pub struct MessageArgs {
    /// Its id
    pub thread: String,
    /// The text of the message
    pub text: String,
    /// An image that it shows to the model (png, jpeg, gif or webp); may be repeated
    #[arg(long, value_name = "FILE")]
    pub image: Vec<PathBuf>,
}

/// The arguments of `title`.
#[derive(Debug, Args)]
#[command(
    override_usage = "threadkeep title <THREAD> <TEXT>\n       threadkeep title <THREAD> --none"
)]
pub struct TitleArgs {
    /// Its id
    pub thread: String,
    /// The title: one line, at most 200 characters
    #[arg(required_unless_present = "none")]
    pub text: Option<String>,
    /// Take the title away
    #[arg(long, conflicts_with = "text")]
    pub none: bool,
}

/// The arguments of `resume`.
#[derive(Debug, Args)]
pub struct ResumeArgs {
    /// Its id
    pub thread: String,
    /// A message to go on with; needed where it has nothing left to answer
    #[arg(value_name = "MESSAGE", conflicts_with = "message")]
    pub text: Option<String>,
    /// The same message
    #[arg(long, value_name = "TEXT")]
    pub message: Option<String>,
    /// An image that the message shows to the model (png, jpeg, gif or webp); may be repeated
    #[arg(long, value_name = "FILE")]
    pub image: Vec<PathBuf>,
    /// The output beside its replies.
    #[command(flatten)]
    pub display: RunDisplayArgs,
}

/// The arguments of `raise`.
#[derive(Debug, Args)]
pub struct RaiseArgs {
    /// Its id
    pub thread: String,
    /// The new caps; those that are left out stay.
    #[command(flatten)]
    pub caps: CapArgs,
    /// Raise the accounts above as well where they lack room for the spend
    #[arg(long)]
    pub through: bool,
}

/// The arguments of a command that takes a thread and nothing else.
#[derive(Debug, Args)]
pub struct ThreadArgs {
    /// Its id
    pub thread: String,
}

/// The arguments of `recover`.
#[derive(Debug, Args)]
#[command(after_help = "\
A process that dies lets go of its lock file, so its runs are found without a word from you. A \
holder on another machine, or under another host, must be named with --dead by somebody who \
knows that it is gone.")]
pub struct RecoverArgs {
    /// A holder that is known to be dead, as `show` and `busy` errors name it; may be repeated
    #[arg(long, value_name = "HOLDER")]
    pub dead: Vec<String>,
}

/// The arguments of `repair`.
#[derive(Debug, Args)]
pub struct RepairArgs {
    /// The ids of the threads; all threads if none is named
    #[arg(value_name = "THREAD")]
    pub threads: Vec<String>,
}

/// Refuses the id of a new thread that no command could be given: it would be taken for an option.
fn new_id(text: &str) -> Result<String, String> {
    match text.starts_with('-') {
        true => Err("an id does not begin with -, which begins an option".to_owned()),
        false => Ok(text.to_owned()),
    }
}

fn provider(text: &str) -> Result<ProviderOverride, String> {
    match text.split_once(':') {
        Some(("scripted", file)) if !file.is_empty() => Ok(ProviderOverride::Scripted(file.into())),
        _ => {
            Err("a provider is scripted:FILE; others are set in .ai/config/models.yaml".to_owned())
        }
    }
}

/// Longest time that a cap may have: a hundred years.
const DURATION_SECONDS_MAX: u64 = 3_155_760_000;

fn duration(text: &str) -> Result<Duration, String> {
    let wrong = || "a time is a number of seconds, or such as 90s, 10m, 1h30m".to_owned();
    let duration = match text.parse::<u64>() {
        Ok(seconds) => Duration::from_secs(seconds),
        Err(_) => {
            let parsed: jiff::SignedDuration = text.parse().map_err(|_| wrong())?;
            Duration::try_from(parsed).map_err(|_| wrong())?
        }
    };
    match duration.as_secs() > DURATION_SECONDS_MAX {
        true => Err("the time is longer than a hundred years".to_owned()),
        false => Ok(duration),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        command().debug_assert();
    }

    #[test]
    fn times() {
        for (text, millis) in [
            ("90", 90_000),
            ("10m", 600_000),
            ("1h30m", 5_400_000),
            ("0", 0),
        ] {
            assert_eq!(duration(text), Ok(Duration::from_millis(millis)), "{text}");
        }
        for text in [
            "",
            "soon",
            "-5s",
            "1.5.2",
            "99999999999",
            "99999999999999999999",
        ] {
            assert!(duration(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn a_call_is_named_by_its_number() {
        let settle = |call| {
            let words = [
                "threadkeep",
                "budget",
                "settle",
                "talk",
                call,
                "--amount",
                "0.01",
            ];
            CommandLine::try_parse_from(words).map_err(|error| error.to_string())
        };
        assert!(settle("12").is_ok());
        let refused = settle("turn-1").unwrap_err();
        assert!(
            refused.contains("number that `budget hold` printed"),
            "{refused}"
        );
    }

    #[test]
    fn providers() {
        assert_eq!(
            provider("scripted:a:b.json"),
            Ok(ProviderOverride::Scripted("a:b.json".into()))
        );
        for text in ["", "scripted", "scripted:", "openai", "openai:x"] {
            assert!(provider(text).is_err(), "{text:?}");
        }
    }
}
