//! `open`, `append` and `close`: the answers for an external loop.

use super::CommandAnswer;
use crate::exit::CommandExit;
use crate::screen::OutputScreen;
use serde::Serialize;
use serde_json::Value;

/// The answer of `open`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct OpenAnswer {
    /// The thread.
    pub thread_id: String,
    /// The token for `append` and `close`: `THREAD#NUMBER`.
    pub token: String,
    /// The version that the first append expects.
    pub version: u64,
    /// The name of the holder, which `recover --dead` takes.
    pub holder: String,
    /// RFC 3339. After it and a grace period any process may release the lease.
    pub deadline: String,
    /// The exit code.
    pub exit: CommandExit,
}

impl CommandAnswer for OpenAnswer {
    fn exit(&self) -> CommandExit {
        self.exit
    }

    /// Prints only the token on standard output, for a variable of a shell.
    fn print(&self, screen: &mut OutputScreen) {
        screen.print_line(&self.token);
        screen.note(&format!(
            "{} is held by {} until {}",
            self.thread_id, self.holder, self.deadline
        ));
    }
}

/// The answer of `append` and `close`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CommitAnswer {
    /// The thread.
    pub thread_id: String,
    /// The version that the commit made: the next append expects it.
    pub version: u64,
    /// Its status now.
    pub status: String,
    /// Messages to the thread that this commit delivered.
    pub mail: Vec<Value>,
    /// The exit code.
    pub exit: CommandExit,
}

impl CommandAnswer for CommitAnswer {
    fn exit(&self) -> CommandExit {
        self.exit
    }

    /// Prints the delivered messages, one a line: the loop has to answer them.
    fn print(&self, screen: &mut OutputScreen) {
        for mail in &self.mail {
            screen.print_line(&mail.to_string());
        }
        screen.note(&format!(
            "{} is {} at version {}",
            self.thread_id, self.status, self.version
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::screen::tests::screen;
    use serde_json::json;

    #[test]
    fn the_token_and_the_mail_are_the_answer_and_the_rest_is_beside_it() {
        let (mut person, out, err) = screen(false, false);
        person.print_answer(&OpenAnswer {
            thread_id: "a".to_owned(),
            token: "a#7".to_owned(),
            version: 1,
            holder: "cli-1/1".to_owned(),
            deadline: "2026-03-10T12:10:00Z".to_owned(),
            exit: CommandExit::Done,
        });
        person.print_answer(&CommitAnswer {
            thread_id: "a".to_owned(),
            version: 2,
            status: "running".to_owned(),
            mail: vec![json!({"role": "user", "content": "hi"})],
            exit: CommandExit::Done,
        });
        assert_eq!(out.text(), "a#7\n{\"role\":\"user\",\"content\":\"hi\"}\n");
        let beside = "a is held by cli-1/1 until 2026-03-10T12:10:00Z\na is running at version 2\n";
        assert_eq!(err.text(), beside);
    }
}
