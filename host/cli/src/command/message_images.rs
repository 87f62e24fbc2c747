//! `--image`: files that a message shows to the model.

use crate::exit::CommandFault;
use crate::inputs;
use crate::threads::{CommandHost, ProjectThreads};
use std::path::PathBuf;

/// Most images of one message: what the component takes.
const IMAGES_MAX: usize = 16;

/// Images that were read from files and are not stored yet.
#[derive(Debug, Default)]
pub struct MessageImages(Vec<Vec<u8>>);

impl MessageImages {
    /// Reads the files, before anything is created.
    pub fn read(host: &impl CommandHost, paths: &[PathBuf]) -> Result<Self, CommandFault> {
        if paths.len() > IMAGES_MAX {
            let message = format!("a message has at most {IMAGES_MAX} images");
            return Err(CommandFault::usage(message));
        }
        let images = paths.iter().map(|path| host.read_image(path));
        images.collect::<Result<_, _>>().map(Self)
    }

    /// Refuses images for a model that takes none, before anything is created.
    pub fn check_model(
        &self,
        opened: &impl ProjectThreads,
        model: &str,
    ) -> Result<(), CommandFault> {
        if self.0.is_empty() || opened.takes_images(model) {
            return Ok(());
        }
        let message = format!("the model {model} takes no images");
        Err(CommandFault::new("invalid", message)
            .with_hint("choose a model whose entry in models.yaml says `images: true`"))
    }

    /// Stores the images for a thread; returns the message with this text, or none without both.
    pub async fn into_message(
        self,
        opened: &impl ProjectThreads,
        thread: &str,
        text: Option<&str>,
    ) -> Result<Option<String>, CommandFault> {
        if self.0.is_empty() {
            return text.map(inputs::user_message).transpose();
        }
        opened.store_images(thread, self.0, text).await.map(Some)
    }
}
