//! `--image`: files that a message shows to the model.

use crate::exit::CommandFault;
use crate::inputs;
use crate::threads::{CommandHost, ProjectThreads};
use std::path::{Path, PathBuf};
use threadkeep_adapters::models::user_message_with_images;
use threadkeep_adapters::{IMAGE_BYTES_MAX, image_type};

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
        let images = paths.iter().map(|path| read_image(host, path));
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
        let mut names = Vec::with_capacity(self.0.len());
        for bytes in self.0 {
            names.push(opened.store_image(thread, bytes).await?);
        }
        Ok(Some(user_message_with_images(text, &names)))
    }
}

/// Reads the file of an image, and refuses one that no model could be shown.
fn read_image(host: &impl CommandHost, path: &Path) -> Result<Vec<u8>, CommandFault> {
    let wrong = |problem: &str, hint: Option<String>| {
        let usual = || "--image takes a png, jpeg, gif or webp file of at most 3.75 MB".to_owned();
        let message = format!("the image {}: {problem}", path.display());
        CommandFault::usage(message).with_hint(hint.unwrap_or_else(usual))
    };
    let bytes = host.read_file(path, IMAGE_BYTES_MAX as u64);
    let bytes = bytes.map_err(|fault| wrong(&fault.message, fault.hint))?;
    match image_type(&bytes) {
        Some(_) => Ok(bytes),
        None => Err(wrong("it is no png, jpeg, gif or webp image", None)),
    }
}
