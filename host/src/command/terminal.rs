//! The terminal of the process: its mode, and what was typed that nobody has read.

#[cfg(unix)]
use rustix::termios::{self, LocalModes, OptionalActions, QueueSelector, Termios};

/// The mode of the terminal that standard input is, put back when this is dropped: a line editor
/// that is left while it reads does not do that.
pub struct SavedMode {
    #[cfg(unix)]
    mode: Option<Termios>,
}

impl SavedMode {
    /// Saves the mode, if standard input is a terminal.
    pub fn save() -> Self {
        Self {
            #[cfg(unix)]
            mode: termios::tcgetattr(std::io::stdin()).ok(),
        }
    }

    /// Saves the mode and turns the echo of keys off: what is typed while a reply comes is shown at the
    /// next prompt, and not in the middle of the reply.
    pub fn save_without_echo() -> Self {
        let saved = Self::save();
        #[cfg(unix)]
        if let Some(mode) = &saved.mode {
            let mut silent = mode.clone();
            silent.local_modes.remove(LocalModes::ECHO);
            // With the echo left on, nothing is lost but a tidy screen.
            let _ = termios::tcsetattr(std::io::stdin(), OptionalActions::Now, &silent);
        }
        saved
    }
}

impl Drop for SavedMode {
    fn drop(&mut self) {
        #[cfg(unix)]
        if let Some(mode) = &self.mode {
            // A terminal that is gone has no mode.
            let _ = termios::tcsetattr(std::io::stdin(), OptionalActions::Now, mode);
        }
    }
}

/// Drops what was typed and not read. Where the system cannot, it stays.
pub fn discard_typed() {
    #[cfg(unix)]
    let _ = termios::tcflush(std::io::stdin(), QueueSelector::IFlush);
}
