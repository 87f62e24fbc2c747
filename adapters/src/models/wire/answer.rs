//! One exchange, from the body of a request to the reply or the failure that its answer comes to.

use super::body::{self, AnswerBounds, AnswerTimer};
use super::classify::{self, ExchangeFault};
use super::profile::ProviderProfile;
use super::{ModelWire, ReplyBuilder as _};
use crate::models::{
    CompletionRequest, ModelCompletion, ModelFailure, OnDelta, ReplyDelta, answer_bytes_max,
};
use futures_util::stream::{self, Stream, StreamExt, TryStreamExt};
use std::future::Future;
use std::time::Duration;

/// The status of an answer and what its headers say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AnswerHead {
    status: u16,
    content_type: String,
    retry_after: Option<Duration>,
    location: Option<String>,
}

impl AnswerHead {
    /// Takes what matters from an answer. `header` returns the value of a header that is text, by
    /// its name in lower case.
    pub fn new(status: u16, header: impl Fn(&str) -> Option<String>) -> Self {
        Self {
            status,
            content_type: header("content-type").unwrap_or_default(),
            location: header("location").filter(|_| (300..400).contains(&status)),
            retry_after: classify::parse_retry_after(header, jiff::Timestamp::now()),
        }
    }

    fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }
}

/// The answer to a request: its head, and the bytes of its body as they come.
#[derive(Debug)]
pub struct ProviderAnswer<S, T> {
    /// Its head.
    pub head: AnswerHead,
    /// Its body. An error is a connection that broke.
    pub bytes: S,
    /// Bounds the waiting for its body.
    pub timer: T,
}

impl ProviderProfile {
    /// Sends one request and reads one reply. `send` makes the connection and returns once an
    /// answer begins; it is called once, or not at all if the request cannot be encoded.
    ///
    /// # Errors
    /// What went wrong, classified once, in words that repeat neither a key nor the conversation.
    pub async fn exchange<W, S, E, T, F>(
        &self,
        request: &CompletionRequest,
        on_delta: OnDelta<'_>,
        send: impl FnOnce(Vec<u8>) -> F,
    ) -> Result<ModelCompletion, ModelFailure>
    where
        W: ModelWire,
        S: Stream<Item = Result<Vec<u8>, E>> + Send + Unpin,
        E: Send,
        T: AnswerTimer,
        F: Future<Output = Result<ProviderAnswer<S, T>, ExchangeFault>>,
    {
        let failed = |fault: ExchangeFault| self.to_failure(request, &fault, String::new(), None);
        // Read before the first await: a concurrent call may learn something meanwhile.
        let asked = self.dialect.dialect_for(&request.model);
        let content = W::encode(self, request).map_err(ExchangeFault::Encode);
        let mut reply = W::begin_reply(self, request);
        let answer = send(content.map_err(failed)?).await.map_err(failed)?;
        let ProviderAnswer {
            head,
            mut bytes,
            timer,
        } = answer;
        if !head.is_success() {
            let said = body::read_error(bytes, timer).await;
            let fault = ExchangeFault::Status {
                status: head.status,
                said,
                retry_after: head.retry_after,
                location: head.location,
            };
            return Err(failed(self.learn_refusal(request, asked, fault)));
        }
        let times = self.times();
        let begin = body::read_beginning(&mut bytes, times.idle, &timer).await;
        let bounds = AnswerBounds {
            idle: times.idle,
            whole: times.answer,
            bytes_max: answer_bytes_max(request.output_max),
        };
        let is_document = body::is_document(&head.content_type, &begin);
        let read = if is_document {
            body::read_document(begin, bytes, bounds, timer, &mut reply, on_delta).await
        } else {
            let begin = stream::once(std::future::ready(Ok(begin)));
            let bytes = begin.chain(bytes);
            let bytes =
                bytes.inspect_ok(|chunk| on_delta(ReplyDelta::Received(chunk.len() as u64)));
            body::read_stream(bytes, bounds, timer, &mut reply, on_delta).await
        };
        match read {
            Ok(completion) => Ok(self.redact_completion(request, completion)),
            Err(fault) => {
                let mut failure = self.to_failure(request, &fault, reply.text(), reply.usage());
                // A document without a reply is a refusal, whatever its status.
                failure.refused |= is_document && reply.text().is_empty();
                Err(failure)
            }
        }
    }
}
