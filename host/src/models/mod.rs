//! Model providers: the trait behind a driver's `call-llm` step, and the providers of a native
//! host.
//!
//! Requests, answers and failures, and what makes and reads them, are those of
//! `threadkeep-adapters`, which the bundle shares. Here are the connection and the time.

#[cfg(feature = "http")]
pub mod anthropic;
#[cfg(feature = "http")]
mod http;
mod one_provider;
#[cfg(feature = "http")]
pub mod openai;
pub mod scripted;

pub use one_provider::OneProvider;
pub use threadkeep_adapters::models::{
    BLOCKS_MAX, CALL_TIME, CompletionRequest, ConversationImages, FailureKind, IDLE_TIME,
    IMAGE_TOKENS_MAX, ModelCompletion, ModelFailure, OnDelta, REPLY_BYTES_MAX,
    REQUEST_IMAGES_BYTES_MAX, ReplyBlock, ReplyDelta, RequestImage, RequestImages, SecretText,
    ToolSpec, Usage, answer_bytes_max, dialect, user_message, user_message_with_images,
};
#[cfg(feature = "http")]
pub use threadkeep_adapters::models::{ProviderOptions, ProviderTimeouts, SetupError};

use std::future::Future;
use std::pin::Pin;

/// A future that can be stored and moved between threads.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A model provider. Dropping the future drops the request in flight.
pub trait ModelProvider: Send + Sync {
    /// Makes exactly one request. The caller bounds its time, its deltas and its answer as well.
    fn complete<'a>(
        &'a self,
        request: &'a CompletionRequest,
        on_delta: OnDelta<'a>,
    ) -> BoxFuture<'a, Result<ModelCompletion, ModelFailure>>;
}
