//! Things planted in a project that lead where nothing may be read, written or removed.

mod planted;
mod races;
mod world;
