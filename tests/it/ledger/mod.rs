//! The budget ledger as those see it who came from elsewhere: what went wrong in the original and in other systems, each by
//! its number there; and what the interface answers to whoever asks wrongly.

mod family;
mod interface;
mod originals;
mod peers;
mod shared;
mod spawned;
mod time;
