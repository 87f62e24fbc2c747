//! A provider for every model that a driver asks for.

use super::{Failure, Llm};
use crate::driver::Models;
use std::sync::Arc;

/// The same provider for every model; it is asked for the model by the name that the library gives it.
#[derive(Clone)]
pub struct OneProvider(Arc<dyn Llm>);

impl OneProvider {
    /// This one.
    pub fn new(provider: Arc<dyn Llm>) -> Self {
        Self(provider)
    }
}

impl Models for OneProvider {
    fn provider(&self, model: &str) -> Result<(Arc<dyn Llm>, String), Failure> {
        Ok((Arc::clone(&self.0), model.to_owned()))
    }
}
