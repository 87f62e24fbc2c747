//! A single provider for every model that a driver asks for.

use super::{ModelFailure, ModelProvider};
use crate::driver::ModelProviders;
use std::sync::Arc;

/// A single provider for every model, which it calls by the name that the library gives it.
#[derive(Clone)]
pub struct OneProvider(Arc<dyn ModelProvider>);

impl OneProvider {
    /// Serves every model by this provider.
    pub fn new(provider: Arc<dyn ModelProvider>) -> Self {
        Self(provider)
    }
}

impl ModelProviders for OneProvider {
    fn provider(&self, model: &str) -> Result<(Arc<dyn ModelProvider>, String), ModelFailure> {
        Ok((Arc::clone(&self.0), model.to_owned()))
    }
}
