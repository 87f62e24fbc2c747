//! `chat`: each line of standard input is a message, and a run answers it.
//!
//! A new chat is created with its first message, so a chat without messages leaves nothing behind.
//! Only a user at a terminal has commands (`/quit`, ...): from a file or a program every line is a
//! message.

use super::drive::{Driven, FirstPress, Watch};
use super::input::{Input, Line};
use super::interrupts::{Interrupt, Interrupts};
use super::open::{Opened, Session};
use super::{fault, run};
use threadkeep::wit;
use threadkeep::wit::registry::Draft;
use threadkeep_cli::args;
use threadkeep_cli::exit::{Exit, Fault};
use threadkeep_cli::inputs;
use threadkeep_cli::screen::Screen;
use threadkeep_cli::stream::Stream;
use threadkeep_cli::talk::{Said, Talk};

const PROMPT: &str = "> ";
const MORE_PROMPT: &str = ". ";

/// Reads messages and runs the thread for each, until the input ends or the user leaves.
pub async fn chat(session: &Session, chat: args::Chat, screen: &mut Screen) -> Result<Exit, Fault> {
    let mut talking = match &chat.thread {
        Some(thread) => Talking::going_on(session, thread, &chat, screen).await?,
        None => Talking::anew(session, chat).await?,
    };
    let person = screen.ends().in_terminal;
    let done = talking.talk(person, screen).await?;
    match talking.standing {
        Standing::New(_) if !person => {
            Err(Fault::usage("nothing was said: standard input was empty")
                .hint("give it a message a line: echo 'Hello.' | threadkeep chat"))
        }
        Standing::New(_) => Ok(done),
        Standing::There { thread, next, .. } => {
            if next {
                let next = format!("threadkeep chat {thread}");
                screen.note(&format!("next: {}", screen.next_of(&next)));
            }
            Ok(done)
        }
    }
}

/// The state of the `chat` command.
struct Talking<'a> {
    session: &'a Session,
    standing: Standing,
    interrupts: Interrupts,
    /// Exit code of the last run.
    last: Exit,
}

/// The thread of the chat, which is created with the first message.
enum Standing {
    New(Box<Draft>),
    There {
        opened: Box<Opened>,
        thread: String,
        runs: u32,
        /// True if the next thing to do is another message; otherwise the answer of the last run
        /// has named it.
        next: bool,
    },
}

/// The next input of the chat.
enum Next {
    Message(String),
    Command(Said),
    /// The input has ended, or the process was asked to end.
    End,
    /// The user pressed Ctrl-C twice.
    Left,
}

impl<'a> Talking<'a> {
    async fn anew(session: &'a Session, chat: args::Chat) -> Result<Self, Fault> {
        let draft = run::draft(None, String::new(), chat.capability, chat.new);
        run::rehearse(session, &draft, true).await?;
        Ok(Self::with(session, Standing::New(Box::new(draft))))
    }

    async fn going_on(
        session: &'a Session,
        thread: &str,
        chat: &args::Chat,
        screen: &mut Screen,
    ) -> Result<Self, Fault> {
        if chat.new != args::NewThread::default() || !chat.capability.is_empty() {
            let message =
                "model, caps, id, title, agent, task and capabilities are those of a new chat";
            return Err(
                Fault::usage(message).hint(format!("threadkeep chat {thread}, without them"))
            );
        }
        let opened = session.open()?;
        let found = opened.tenant().get(thread).await;
        let found = found.map_err(|error| fault::of_thread(&opened, thread, &error))?;
        check(&found)?;
        let found = run::take_from_dead(&opened, found, screen).await?;
        run::check_again(&opened, &found)?;
        let standing = Standing::There {
            opened: Box::new(opened),
            thread: found.id,
            runs: 0,
            next: true,
        };
        Ok(Self::with(session, standing))
    }

    fn with(session: &'a Session, standing: Standing) -> Self {
        Self {
            session,
            standing,
            interrupts: Interrupts::listen(),
            last: Exit::Done,
        }
    }

    async fn talk(&mut self, person: bool, screen: &mut Screen) -> Result<Exit, Fault> {
        let mut input = Input::read();
        if person {
            screen.note("/help says what you can do here");
        }
        loop {
            let text = match self.next(&mut input, person, screen).await? {
                Next::End => return Ok(self.last),
                Next::Left => return Ok(Exit::Stopped),
                Next::Command(said) => {
                    self.command(said, screen).await;
                    continue;
                }
                Next::Message(text) => text,
            };
            match self.turn(&text, screen).await {
                Err(fault) if person && fault.exit != Exit::Stopped => {
                    self.last = screen.fault(&fault);
                }
                Err(fault) => return Err(fault),
                Ok(driven) => {
                    self.last = driven.answer.exit;
                    let over = driven.answer.outcome.is_some() || driven.terminated;
                    let stuck = !person && self.last != Exit::Done;
                    if over || stuck || driven.presses > 1 {
                        return Ok(self.last);
                    }
                }
            }
        }
    }

    /// Reads the next message or command, which may be several lines long.
    async fn next(
        &mut self,
        input: &mut Input,
        person: bool,
        screen: &mut Screen,
    ) -> Result<Next, Fault> {
        let mut talk = Talk::new(person);
        let mut pressed = false;
        loop {
            screen.prompt(if talk.is_open() { MORE_PROMPT } else { PROMPT });
            let line = tokio::select! {
                biased;
                interrupt = self.interrupts.next() => {
                    if interrupt == Interrupt::Terminate || std::mem::replace(&mut pressed, true) {
                        screen.end_prompt();
                        return Ok(if interrupt == Interrupt::Terminate { Next::End } else { Next::Left });
                    }
                    screen.end_prompt();
                    screen.note("press Ctrl-C again, or Ctrl-D, to leave");
                    talk = Talk::new(person);
                    continue;
                }
                line = input.next() => line,
            };
            pressed = false;
            let said = match line {
                Some(Line::Text(line)) => talk.line(&line),
                Some(Line::Bad(why)) => {
                    return Err(Fault::new("invalid", format!("standard input {why}")));
                }
                None => {
                    screen.end_prompt();
                    return Ok(talk.end().map_or(Next::End, Next::Message));
                }
            };
            match said {
                Some(Said::Message(text)) => return Ok(Next::Message(text)),
                Some(Said::Quit) => return Ok(Next::End),
                Some(command) => return Ok(Next::Command(command)),
                None => {}
            }
        }
    }

    async fn command(&mut self, said: Said, screen: &mut Screen) {
        match said {
            Said::Title(title) => {
                if let Err(fault) = self.title(title, screen).await {
                    screen.fault(&fault);
                }
            }
            Said::Unknown(fault) => {
                screen.fault(&fault);
            }
            Said::Help(text) => screen.note(text),
            Said::Message(_) | Said::Quit => {}
        }
    }

    async fn title(&mut self, title: String, screen: &mut Screen) -> Result<(), Fault> {
        match &mut self.standing {
            Standing::New(draft) => {
                let titled = Draft {
                    title: Some(title),
                    ..(**draft).clone()
                };
                run::rehearse(self.session, &titled, false).await?;
                **draft = titled;
            }
            Standing::There { opened, thread, .. } => {
                let titled = opened.tenant().set_title(thread, Some(title)).await;
                titled.map_err(|error| fault::of_thread(opened, thread, &error))?;
                opened.refresh(thread, screen).await;
            }
        }
        Ok(())
    }

    /// Runs the thread with one message and shows the answer.
    async fn turn(&mut self, text: &str, screen: &mut Screen) -> Result<Driven, Fault> {
        let message = inputs::message(text)?;
        if let Standing::New(draft) = &self.standing {
            let opened = self.session.open_or_create()?;
            let thread = run::create_thread(&opened, (**draft).clone()).await?;
            self.standing = Standing::There {
                opened: Box::new(opened),
                thread,
                runs: 0,
                next: true,
            };
        }
        let Standing::There {
            opened,
            thread,
            runs,
            next,
        } = &mut self.standing
        else {
            return Err(Fault::new("no-thread", "the chat has no thread"));
        };
        let stream = if *runs == 0 {
            Stream::new()
        } else {
            Stream::further()
        };
        *runs += 1;
        let watch = Watch::new(&mut self.interrupts, FirstPress::Stops, stream);
        let driven = watch.drive(opened, thread, Some(message), screen).await;
        let driven = driven.map_err(|fault| run::created(opened, fault, thread))?;
        let json = screen.ends().json;
        let (status, stopped) = (driven.answer.status.as_str(), driven.presses == 1);
        *next = status == "idle" || (status == "suspended" && stopped);
        match status {
            "idle" if !json => screen.end_line(),
            // The user stopped it, is still here and continues with the next message.
            "suspended" if stopped && !json => screen.note("stopped"),
            _ => drop(screen.answer(&driven.answer)),
        }
        Ok(driven)
    }
}

/// Refuses a thread that is not a chat, and a chat that has ended.
fn check(thread: &wit::Thread) -> Result<(), Fault> {
    let id = &thread.id;
    if let Some(directive) = &thread.directive {
        let message = format!("{id} is a thread of the directive {directive}, not a chat");
        return Err(
            Fault::new("refused", message).hint(format!("threadkeep resume {id} --message TEXT"))
        );
    }
    match &thread.outcome {
        Some(outcome) => Err(Fault::new("refused", format!("{id} is {outcome}"))
            .hint("it has ended: `threadkeep chat` begins another")),
        None => Ok(()),
    }
}
