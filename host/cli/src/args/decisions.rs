//! The arguments of `approve`, `deny` and `answer`, which decide about calls that wait for it.

use crate::exit::CommandFault;
use clap::Args;

/// The arguments of `approve`.
#[derive(Debug, Args)]
#[command(after_help = "\
Without CALL the only call that waits is meant. `threadkeep show` names those that wait, with \
their arguments.

  threadkeep approve mail-17 call_7_0 --note 'Only to this address.'")]
pub struct ApproveArgs {
    /// The thread and its calls.
    #[command(flatten)]
    pub decided: DecidedArgs,
}

/// The arguments of `deny`.
#[derive(Debug, Args)]
#[command(after_help = "\
The model is told that the call was denied, with the note, and goes on without it.

  threadkeep deny mail-17 --note 'Not on a Sunday.'")]
pub struct DenyArgs {
    /// The thread and its calls.
    #[command(flatten)]
    pub decided: DecidedArgs,
}

/// The arguments that an approval and a denial share.
#[derive(Debug, Args)]
pub struct DecidedArgs {
    /// Its id
    pub thread: String,
    /// The calls, such as call_7_0; without one the only call that waits
    #[arg(value_name = "CALL")]
    pub calls: Vec<String>,
    /// All calls that wait now
    #[arg(long, conflicts_with = "calls")]
    pub all: bool,
    /// A note that stays in the history; the model is told that of a denial
    #[arg(long, value_name = "TEXT")]
    pub note: Option<String>,
    /// Decide and do not go on: `threadkeep resume` does
    #[arg(long)]
    pub no_run: bool,
}

/// The arguments of `answer`.
#[derive(Debug, Args)]
#[command(
    override_usage = "threadkeep answer <THREAD> [CALL] <TEXT> [--no-run]",
    after_help = "\
The call is not run: the text is its result.

  threadkeep answer mail-17 'Send it to the whole list.'"
)]
pub struct AnswerArgs {
    /// Its id
    pub thread: String,
    /// The call, such as call_7_0, unless one waits alone; and the text
    #[arg(value_name = "CALL TEXT", num_args = 1..=2, required = true)]
    pub words: Vec<String>,
    /// Decide and do not go on: `threadkeep resume` does
    #[arg(long)]
    pub no_run: bool,
}

impl AnswerArgs {
    /// Returns the call that is named, if one is, and the text.
    ///
    /// # Errors
    /// For the id of a call alone: its text was forgotten, and an answer is given once.
    pub fn into_parts(self) -> Result<(Vec<String>, String), CommandFault> {
        let mut words = self.words;
        let text = words.pop().unwrap_or_default();
        if words.is_empty() && is_call_id(&text) {
            let message = format!("{text} is a call: the text that answers it is missing");
            let hint = format!("threadkeep answer {} {text} TEXT", self.thread);
            return Err(CommandFault::usage(message).with_hint(hint));
        }
        Ok((words, text))
    }
}

/// Returns true for `call_<version>_<index>`.
fn is_call_id(text: &str) -> bool {
    let numbers = text
        .strip_prefix("call_")
        .and_then(|rest| rest.split_once('_'));
    numbers.is_some_and(|(version, index)| {
        [version, index]
            .iter()
            .all(|number| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(words: &[&str]) -> Option<(Vec<String>, String)> {
        let answer = AnswerArgs {
            thread: "t".to_owned(),
            words: words.iter().map(|word| (*word).to_owned()).collect(),
            no_run: false,
        };
        answer.into_parts().ok()
    }

    /// Symptom: `answer T call_2_1` gave the call the result "call_2_1", once and for all. Cause:
    /// the only word is the text. Fix: the id of a call is no text where it stands alone. Kind:
    /// words whose meaning depends on how many there are.
    #[test]
    fn the_id_of_a_call_alone_is_no_answer() {
        assert_eq!(parts(&["call_2_1"]), None);
        assert_eq!(parts(&["call_10_0"]), None);
        for text in [
            "call_2_1 is fine",
            "call_2",
            "call_a_1",
            "call__",
            "call_2_",
            "yes",
        ] {
            assert_eq!(
                parts(&[text]),
                Some((Vec::new(), text.to_owned())),
                "{text}"
            );
        }
        let named = (vec!["call_2_1".to_owned()], "call_2_1".to_owned());
        assert_eq!(parts(&["call_2_1", "call_2_1"]), Some(named));
    }
}
