//! The arguments of `budget` and `tree`.

use super::external_loop::LEASE_TIME_DEFAULT;
use super::{ThreadArgs, duration};
use crate::money;
use crate::token::LeaseToken;
use clap::{Args, Subcommand};
use std::time::Duration;

/// The arguments of `budget`.
#[derive(Debug, Args)]
#[command(after_help = "\
A loop of your own holds before each call, so that no crash spends unseen, and tells \
afterwards what the call came to:

  export THREADKEEP_TOKEN=$(threadkeep open my-chat)
  call=$(threadkeep budget hold my-chat turn-1 --amount 0.02)
  threadkeep budget settle my-chat $call --amount 0.013
  threadkeep close my-chat idle

What is still held when the loop ends is charged by estimate, and may be settled later all the \
same.")]
pub struct BudgetArgs {
    /// The subcommand.
    #[command(subcommand)]
    pub command: BudgetCommand,
}

/// A command about money.
#[derive(Debug, Subcommand)]
pub enum BudgetCommand {
    /// Show the account that a thread draws on: limit, spent, held, reserved, remaining
    Show(ThreadArgs),
    /// Set money aside for one call, and print the number of the call
    Hold(HoldArgs),
    /// Tell what a held call came to: repeated, it changes nothing
    Settle(SettleArgs),
    /// Give back what was set aside for a call: nothing was sent
    Release(ReleaseArgs),
}

/// The arguments of `budget hold`.
#[derive(Debug, Args)]
pub struct HoldArgs {
    /// Its id
    pub thread: String,
    /// Your name for the call, such as turn-5/attempt-1: the same name returns the same answer
    pub key: String,
    /// The estimate of its cost.
    #[command(flatten)]
    pub estimate: EstimateArgs,
    /// The time until it will be settled, at most 1h: the lease of the thread lasts at least as
    /// long
    #[arg(
        long = "for",
        value_name = "TIME",
        value_parser = duration,
        default_value = LEASE_TIME_DEFAULT
    )]
    pub time: Duration,
    /// The token of the lease of the thread, THREAD#NUMBER [default: THREADKEEP_TOKEN]
    #[arg(long, value_name = "TOKEN")]
    pub token: Option<LeaseToken>,
}

/// The estimate of a call: money, or tokens of a model.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub struct EstimateArgs {
    /// The estimated cost, in US dollars, such as 0.25
    #[arg(long, value_name = "USD", value_parser = money::parse, required_unless_present = "model",
        conflicts_with_all = ["model", "input", "output"])]
    pub amount: Option<u64>,
    /// The model or tier that answers it, at its prices in .ai/config/models.yaml
    #[arg(long, value_name = "NAME", requires_all = ["input", "output"])]
    pub model: Option<String>,
    /// Tokens that it will read: estimate them high
    #[arg(long, value_name = "N", requires = "model")]
    pub input: Option<u64>,
    /// Most tokens that it may write: lowered where money is short
    #[arg(long, value_name = "N", requires = "model")]
    pub output: Option<u64>,
}

/// Reads the number of a call, which is not the key that was given to `budget hold`.
fn parse_call(text: &str) -> Result<u64, String> {
    text.parse()
        .map_err(|_| "a call is named by the number that `budget hold` printed".to_owned())
}

/// The arguments of `budget settle`.
#[derive(Debug, Args)]
pub struct SettleArgs {
    /// Its id
    pub thread: String,
    /// The number that `budget hold` printed
    #[arg(value_name = "CALL", value_parser = parse_call)]
    pub call: u64,
    /// The bill of the call.
    #[command(flatten)]
    pub bill: BillArgs,
}

/// The bill of a call: money, or the tokens that its provider reported.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub struct BillArgs {
    /// The cost, in US dollars
    #[arg(long, value_name = "USD", value_parser = money::parse, required_unless_present = "input",
        conflicts_with_all = ["input", "output", "cache_read", "cache_write", "reasoning"])]
    pub amount: Option<u64>,
    /// Tokens read, neither from a cache nor into one; at the prices that stood when it was held
    #[arg(long, value_name = "N", requires = "output")]
    pub input: Option<u64>,
    /// Tokens written, with those of reasoning
    #[arg(long, value_name = "N", requires = "input")]
    pub output: Option<u64>,
    /// Tokens read from a cache
    #[arg(long, value_name = "N", requires = "input")]
    pub cache_read: Option<u64>,
    /// Tokens written into a cache
    #[arg(long, value_name = "N", requires = "input")]
    pub cache_write: Option<u64>,
    /// The part of the output that was reasoning
    #[arg(long, value_name = "N", requires = "input")]
    pub reasoning: Option<u64>,
}

/// The arguments of `budget release`.
#[derive(Debug, Args)]
pub struct ReleaseArgs {
    /// Its id
    pub thread: String,
    /// The number that `budget hold` printed
    #[arg(value_name = "CALL", value_parser = parse_call)]
    pub call: u64,
}

/// The arguments of `tree`.
#[derive(Debug, Args)]
#[command(after_help = "\
OWN COST is what a thread used itself; the columns after it are of its account, which counts \
its descendants too. In the bar # is spent, + is held or reserved, - is left.")]
pub struct TreeArgs {
    /// Its id
    pub thread: String,
    /// Go on where another tree ended: its `cursor`
    #[arg(long, value_name = "CURSOR")]
    pub cursor: Option<String>,
}
