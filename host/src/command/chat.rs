//! `chat`: what a person types is a message, and a run answers it; a file or a pipe is one message,
//! or one for each line.
//!
//! A new chat is created with its first message, so a chat without messages leaves nothing behind.
//! Only a user at a terminal has commands (`/quit`, ...): from a file or a program every line is a
//! message.

mod commands;
mod input;
mod line_editor;

use super::drive::{DriveOutcome, FirstPress, RunWatch};
use super::interrupts::{InterruptStream, ProcessInterrupt};
use super::session::{CommandProject, CommandSession};
use super::terminal::SavedMode;
use input::ChatInput;
use line_editor::TypedLine;
use serde_json::json;
use threadkeep_cli::answer::ChargedRow;
use threadkeep_cli::args;
use threadkeep_cli::chat_input::{ChatParser, ChatRequest};
use threadkeep_cli::command::message_images::MessageImages;
use threadkeep_cli::command::{chain, decide, fault, run, thread_names, view};
use threadkeep_cli::contract::{Thread, ThreadDraft};
use threadkeep_cli::exit::{CommandExit, CommandFault};
use threadkeep_cli::inputs;
use threadkeep_cli::screen::OutputScreen;
use threadkeep_cli::stream::RunStream;
use threadkeep_cli::style::{StyledLine, TextRole};
use threadkeep_cli::threads::ProjectThreads;

const PROMPT: &str = "> ";
const MORE_PROMPT: &str = ". ";

/// Newest entries of a chat in which a person's earlier messages are looked for.
const HISTORY_ENTRIES: u32 = 200;

/// Reads messages and runs the thread for each, until the input ends or the user leaves.
pub async fn chat(
    session: &CommandSession,
    chat: args::ChatArgs,
    screen: &mut OutputScreen,
) -> Result<CommandExit, CommandFault> {
    let each_line = chat.each_line;
    let mut talking = match &chat.thread {
        Some(thread) => ChatSession::for_existing_thread(session, thread, &chat, screen).await?,
        None => ChatSession::for_new_thread(session, chat).await?,
    };
    let person = screen.properties().in_terminal;
    let saved = SavedMode::save();
    let mut input = ChatInput::start(each_line, screen);
    let done = talking.exchange_messages(&mut input, person, screen).await;
    drop(saved);
    let done = done?;
    match talking.standing {
        ChatThread::New(_) if !person => Err(CommandFault::usage(
            "nothing was said: standard input was empty",
        )
        .with_hint("give it a message: echo 'Hello.' | threadkeep chat")),
        ChatThread::New(_) => Ok(done),
        ChatThread::Existing { thread, next, .. } => {
            if next {
                let next = format!("threadkeep chat {thread}");
                screen.note(&format!("next: {}", screen.next_step_for(&next)));
            }
            Ok(done)
        }
    }
}

/// The state of the `chat` command.
struct ChatSession<'a> {
    session: &'a CommandSession,
    standing: ChatThread,
    interrupts: InterruptStream,
    /// Images of the first message.
    images: MessageImages,
    display: args::RunDisplayArgs,
    /// Exit code of the last run.
    last: CommandExit,
    /// Charges for calls of a process that died, until an answer has named them.
    charged: Vec<ChargedRow>,
}

/// The thread of the chat, which is created with the first message.
enum ChatThread {
    New(Box<ThreadDraft>),
    Existing {
        opened: Box<CommandProject>,
        thread: String,
        /// Its model or tier.
        model: String,
        runs: u32,
        /// True if the next thing to do is another message; otherwise the answer of the last run
        /// has named it.
        next: bool,
    },
}

/// The next input of the chat.
enum ChatTurn {
    Message(String),
    Command(ChatRequest),
    /// The input has ended, or the process was asked to end.
    End,
    /// The user pressed Ctrl-C twice.
    Left,
}

impl<'a> ChatSession<'a> {
    async fn for_new_thread(
        session: &'a CommandSession,
        chat: args::ChatArgs,
    ) -> Result<Self, CommandFault> {
        let draft = run::new_draft(None, String::new(), chat.capability, chat.new);
        let images = MessageImages::read(session, &chat.image)?;
        run::rehearse(session, &draft, Some(&images)).await?;
        let standing = ChatThread::New(Box::new(draft));
        Ok(Self::with_thread(session, standing, images, chat.display))
    }

    async fn for_existing_thread(
        session: &'a CommandSession,
        thread: &str,
        chat: &args::ChatArgs,
        screen: &mut OutputScreen,
    ) -> Result<Self, CommandFault> {
        if chat.new != args::NewThreadArgs::default() || !chat.capability.is_empty() {
            let message =
                "model, caps, id, title, agent, task and capabilities are those of a new chat";
            return Err(CommandFault::usage(message)
                .with_hint(format!("threadkeep chat {thread}, without them")));
        }
        let images = MessageImages::read(session, &chat.image)?;
        let opened = session.open()?;
        let mut thread = thread.to_owned();
        thread_names::resolve(&opened, &mut thread).await?;
        let done = "the chat goes on";
        let meant = chain::find_meant_thread(&opened, &thread, done, screen).await;
        let found = opened.get(&meant.id).await;
        let found = found.map_err(|error| fault::from_thread_call(&opened, &meant.id, &error))?;
        check_open_chat(&found)?;
        let (found, charged) = run::recover_from_dead_holder(&opened, found, screen).await?;
        run::check_resumable(&opened, &found)?;
        let standing = ChatThread::Existing {
            opened: Box::new(opened),
            thread: found.id,
            model: found.model,
            runs: 0,
            next: true,
        };
        Ok(Self {
            charged,
            ..Self::with_thread(session, standing, images, chat.display)
        })
    }

    fn with_thread(
        session: &'a CommandSession,
        standing: ChatThread,
        images: MessageImages,
        display: args::RunDisplayArgs,
    ) -> Self {
        Self {
            images,
            display,
            session,
            standing,
            interrupts: InterruptStream::listen(),
            last: CommandExit::Done,
            charged: Vec::new(),
        }
    }

    async fn exchange_messages(
        &mut self,
        input: &mut ChatInput,
        person: bool,
        screen: &mut OutputScreen,
    ) -> Result<CommandExit, CommandFault> {
        if person {
            self.recall_messages(input).await;
            if self.session.finds_no_project() {
                screen.note("there is no project here: the first message makes .ai");
            }
            let model = self.name_model()?;
            screen.note(&format!("model {model}; /help says what you can do here"));
        }
        loop {
            let text = match self.read_input(input, person, screen).await? {
                ChatTurn::End => return Ok(self.last),
                ChatTurn::Left => return Ok(CommandExit::Stopped),
                ChatTurn::Command(said) => {
                    self.run_command(said, screen).await;
                    continue;
                }
                ChatTurn::Message(text) => text,
            };
            let ran = match self.run_message(&text, screen).await {
                Ok(driven) if person => self.decide_and_go_on(driven, input, screen).await,
                ran => ran,
            };
            match ran {
                Err(fault) if person && fault.exit != CommandExit::Stopped => {
                    self.last = screen.print_fault(&fault);
                }
                Err(fault) => return Err(fault),
                Ok(driven) => {
                    self.last = driven.answer.exit;
                    let over = driven.answer.outcome.is_some() || driven.terminated;
                    let stuck = !person && self.last != CommandExit::Done;
                    if over || stuck || driven.presses > 1 {
                        return Ok(self.last);
                    }
                    if driven.presses > 0 {
                        // They were meant for a reply that the user has stopped.
                        input.discard_typed();
                    }
                }
            }
        }
    }

    /// Fills the history of the line editor with the messages of the chat. It helps a person: what
    /// cannot be read is left out.
    async fn recall_messages(&self, input: &ChatInput) {
        let ChatThread::Existing { opened, thread, .. } = &self.standing else {
            return;
        };
        let Ok(found) = opened.get(thread).await else {
            return;
        };
        let after = found.version.saturating_sub(HISTORY_ENTRIES.into());
        let mut cursor = None;
        while let Ok(page) = opened.entries(thread, after, HISTORY_ENTRIES, cursor).await {
            for entry in &page.entries {
                for text in user_texts(&entry.body) {
                    input.remember(&text);
                }
            }
            cursor = page.cursor;
            if cursor.is_none() {
                return;
            }
        }
    }

    /// Reads the next message or command, which may be several lines long.
    async fn read_input(
        &mut self,
        input: &mut ChatInput,
        person: bool,
        screen: &mut OutputScreen,
    ) -> Result<ChatTurn, CommandFault> {
        let mut talk = ChatParser::new(person);
        let mut pressed = false;
        loop {
            let prompt = match talk.is_in_message() {
                true => MORE_PROMPT,
                false => PROMPT,
            };
            let line = tokio::select! {
                biased;
                interrupt = self.interrupts.next() => {
                    screen.end_prompt();
                    if interrupt == ProcessInterrupt::Terminate {
                        return Ok(ChatTurn::End);
                    }
                    TypedLine::Interrupt
                }
                line = input.next(prompt, screen) => line,
            };
            let was_pressed = std::mem::take(&mut pressed);
            let said = match line {
                TypedLine::Text(text) if input.is_whole() => {
                    let text = Some(text).filter(|text| !text.trim().is_empty());
                    return Ok(text.map_or(ChatTurn::End, ChatTurn::Message));
                }
                TypedLine::Text(line) => {
                    input.remember(&line);
                    talk.parse_line(&line)
                }
                TypedLine::Bad(why) => {
                    let message = format!("standard input {why}");
                    return Err(CommandFault::new("invalid", message));
                }
                TypedLine::Interrupt if was_pressed => return Ok(ChatTurn::Left),
                TypedLine::Interrupt => {
                    screen.note("press Ctrl-C again, or Ctrl-D, to leave");
                    pressed = true;
                    talk = ChatParser::new(person);
                    continue;
                }
                TypedLine::End => {
                    input.end_prompt(screen);
                    return Ok(talk.finish().map_or(ChatTurn::End, ChatTurn::Message));
                }
            };
            match said {
                Some(ChatRequest::Message(text)) => return Ok(ChatTurn::Message(text)),
                Some(ChatRequest::Quit) => return Ok(ChatTurn::End),
                Some(command) => return Ok(ChatTurn::Command(command)),
                None => {}
            }
        }
    }

    /// Asks the user about the calls that the run has stopped for, and goes on, until no call is
    /// left to decide about or the user does not decide.
    async fn decide_and_go_on(
        &mut self,
        mut driven: DriveOutcome,
        input: &mut ChatInput,
        screen: &mut OutputScreen,
    ) -> Result<DriveOutcome, CommandFault> {
        while driven.presses == 0 && !driven.answer.waits_for.calls().is_empty() {
            let calls = driven.answer.waits_for.calls();
            let described = driven.answer.waits_for.describe_calls();
            for (call, described) in calls.iter().zip(described) {
                let Some(decision) = self.ask_about(&described, input, screen).await else {
                    return Ok(driven);
                };
                let ChatThread::Existing { opened, thread, .. } = &mut self.standing else {
                    return Ok(driven);
                };
                decide::send_decision(&**opened, thread, call, &decision).await?;
            }
            driven = self.run_thread(None, screen).await?;
        }
        Ok(driven)
    }

    /// Asks the user about one call; returns the fields of the decision, or `None` where the user
    /// does not decide.
    async fn ask_about(
        &mut self,
        described: &str,
        input: &mut ChatInput,
        screen: &mut OutputScreen,
    ) -> Option<serde_json::Value> {
        let question = format!("allow {described}? y, n or n NOTE, or a ANSWER");
        screen.report(&StyledLine::default().with(TextRole::Warning, &question));
        loop {
            let line = tokio::select! {
                biased;
                _ = self.interrupts.next() => TypedLine::Interrupt,
                line = input.next(PROMPT, screen) => line,
            };
            let TypedLine::Text(line) = line else {
                input.end_prompt(screen);
                return None;
            };
            match parse_decision(&line) {
                Some(decision) => return Some(decision),
                None => screen.note("y allows it, n does not, a TEXT is its result"),
            }
        }
    }

    /// Runs the thread with one message and shows the answer.
    async fn run_message(
        &mut self,
        text: &str,
        screen: &mut OutputScreen,
    ) -> Result<DriveOutcome, CommandFault> {
        inputs::user_message(text)?;
        self.run_thread(Some(text), screen).await
    }

    /// Runs the thread, which the first message creates, and shows the answer.
    async fn run_thread(
        &mut self,
        text: Option<&str>,
        screen: &mut OutputScreen,
    ) -> Result<DriveOutcome, CommandFault> {
        if let ChatThread::New(draft) = &self.standing {
            let opened = self.session.open_or_create()?;
            let thread = run::create_thread(&opened, (**draft).clone()).await?;
            let model = draft.model.clone();
            self.standing = ChatThread::Existing {
                opened: Box::new(opened),
                thread,
                model: model.unwrap_or_else(|| "default".to_owned()),
                runs: 0,
                next: true,
            };
        }
        let ChatThread::Existing {
            opened,
            thread,
            runs,
            next,
            ..
        } = &mut self.standing
        else {
            return Err(CommandFault::new("no-thread", "the chat has no thread"));
        };
        let images = std::mem::take(&mut self.images);
        let message = images.into_message(&**opened, thread, text).await;
        let message = message.map_err(|fault| run::with_created_hint(&**opened, fault, thread))?;
        let stream = if *runs == 0 {
            RunStream::new()
        } else {
            RunStream::for_further_run()
        };
        *runs += 1;
        let stream = stream.with_thinking(self.display.show_thinking);
        let watch = RunWatch::new(&mut self.interrupts, FirstPress::Stops, stream);
        let typed = screen.properties().in_terminal;
        let silent = typed.then(SavedMode::save_without_echo);
        let driven = watch.drive(opened, thread, message, screen).await;
        drop(silent);
        let mut driven =
            driven.map_err(|fault| run::with_created_hint(&**opened, fault, thread))?;
        driven.answer.charged.splice(0..0, self.charged.drain(..));
        // The run may have gone on in another thread, and the chat does so as well.
        thread.clone_from(&driven.answer.thread_id);
        let json = screen.properties().json;
        let (status, stopped) = (driven.answer.status.as_str(), driven.presses == 1);
        *next = status == "idle" || (status == "suspended" && stopped);
        match status {
            "idle" if !json => screen.end_line(),
            // The user stopped it, is still here and continues with the next message.
            "suspended" if stopped && !json => screen.note("stopped"),
            _ => drop(screen.print_answer(&driven.answer)),
        }
        Ok(driven)
    }
}

/// Returns the texts of the user's messages in an entry, as its JSON body has them.
fn user_texts(body: &str) -> Vec<String> {
    let body = view::parse_json(body);
    let events = body["events"].as_array().into_iter().flatten();
    let messages = events.filter(|event| event["type"] == "message" && event["role"] == "user");
    messages
        .flat_map(|message| message["content"].as_array().into_iter().flatten())
        .filter_map(|block| Some(block["text"].as_str()?.to_owned()))
        .collect()
}

/// Parses what a user types about a call: `y`, `n`, `n NOTE` or `a TEXT`.
fn parse_decision(line: &str) -> Option<serde_json::Value> {
    let line = line.trim();
    let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
    let rest = rest.trim();
    match (word, rest) {
        ("y" | "yes", "") => Some(json!({"approve": true})),
        ("n" | "no", "") => Some(json!({"approve": false})),
        ("n" | "no", note) => Some(json!({"approve": false, "note": note})),
        ("a" | "answer", text) if !text.is_empty() => Some(json!({"answer": text})),
        _ => None,
    }
}

/// Refuses a thread that is not a chat, and a chat that has ended.
fn check_open_chat(thread: &Thread) -> Result<(), CommandFault> {
    let id = &thread.id;
    if let Some(directive) = &thread.directive {
        let message = format!("{id} is a thread of the directive {directive}, not a chat");
        return Err(CommandFault::new("refused", message)
            .with_hint(format!("threadkeep resume {id} --message TEXT")));
    }
    match &thread.outcome {
        Some(outcome) => Err(CommandFault::new("refused", format!("{id} is {outcome}"))
            .with_hint("it has ended: `threadkeep chat` begins another")),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_of_a_user_are_recalled() {
        let body = json!({"events": [
            {"type": "message", "role": "user", "content": [
                {"type": "text", "text": "one\ntwo"}, {"type": "image", "blob": "b"}]},
            {"type": "message", "role": "assistant", "content": [{"type": "text", "text": "no"}]},
        ]});
        assert_eq!(user_texts(&body.to_string()), ["one\ntwo"]);
        assert_eq!(user_texts("no JSON"), [] as [&str; 0]);
    }

    #[test]
    fn a_decision_is_a_letter_and_words() {
        for (line, expected) in [
            ("y", Some(json!({"approve": true}))),
            (" yes ", Some(json!({"approve": true}))),
            ("n", Some(json!({"approve": false}))),
            (
                "n too late",
                Some(json!({"approve": false, "note": "too late"})),
            ),
            ("a 42", Some(json!({"answer": "42"}))),
            ("a", None),
            ("", None),
            ("y please", None),
            ("maybe", None),
        ] {
            assert_eq!(parse_decision(line), expected, "{line:?}");
        }
    }
}
