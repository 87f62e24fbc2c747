//! `doctor --probe PROVIDER`: sends one small request and reports its result.

use crate::command::fault;
use crate::command::session::CommandSession;
use std::time::Duration;
use threadkeep::library::models::{ModelSpec, ModelTable};
use threadkeep_cli::answer::{ProbeAnswer, ProbeUsage};
use threadkeep_cli::exit::{CommandExit, CommandFault};
use threadkeep_cli::screen::OutputScreen;
use threadkeep_units::nearest::nearest;

/// Asks a model of the provider for one word.
pub async fn probe(
    session: &CommandSession,
    provider: &str,
    screen: &mut OutputScreen,
) -> Result<CommandExit, CommandFault> {
    let opened = session.open_rehearsal()?;
    let project = opened.project();
    let table = project.library().models();
    let table = table.map_err(|error| CommandFault::new("invalid", error.to_string()))?;
    let model = first_model(&table, provider)?;
    let spec = table.provider(provider).ok();
    let dialect = spec
        .as_ref()
        .map(|spec| spec.settings.dialect(spec.wire, &spec.base_url));
    let mut answer = ProbeAnswer {
        provider: provider.to_owned(),
        model: model.name.clone(),
        address: spec
            .map(|spec| spec.shown_url)
            .filter(|url| !url.is_empty()),
        dialect: dialect.map(|dialect| dialect.name.to_owned()),
        answered: false,
        text: None,
        finish: None,
        first_millis: None,
        millis: None,
        usage: None,
        refused: Vec::new(),
        error: None,
        exit: CommandExit::Error,
    };
    match project.probe_model(&model.name).await {
        Ok(probe) => {
            answer.answered = true;
            answer.exit = CommandExit::Done;
            answer.text = Some(probe.text());
            answer.first_millis = probe.time_to_first.map(millis);
            answer.millis = Some(millis(probe.total_time));
            answer.usage = probe.completion.usage.map(|usage| ProbeUsage {
                input: usage.input,
                cache_read: usage.read,
                cache_write: usage.write,
                output: usage.output,
                reasoning: usage.reasoning,
            });
            answer.finish = Some(probe.completion.finish);
            answer.refused = probe.refused;
        }
        Err(failure) => answer.error = Some(fault::from_provider(&failure).message),
    }
    Ok(screen.print_answer(&answer))
}

/// Returns the first model of the provider, by name.
fn first_model<'a>(table: &'a ModelTable, provider: &str) -> Result<&'a ModelSpec, CommandFault> {
    let names: Vec<String> = table.providers().map(|origins| origins.name).collect();
    if !names.iter().any(|name| name == provider) {
        let message = format!("there is no provider {provider:?} in the model table");
        let hint = match nearest(provider, names.iter().map(String::as_str)) {
            Some(near) => format!("did you mean {near}?"),
            None => format!("name one of {}", names.join(", ")),
        };
        return Err(CommandFault::new("invalid", message).with_hint(hint));
    }
    let mut models = table
        .names()
        .into_iter()
        .filter_map(|name| table.model(name));
    let found = models.find(|model| model.provider == provider);
    found.ok_or_else(|| {
        CommandFault::new("invalid", format!("no model names the provider {provider}"))
            .with_hint("add a model with `provider: ...` to .ai/config/models.yaml")
    })
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
