//! Model calls: answers of a script, or of the provider that the project's `models.yaml` names.

use crate::project::{self, PROVIDER_VARIABLE};
use crate::{convert, exports::llm, images};
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use threadkeep_adapters::library::models::{FieldOrigin, ModelTable, ProviderSpec, WireProtocol};
use threadkeep_adapters::library::{LibraryError, files::SCRIPT_BYTES_MAX};
use threadkeep_adapters::models::scripted::ScriptedModel;
use threadkeep_adapters::models::{
    CALL_TIME, CompletionRequest, FailureKind, ModelCompletion, ModelFailure,
};
#[cfg(feature = "http")]
use threadkeep_adapters::models::{
    ProviderOptions, anthropic::AnthropicWire, openai::OpenAiWire, wire::ModelWire,
    wire::ProviderProfile,
};

/// The wires, where none can be spoken.
#[cfg(not(feature = "http"))]
struct OpenAiWire;
#[cfg(not(feature = "http"))]
struct AnthropicWire;

/// Beginning of the value of [`PROVIDER_VARIABLE`]; the file of the script follows.
const SCRIPTED: &str = "scripted:";

/// The provider of a model, made and not called.
pub enum ModelCaller {
    /// A script answers.
    Script(Arc<ScriptedModel>),
    /// A provider answers over HTTP.
    #[cfg(feature = "http")]
    Http(WireProtocol, Arc<ProviderProfile>),
}

/// A model that can be called.
pub struct ReadyModel {
    caller: ModelCaller,
    /// The name by which the provider knows the model.
    name: String,
    /// The longest time of one call.
    #[cfg_attr(
        not(feature = "http"),
        expect(dead_code, reason = "a script has no bound")
    )]
    longest: Duration,
}

/// Makes one model call.
pub fn complete(asked: &llm::Request) -> Result<ModelCompletion, ModelFailure> {
    let ready = make_provider(&asked.model)?;
    let images = images::read_request_images(asked);
    let request = convert::request(asked, ready.name, images);
    #[cfg(feature = "http")]
    let longest = ready.longest.min(convert::time_until(asked.deadline));
    match ready.caller {
        ModelCaller::Script(script) => answer_from(&script, &request),
        #[cfg(feature = "http")]
        ModelCaller::Http(WireProtocol::Anthropic, profile) => {
            crate::http::complete::<AnthropicWire>(&profile, &request, longest)
        }
        #[cfg(feature = "http")]
        ModelCaller::Http(_, profile) => {
            crate::http::complete::<OpenAiWire>(&profile, &request, longest)
        }
    }
}

/// Makes the provider of a model or tier, without calling it.
///
/// # Errors
/// The failure that a run is suspended with.
pub fn make_provider(model: &str) -> Result<ReadyModel, ModelFailure> {
    if let Some(provider) = project::environment().get(PROVIDER_VARIABLE) {
        let file = provider.strip_prefix(SCRIPTED);
        let Some(file) = file.filter(|file| !file.is_empty()) else {
            let message = format!(
                "{PROVIDER_VARIABLE} is {provider:?}; it is scripted:FILE, with the path of a file \
                 of answers below the granted directory"
            );
            return Err(refuse("provider_variable", message));
        };
        return Ok(ReadyModel {
            caller: ModelCaller::Script(kept_script(file, || read_granted_script(file))?),
            name: model.to_owned(),
            longest: CALL_TIME,
        });
    }
    let library = project::library();
    let table = library
        .models()
        .map_err(|error| provider_failure("models", &error))?;
    let Some(spec) = table.resolve(model) else {
        let message = format!("there is no model {model} in .ai/config/models.yaml");
        return Err(refuse("unknown_model", message));
    };
    Ok(ReadyModel {
        caller: make_caller(&table, &spec.provider)?,
        name: spec.name.clone(),
        longest: spec.call_time.unwrap_or(CALL_TIME),
    })
}

fn make_caller(table: &ModelTable, provider: &str) -> Result<ModelCaller, ModelFailure> {
    check_key_is_passed(table, provider)?;
    let spec = table
        .provider(provider)
        .map_err(|error| provider_failure(provider, &error))?;
    match spec.wire {
        WireProtocol::Scripted => {
            let file = spec.file.unwrap_or_default();
            let read = || project::library().read_script(&file);
            let script = kept_script(&file, || {
                read().map_err(|error| provider_failure(provider, &error))
            })?;
            Ok(ModelCaller::Script(script))
        }
        WireProtocol::OpenAi => over_http::<OpenAiWire>(&spec),
        WireProtocol::Anthropic => over_http::<AnthropicWire>(&spec),
    }
}

/// Refuses a provider whose key is in a variable that the host does not pass.
fn check_key_is_passed(table: &ModelTable, provider: &str) -> Result<(), ModelFailure> {
    let mut providers = table.providers();
    let key = providers
        .find(|known| known.name == provider)
        .map(|known| known.key);
    let Some(FieldOrigin::Variables(names)) = key else {
        return Ok(());
    };
    let environment = project::environment();
    match names.iter().find(|name| environment.get(name).is_none()) {
        None => Ok(()),
        Some(name) => {
            let message = format!(
                "the key of the provider {provider} is in {name}, which is not passed to the \
                 bundle: set it and run `wasmtime run -S http --env {name} --dir .::/ ... \
                 threadkeep.wasm`"
            );
            Err(refuse("no_key", message))
        }
    }
}

/// Returns the provider over HTTP. What refusals have shown of it is kept while the bundle runs.
#[cfg(feature = "http")]
fn over_http<W: ModelWire>(spec: &ProviderSpec) -> Result<ModelCaller, ModelFailure> {
    static PROFILES: Mutex<BTreeMap<String, Arc<ProviderProfile>>> = Mutex::new(BTreeMap::new());
    let mut profiles = PROFILES.lock().unwrap_or_else(PoisonError::into_inner);
    let profile = match profiles.get(&spec.name) {
        Some(profile) => Arc::clone(profile),
        None => {
            let made = ProviderProfile::new::<W>(ProviderOptions::for_provider(spec));
            let made = made.map_err(|error| {
                let name = &spec.name;
                refuse(
                    "provider_setup",
                    format!("the provider {name} cannot be used: {error}"),
                )
            })?;
            let made = Arc::new(made);
            profiles.insert(spec.name.clone(), Arc::clone(&made));
            made
        }
    };
    Ok(ModelCaller::Http(spec.wire, profile))
}

/// Refuses a provider over HTTP, which this bundle does not import.
#[cfg(not(feature = "http"))]
#[expect(
    clippy::extra_unused_type_parameters,
    reason = "the callers name the wire, as where it is spoken"
)]
fn over_http<W>(spec: &ProviderSpec) -> Result<ModelCaller, ModelFailure> {
    let message = format!(
        "the provider {} is reached over HTTP, and this file imports none: run `wasmtime run -S \
         http --dir .::/ ... threadkeep.wasm`",
        spec.name
    );
    Err(refuse("no_http", message))
}

/// Returns the script of this file, which is read once: it counts the tries of a conversation.
fn kept_script(
    file: &str,
    read: impl FnOnce() -> Result<String, ModelFailure>,
) -> Result<Arc<ScriptedModel>, ModelFailure> {
    static SCRIPTS: Mutex<BTreeMap<String, Arc<ScriptedModel>>> = Mutex::new(BTreeMap::new());
    let mut scripts = SCRIPTS.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(script) = scripts.get(file) {
        return Ok(Arc::clone(script));
    }
    let script = ScriptedModel::parse(&read()?)
        .map_err(|error| refuse("bad_script", format!("{file}: {error}")))?;
    let script = Arc::new(script);
    scripts.insert(file.to_owned(), Arc::clone(&script));
    Ok(script)
}

/// Reads a script of the person who runs the bundle, by its path below the granted directory.
fn read_granted_script(file: &str) -> Result<String, ModelFailure> {
    let root = project::root_files()
        .ok_or_else(|| refuse("no_directory", project::describe_missing_directory()))?;
    let path = file.trim_start_matches('/');
    let bytes = root
        .read(path, file, SCRIPT_BYTES_MAX)
        .map_err(|error| refuse("provider_variable", format!("{PROVIDER_VARIABLE}: {error}")))?;
    let bytes = bytes.ok_or_else(|| {
        refuse(
            "provider_variable",
            format!("{PROVIDER_VARIABLE}: there is no file {file} in the granted directory"),
        )
    })?;
    String::from_utf8(bytes).map_err(|_| refuse("bad_script", format!("{file}: it is not UTF-8")))
}

fn answer_from(
    script: &ScriptedModel,
    request: &CompletionRequest,
) -> Result<ModelCompletion, ModelFailure> {
    let wait = |time: Duration| {
        std::thread::sleep(time);
        std::future::ready(())
    };
    block_on(script.answer_request(request, &|_| {}, wait))
}

/// Runs a future whose waits all block where they are made.
pub fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    loop {
        let polled = future
            .as_mut()
            .poll(&mut Context::from_waker(Waker::noop()));
        if let Poll::Ready(output) = polled {
            return output;
        }
    }
}

fn provider_failure(what: &str, error: &LibraryError) -> ModelFailure {
    refuse("provider_setup", format!("{what}: {error}"))
}

/// A failure of a call that was not made.
fn refuse(code: &str, message: String) -> ModelFailure {
    ModelFailure::new(FailureKind::Permanent, code, message).not_sent()
}
