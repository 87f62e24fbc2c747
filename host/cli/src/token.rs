//! The token of a held thread as users and scripts pass it on. It includes the id of its thread,
//! because the tokens of all threads begin with the same numbers, and one in an environment
//! variable is soon forgotten.

use crate::exit::CommandFault;
use std::fmt;
use std::str::FromStr;

/// `THREAD#NUMBER`. No thread's id has a `#` in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaseToken {
    thread: String,
    number: u64,
}

impl LeaseToken {
    /// The token of a thread.
    pub fn new(thread: &str, number: u64) -> Self {
        Self {
            thread: thread.to_owned(),
            number,
        }
    }

    /// Returns its number, for a call about this thread.
    ///
    /// # Errors
    /// A usage fault, if it is the token of another thread.
    pub fn number_for(&self, thread: &str) -> Result<u64, CommandFault> {
        if self.thread.eq_ignore_ascii_case(thread) {
            return Ok(self.number);
        }
        let message = format!("the token {self} is not of {thread}");
        Err(CommandFault::usage(message).with_hint(format!(
            "give the one that `threadkeep open {thread}` printed, with --token or in \
             THREADKEEP_TOKEN"
        )))
    }
}

impl fmt::Display for LeaseToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}#{}", self.thread, self.number)
    }
}

impl FromStr for LeaseToken {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || "a token is THREAD#NUMBER, as `threadkeep open` prints it".to_owned();
        let (thread, number) = text.rsplit_once('#').ok_or_else(wrong)?;
        match number.parse() {
            Ok(number) if !thread.is_empty() => Ok(Self::new(thread, number)),
            Ok(_) | Err(_) => Err(wrong()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_of_one_thread() {
        let token: LeaseToken = "a/My-Chat#7".parse().unwrap();
        assert_eq!(token.to_string(), "a/My-Chat#7");
        assert_eq!(token.number_for("A/my-chat"), Ok(7));
        let other = token.number_for("a/other").unwrap_err();
        assert_eq!(other.message, "the token a/My-Chat#7 is not of a/other");
        for text in [
            "",
            "7",
            "#7",
            "a#",
            "a#-1",
            "a#7 ",
            "a#99999999999999999999",
        ] {
            assert!(text.parse::<LeaseToken>().is_err(), "{text:?}");
        }
    }
}
