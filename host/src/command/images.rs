//! `--image`: files that a message shows to the model.

use super::fault;
use super::session::CommandProject;
use std::path::PathBuf;
use threadkeep::authority;
use threadkeep::blobs::{IMAGE_BYTES_MAX, image_type};
use threadkeep::models;
use threadkeep_cli::exit::CommandFault;
use threadkeep_cli::inputs;

/// Most images of one message: what the component takes.
const IMAGES_MAX: usize = 16;

/// Images that were read from files and are not stored yet.
#[derive(Debug, Default)]
pub struct MessageImages(Vec<Vec<u8>>);

impl MessageImages {
    /// Reads the files, before anything is created.
    pub fn read(paths: &[PathBuf]) -> Result<Self, CommandFault> {
        if paths.len() > IMAGES_MAX {
            let message = format!("a message has at most {IMAGES_MAX} images");
            return Err(CommandFault::usage(message));
        }
        let read = |path: &PathBuf| {
            let wrong = |problem: &str| {
                let message = format!("the image {}: {problem}", path.display());
                CommandFault::usage(message)
                    .with_hint("--image takes a png, jpeg, gif or webp file of at most 3.75 MB")
            };
            let bytes = authority::read_ambient(path, IMAGE_BYTES_MAX as u64);
            let bytes = bytes.map_err(|error| {
                let fault = fault::from_authority(&error);
                wrong(&fault.message)
            })?;
            match image_type(&bytes) {
                Some(_) => Ok(bytes),
                None => Err(wrong("it is no png, jpeg, gif or webp image")),
            }
        };
        paths.iter().map(read).collect::<Result<_, _>>().map(Self)
    }

    /// Refuses images for a model that takes none, before anything is created.
    pub fn check_model(&self, opened: &CommandProject, model: &str) -> Result<(), CommandFault> {
        if self.0.is_empty() || opened.project().takes_images(model) {
            return Ok(());
        }
        let message = format!("the model {model} takes no images");
        Err(CommandFault::new("invalid", message)
            .with_hint("choose a model whose entry in models.yaml says `images: true`"))
    }

    /// Stores the images for a thread; returns the message with this text, or none without both.
    pub async fn into_message(
        self,
        opened: &CommandProject,
        thread: &str,
        text: Option<&str>,
    ) -> Result<Option<String>, CommandFault> {
        if self.0.is_empty() {
            return text.map(inputs::user_message).transpose();
        }
        let mut names = Vec::with_capacity(self.0.len());
        for bytes in self.0 {
            let stored = opened.tenant().store_image(thread, bytes).await;
            names.push(stored.map_err(|error| fault::from_blob(opened, thread, &error))?);
        }
        Ok(Some(models::user_message_with_images(text, &names)))
    }
}
