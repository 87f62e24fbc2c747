//! The hidden command that a completion script asks: the names of a project that a word may be.
//!
//! A shell asks while a person types. So nothing is an error: a project that cannot be read has no
//! names.

use crate::answer::NamesAnswer;
use crate::args::{self, NameKind, is_plain_word};
use crate::exit::CommandExit;
use crate::screen::OutputScreen;
use crate::threads::{CommandHost, ProjectThreads};

/// Most names that are suggested: a person reads no more of them, and types on instead.
const NAMES_MAX: usize = 200;

/// Names what the last of the words may be.
pub async fn complete_words(
    host: &impl CommandHost,
    asked: args::CompleteWordsArgs,
    screen: &mut OutputScreen,
) -> CommandExit {
    let kind = args::kind_of_last(&asked.words);
    let typed = asked.words.last().map_or("", String::as_str);
    let names = match (kind, host.open_to_read(screen)) {
        (Some(kind), Ok(opened)) => find_names(&opened, kind, typed).await,
        _ => Vec::new(),
    };
    screen.print_answer(&NamesAnswer {
        names: names
            .into_iter()
            .filter(|name| is_plain_word(name))
            .collect(),
        exit: CommandExit::Done,
    })
}

async fn find_names(opened: &impl ProjectThreads, kind: NameKind, typed: &str) -> Vec<String> {
    let kind = match kind {
        NameKind::Thread => {
            return opened.find_ids(typed, NAMES_MAX).await.unwrap_or_default();
        }
        NameKind::Directive => "directive",
        NameKind::Model => "model",
    };
    let names = opened.library_names(kind).into_iter();
    names
        .filter(|name| name.starts_with(typed))
        .take(NAMES_MAX)
        .collect()
}
