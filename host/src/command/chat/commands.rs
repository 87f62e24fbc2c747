//! Commands of a person in a chat: its cost, its model, a title, a fork.

use super::{ChatSession, ChatThread};
use crate::command::session::CommandProject;
use std::path::Path;
use threadkeep::documents::checkpoints::STATE_FILE;
use threadkeep_cli::answer::ThreadCost;
use threadkeep_cli::args::NewThreadArgs;
use threadkeep_cli::chat_input::{ChatRequest, HELP};
use threadkeep_cli::command::{fault, run, view};
use threadkeep_cli::contract::ThreadDraft;
use threadkeep_cli::exit::CommandFault;
use threadkeep_cli::money;
use threadkeep_cli::screen::OutputScreen;
use threadkeep_cli::style::StyledLine;
use threadkeep_cli::threads::ProjectThreads;

/// Most models that are named.
const MODELS_NAMED_MAX: usize = 20;

impl ChatSession<'_> {
    /// Performs a command; a fault ends nothing.
    pub(super) async fn run_command(&mut self, asked: ChatRequest, screen: &mut OutputScreen) {
        let done = match asked {
            ChatRequest::Help => {
                report_lines(HELP, screen);
                Ok(())
            }
            ChatRequest::Cost => self.show_cost(screen).await,
            ChatRequest::Model(None) => self.show_model(screen),
            ChatRequest::Model(Some(name)) => self.set_model(name, screen).await,
            ChatRequest::Title(title) => self.set_title(title, screen).await,
            ChatRequest::Fork(version) => self.fork(version, screen).await,
            ChatRequest::Unknown(fault) => Err(fault),
            ChatRequest::Message(_) | ChatRequest::Quit => Ok(()),
        };
        if let Err(fault) = done {
            screen.print_fault(&fault);
        }
    }

    async fn show_cost(&self, screen: &mut OutputScreen) -> Result<(), CommandFault> {
        let ChatThread::Existing { opened, thread, .. } = &self.standing else {
            report_lines(&ThreadCost::default().describe(), screen);
            return Ok(());
        };
        let failed = |error| fault::from_thread_call(&**opened, thread, &error);
        let found = opened.get(thread).await.map_err(failed)?;
        let account = opened.account(thread).await.map_err(failed)?;
        let cost = view::cost(&found.cost).describe();
        let used = account.spent.saturating_add(account.held);
        let used = used.saturating_add(account.reserved);
        let left = match account.limit {
            Some(limit) => format!(
                "; {} of {} is left",
                money::format_decimal(limit.saturating_sub(used)),
                money::format_usd(limit)
            ),
            None => String::new(),
        };
        report_lines(&format!("{cost}{left}"), screen);
        Ok(())
    }

    /// Names the model, and where it can still be chosen the others.
    fn show_model(&self, screen: &mut OutputScreen) -> Result<(), CommandFault> {
        match &self.standing {
            ChatThread::New(draft) => {
                let opened = self.session.open_rehearsal()?;
                let model = describe_model(&opened, draft.model.as_deref());
                let mut names = opened.library_names("model");
                let more = match names.len().saturating_sub(MODELS_NAMED_MAX) {
                    0 => String::new(),
                    more => format!(" and {more} more"),
                };
                names.truncate(MODELS_NAMED_MAX);
                let others = format!("/model NAME takes another: {}{more}", names.join(", "));
                report_lines(&format!("{model}\n{others}"), screen);
            }
            ChatThread::Existing { opened, model, .. } => {
                report_lines(&describe_model(opened, Some(model)), screen);
            }
        }
        Ok(())
    }

    /// Chooses the model of a chat that has not begun. Afterwards it stays, for its window, prices
    /// and tools are those of the thread: what was said goes on with another one in another thread.
    async fn set_model(
        &mut self,
        name: String,
        screen: &mut OutputScreen,
    ) -> Result<(), CommandFault> {
        if let ChatThread::Existing { opened, thread, .. } = &self.standing {
            let asked = NewThreadArgs {
                model: Some(name.clone()),
                ..NewThreadArgs::default()
            };
            let tried = run::new_draft(None, String::new(), Vec::new(), asked);
            run::rehearse(self.session, &tried, None).await?;
            let message = "a chat keeps the model of its first message";
            let hint = self.hint_other_model(opened, thread, &name);
            return Err(CommandFault::usage(message).with_hint(hint));
        }
        let ChatThread::New(draft) = &mut self.standing else {
            return Ok(());
        };
        let chosen = ThreadDraft {
            model: Some(name),
            ..(**draft).clone()
        };
        run::rehearse(self.session, &chosen, Some(&self.images)).await?;
        **draft = chosen;
        report_lines(&format!("the model is {}", self.name_model()?), screen);
        Ok(())
    }

    /// Says how to go on with another model: from the state of the chat on disk, if it is kept.
    fn hint_other_model(&self, opened: &CommandProject, thread: &str, name: &str) -> String {
        let anew = format!("`threadkeep chat --model {name}` begins another chat");
        let state = format!("{thread}/{STATE_FILE}");
        let threads = opened.project().threads();
        let is_kept = threads.is_some_and(|threads| threads.is_file(&state));
        let Some(documents) = opened.documents_path(thread).filter(|_| is_kept) else {
            return anew;
        };
        let state = Path::new(&documents).join(STATE_FILE);
        let state = match self.session.path() {
            (project, _) if project == Path::new(".") => state,
            (project, _) => project.join(state),
        };
        format!(
            "`threadkeep import --model {name} --state {}` makes a chat of what was said; {anew}",
            state.display()
        )
    }

    /// Returns the name of the model.
    pub(super) fn name_model(&self) -> Result<String, CommandFault> {
        match &self.standing {
            ChatThread::New(draft) => {
                let opened = self.session.open_rehearsal()?;
                Ok(describe_model(&opened, draft.model.as_deref()))
            }
            ChatThread::Existing { opened, model, .. } => Ok(describe_model(opened, Some(model))),
        }
    }

    async fn set_title(
        &mut self,
        title: String,
        screen: &mut OutputScreen,
    ) -> Result<(), CommandFault> {
        match &mut self.standing {
            ChatThread::New(draft) => {
                let titled = ThreadDraft {
                    title: Some(title),
                    ..(**draft).clone()
                };
                run::rehearse(self.session, &titled, None).await?;
                **draft = titled;
            }
            ChatThread::Existing { opened, thread, .. } => {
                let titled = opened.set_title(thread, Some(title)).await;
                titled.map_err(|error| fault::from_thread_call(&**opened, thread, &error))?;
                opened.refresh_documents(thread, screen).await;
            }
        }
        Ok(())
    }

    /// Goes on in a fork of the chat, as it was at a version; the chat stays as it is.
    async fn fork(
        &mut self,
        version: Option<u64>,
        screen: &mut OutputScreen,
    ) -> Result<(), CommandFault> {
        let ChatThread::Existing {
            opened,
            thread,
            runs,
            next,
            ..
        } = &mut self.standing
        else {
            let message = "there is nothing to fork: the chat has no message";
            return Err(CommandFault::usage(message));
        };
        let failed = |error| fault::from_thread_call(&**opened, thread, &error);
        let found = opened.get(thread).await.map_err(failed)?;
        let version = version.unwrap_or(found.version);
        let forked = opened.fork_at(thread, version, None).await;
        let forked = forked.map_err(failed)?;
        opened.refresh_documents(&forked.id, screen).await;
        report_lines(
            &format!(
                "going on in {}, a fork at version {version}\n{thread} stays as it is: threadkeep \
                 chat {thread}",
                forked.id
            ),
            screen,
        );
        *thread = forked.id;
        *runs = 0;
        *next = true;
        Ok(())
    }
}

/// Names a model, before the tier that it was chosen by.
fn describe_model(opened: &CommandProject, name: Option<&str>) -> String {
    let name = name.unwrap_or("default");
    let table = opened.project().library().models();
    match table.ok().as_ref().and_then(|table| table.resolve(name)) {
        Some(model) if model.name != name => format!("{} ({name})", model.name),
        _ => name.to_owned(),
    }
}

/// Prints lines that the user has asked for.
fn report_lines(lines: &str, screen: &mut OutputScreen) {
    for line in lines.lines() {
        screen.report(&StyledLine::plain(line));
    }
}
