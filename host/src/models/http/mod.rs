//! The exchange of every provider over HTTP: one `POST`, by a client of its own.
//!
//! A [`ProviderEndpoint`] makes exactly one request for each exchange: no retry, no redirect, no
//! proxy from the environment. What is sent, and how an answer is read, is in
//! [`threadkeep_adapters::models::wire`]; here are the connection and the time. `resolver` limits
//! the addresses that a name may resolve to, `tls` chooses the trusted certificates.

mod resolver;
mod setup;
mod tls;

use super::{
    BoxFuture, CompletionRequest, ModelCompletion, ModelFailure, ModelProvider, OnDelta,
    ProviderOptions, SetupError,
};
use futures_util::{Stream, TryStreamExt};
use reqwest::{Client, Response};
use setup::build_client;
use std::error::Error;
use std::future::Future;
use std::pin::Pin;
use std::time::Instant;
use threadkeep_adapters::models::wire::{
    AnswerHead, AnswerTimer, ExchangeFault, ModelWire, ProviderAnswer, ProviderProfile,
};

/// An adapter: a wire, and where it is spoken.
pub(super) trait WireAdapter: Send + Sync {
    /// The wire that the provider speaks.
    type SpokenWire: ModelWire<WireReply: Send> + 'static;
    /// The destination of the requests.
    fn endpoint(&self) -> &ProviderEndpoint;
}

impl<A: WireAdapter> ModelProvider for A {
    fn complete<'a>(
        &'a self,
        request: &'a CompletionRequest,
        on_delta: OnDelta<'a>,
    ) -> BoxFuture<'a, Result<ModelCompletion, ModelFailure>> {
        let endpoint = self.endpoint();
        let send = |body| endpoint.send(body);
        let exchange = endpoint
            .profile
            .exchange::<A::SpokenWire, _, _, _, _>(request, on_delta, send);
        Box::pin(exchange)
    }
}

/// One address of a provider, with the HTTP client for it.
#[derive(Debug)]
pub(super) struct ProviderEndpoint {
    profile: ProviderProfile,
    client: Client,
}

/// The body of an answer as it comes.
type AnswerBytes = Pin<Box<dyn Stream<Item = Result<Vec<u8>, reqwest::Error>> + Send>>;

impl ProviderEndpoint {
    /// Prepares requests of this wire to a provider. Connects to nothing.
    pub fn new<W: ModelWire>(options: ProviderOptions) -> Result<Self, SetupError> {
        let (times, reach) = (options.times, options.reach);
        let profile = ProviderProfile::new::<W>(options)?;
        let client = build_client(profile.url().scheme() == "https", times, reach)?;
        Ok(Self { profile, client })
    }

    async fn send(
        &self,
        body: Vec<u8>,
    ) -> Result<ProviderAnswer<AnswerBytes, TokioTimer>, ExchangeFault> {
        let request = self.client.post(self.profile.url().clone());
        let request = request.headers(self.profile.headers().clone()).body(body);
        let longest = self.profile.times().answer;
        match tokio::time::timeout(longest, request.send()).await {
            Err(_) => Err(ExchangeFault::Timeout(longest)),
            Ok(Err(error)) => Err(send_fault(&error.without_url())),
            Ok(Ok(response)) => Ok(open_answer(response)),
        }
    }
}

fn open_answer(response: Response) -> ProviderAnswer<AnswerBytes, TokioTimer> {
    let headers = response.headers();
    let header = |name: &str| {
        let value = headers.get(name)?.to_str().ok()?;
        Some(value.to_owned())
    };
    ProviderAnswer {
        head: AnswerHead::new(response.status().as_u16(), header),
        bytes: Box::pin(response.bytes_stream().map_ok(Vec::from)),
        timer: TokioTimer,
    }
}

/// Bounds the waiting for an answer with the runtime that the call is made on.
#[derive(Debug)]
struct TokioTimer;

impl AnswerTimer for TokioTimer {
    async fn run_until<F: Future + Send>(&self, deadline: Instant, future: F) -> Option<F::Output> {
        tokio::time::timeout_at(deadline.into(), future).await.ok()
    }
}

/// Returns an error of the client library with its causes. It names hosts and system errors, never
/// headers or bodies.
fn error_chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}

/// Classifies an error of sending a request. Only a failure to connect is certain to have sent
/// nothing.
fn send_fault(error: &reqwest::Error) -> ExchangeFault {
    if !error.is_connect() {
        return ExchangeFault::Disconnected;
    }
    if resolver::is_out_of_reach(error) {
        return ExchangeFault::OutOfReach;
    }
    if tls::is_plain_server(error) {
        return ExchangeFault::NoTls;
    }
    match tls::certificate_problem(error) {
        Some(problem) => ExchangeFault::Certificate { problem },
        None => ExchangeFault::Connect {
            problem: error_chain(error),
        },
    }
}
