//! `export html`: a thread as one page for a browser.
//!
//! The page is written as it is read, a page of entries at a time; with `--json` it is one text in
//! the document.

use super::thread_path::path_of;
use super::{budget, chain, fault, thread_names, view};
use crate::answer::{BranchRow, ExportAnswer, ThreadView};
use crate::args::{self, ExportCommand};
use crate::contract::Thread;
use crate::exit::{CommandExit, CommandFault};
use crate::html;
use crate::money;
use crate::screen::OutputScreen;
use crate::threads::{CommandHost, ProjectThreads};
use crate::time_format;
use serde_json::Value;

/// Largest page in one JSON document, which holds it in memory twice.
const DOCUMENT_BYTES_MAX: usize = 64 << 20;

/// Entries that are read at once.
const PAGE_ENTRIES: u32 = 100;

/// Most links of a chain that the page lists: the newest of a longer one.
const LINKS_MAX: usize = 100;

/// Performs one of the `export` commands.
pub async fn export(
    host: &impl CommandHost,
    export: args::ExportArgs,
    screen: &mut OutputScreen,
) -> Result<CommandExit, CommandFault> {
    let ExportCommand::Html(mut named) = export.command;
    let opened = host.open_to_read(screen)?;
    thread_names::resolve(&opened, &mut named.thread).await?;
    let found = opened.get(&named.thread).await;
    let thread = found.map_err(|error| fault::from_thread_call(&opened, &named.thread, &error))?;
    let mut page = HtmlPage {
        is_document: screen.properties().json,
        text: String::new(),
        screen,
    };
    write_page(&opened, &thread, &mut page).await?;
    let (screen, text) = (page.screen, page.text);
    chain::name_tip(&opened, &named.thread, "export html", screen).await;
    if !screen.properties().json {
        screen.end_line();
        return Ok(CommandExit::Done);
    }
    Ok(screen.print_answer(&ExportAnswer {
        thread_id: thread.id,
        format: "html".to_owned(),
        version: thread.version,
        text,
        exit: CommandExit::Done,
    }))
}

/// A page under way: written at once, or kept for a document.
struct HtmlPage<'a> {
    screen: &'a mut OutputScreen,
    is_document: bool,
    text: String,
}

impl HtmlPage<'_> {
    fn write(&mut self, html: &str) -> Result<(), CommandFault> {
        if !self.is_document {
            self.screen.print_text(html);
            return Ok(());
        }
        self.text.push_str(html);
        match self.text.len() > DOCUMENT_BYTES_MAX {
            true => {
                let message = format!("the page is larger than {DOCUMENT_BYTES_MAX} bytes");
                Err(CommandFault::new("too-large", message).with_hint("write it without --json"))
            }
            false => Ok(()),
        }
    }
}

async fn write_page(
    opened: &impl ProjectThreads,
    thread: &Thread,
    page: &mut HtmlPage<'_>,
) -> Result<(), CommandFault> {
    let shown = view::thread(thread);
    let title = shown.title.as_deref().unwrap_or(&shown.thread_id);
    page.write(&html::render_head(title))?;
    page.write(&format!("<h1>{}</h1>\n", html::escape(title)))?;
    page.write(&html::render_facts(&list_facts(&shown)))?;
    page.write(&load_chain_part(opened, thread).await)?;
    page.write(&load_tree_part(opened, thread).await)?;
    page.write("<h2>Conversation</h2>\n")?;
    write_entries(opened, thread, page).await?;
    if let Some(result) = &shown.result {
        let result = html::escape(&result.to_string());
        page.write(&format!("<h2>Result</h2>\n<pre>{result}</pre>\n"))?;
    }
    page.write(html::PAGE_FOOT)
}

/// Names and values of the thread, times in UTC.
fn list_facts(shown: &ThreadView) -> Vec<(&'static str, String)> {
    let text = |value: &Option<String>| value.clone().unwrap_or_default();
    let cause = shown.cause.as_ref();
    let cause = cause.map(|cause| format!("{}: {}", cause.code, cause.message));
    let inputs = match &shown.inputs {
        Value::Object(inputs) if !inputs.is_empty() => shown.inputs.to_string(),
        _ => String::new(),
    };
    vec![
        ("thread", shown.thread_id.clone()),
        ("status", shown.status.clone()),
        ("cause", cause.unwrap_or_default()),
        ("waits for", shown.waits_for.describe()),
        ("directive", text(&shown.directive)),
        ("agent", text(&shown.agent)),
        ("task", text(&shown.task)),
        ("parent", text(&shown.parent)),
        ("model", shown.model.clone()),
        ("inputs", inputs),
        ("capabilities", shown.capabilities.join(", ")),
        ("limits", shown.limits.describe()),
        ("cost", shown.cost.describe()),
        (
            "time in steps",
            time_format::format_duration(shown.duration),
        ),
        ("created", shown.created.clone()),
        ("updated", shown.updated.clone()),
        ("version", shown.version.to_string()),
    ]
}

/// The chain of the thread, where it has more than one link.
async fn load_chain_part(opened: &impl ProjectThreads, thread: &Thread) -> String {
    let links = match chain::load_chain(opened, &thread.id).await {
        Ok(chain) if chain.chain.len() < 2 => return String::new(),
        Ok(chain) => chain.chain,
        Err(fault) => return render_unread("Chain", &fault),
    };
    let text = |link: &Value, at: &str| {
        let value = link.pointer(at).and_then(Value::as_str);
        value.unwrap_or_default().to_owned()
    };
    let first = links.len().saturating_sub(LINKS_MAX);
    let rows: Vec<Vec<String>> = (1..)
        .zip(&links)
        .skip(first)
        .map(|(number, link): (usize, &Value)| {
            vec![
                number.to_string(),
                text(link, "/thread_id"),
                text(link, "/status"),
                text(link, "/continued/how"),
                text(link, "/created"),
                text(link, "/cost/spend"),
            ]
        })
        .collect();
    let header = ["Link", "Thread", "Status", "Continued", "Created", "USD"];
    format!("<h2>Chain</h2>\n{}", html::render_table(&header, 5, &rows))
}

/// The thread and those that it spawned, where there are any.
async fn load_tree_part(opened: &impl ProjectThreads, thread: &Thread) -> String {
    let asked = args::TreeArgs {
        thread: thread.id.clone(),
        cursor: None,
    };
    let tree = match budget::load_tree(opened, &asked).await {
        Ok(tree) if tree.threads.len() < 2 && tree.unreadable.is_empty() => return String::new(),
        Ok(tree) => tree,
        Err(error) => return render_unread("Tree", &fault::from_call(&error)),
    };
    let row = |row: &BranchRow| {
        let indent = "· ".repeat(usize::try_from(row.depth).unwrap_or(0).min(20));
        vec![
            format!("{indent}{}", row.thread_id),
            row.title.clone().unwrap_or_default(),
            row.status.clone(),
            money::format_decimal(row.spend),
            money::format_decimal(row.tree_spend),
        ]
    };
    let rows: Vec<Vec<String>> = tree.threads.iter().map(row).collect();
    let header = ["Thread", "Title", "Status", "Own USD", "With those below"];
    let mut part = format!("<h2>Tree</h2>\n{}", html::render_table(&header, 3, &rows));
    for lost in &tree.unreadable {
        let told = format!("{} cannot be read: {}", lost.thread_id, lost.message);
        part.push_str(&format!("<p class=\"note\">{}</p>\n", html::escape(&told)));
    }
    if tree.cursor.is_some() {
        part.push_str("<p class=\"note\">There are more: threadkeep tree shows them.</p>\n");
    }
    part
}

/// Says why a part of the page is missing.
fn render_unread(name: &str, fault: &CommandFault) -> String {
    let told = format!("It cannot be read: {}", fault.message);
    format!(
        "<h2>{name}</h2>\n<p class=\"note\">{}</p>\n",
        html::escape(&told)
    )
}

/// Writes the events of the path of a thread, which may begin in earlier threads.
async fn write_entries(
    opened: &impl ProjectThreads,
    thread: &Thread,
    page: &mut HtmlPage<'_>,
) -> Result<(), CommandFault> {
    let (path, mut owner) = (path_of(thread), thread.id.clone());
    let mut next = Some(None);
    while let Some(cursor) = next {
        let found = opened.entries(&thread.id, 0, PAGE_ENTRIES, cursor).await;
        let found = match found {
            Ok(found) => found,
            Err(error) => {
                let fault = fault::from_thread_call(opened, &thread.id, &error);
                let told = format!("The rest cannot be read: {}", fault.message);
                return page.write(&format!("<p class=\"note\">{}</p>\n", html::escape(&told)));
            }
        };
        for entry in &found.entries {
            let of = path.owner_of(entry.version);
            if !of.eq_ignore_ascii_case(&owner) {
                owner = of.to_owned();
                page.write(&format!(
                    "<p class=\"note\">of {}</p>\n",
                    html::escape(&owner)
                ))?;
            }
            for event in view::entry_events(entry) {
                page.write(&html::render_event(&event))?;
            }
        }
        next = found.cursor.map(Some);
    }
    Ok(())
}
