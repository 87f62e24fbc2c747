//! The arguments of `usage`.

use super::listing::PastTime;
use clap::{Args, ValueEnum};

/// The arguments of `usage`.
#[derive(Debug, Args)]
#[command(after_help = "\
Every figure is added up from the entries of the histories: money that was settled, charged by \
estimate and corrected since, and what tools cost. Days are those of UTC.

  threadkeep usage --by day,model --since 7d")]
pub struct UsageArgs {
    /// Add up by these, separated by commas: day, model, directive, agent
    #[arg(
        long,
        value_name = "KEYS",
        value_delimiter = ',',
        default_value = "day",
        hide_possible_values = true
    )]
    pub by: Vec<UsageKey>,
    /// Since then: 2h, 7d, 2026-03-10 or 2026-03-10T12:00:00Z
    #[arg(long, value_name = "TIME", value_parser = PastTime::parse)]
    pub since: Option<PastTime>,
    /// Threads of this directive alone
    #[arg(long, value_name = "NAME")]
    pub directive: Option<String>,
    /// Threads of this agent alone
    #[arg(long, value_name = "NAME")]
    pub agent: Option<String>,
}

/// A property by which usage is added up: day, model, directive, agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum UsageKey {
    /// The day, in UTC.
    Day,
    /// The model that replied.
    Model,
    /// The directive of the thread.
    Directive,
    /// The owner of the thread.
    Agent,
}

impl UsageKey {
    /// Its name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Day => "day",
            Self::Model => "model",
            Self::Directive => "directive",
            Self::Agent => "agent",
        }
    }
}
