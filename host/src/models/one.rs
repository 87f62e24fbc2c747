//! A single provider for every model that a driver asks for.

use super::{Failure, Llm};
use crate::driver::Models;
use std::sync::Arc;

/// A single provider for every model, which it calls by the name that the library gives it.
#[derive(Clone)]
pub struct OneProvider(Arc<dyn Llm>);

impl OneProvider {
    /// Serves every model by this provider.
    pub fn new(provider: Arc<dyn Llm>) -> Self {
        Self(provider)
    }
}

impl Models for OneProvider {
    fn provider(&self, model: &str) -> Result<(Arc<dyn Llm>, String), Failure> {
        Ok((Arc::clone(&self.0), model.to_owned()))
    }
}
