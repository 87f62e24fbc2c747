//! The number of repetitions of a test: `cargo xtask soak` asks for more than usual.

/// The variable with the factor, a whole number from 1.
const FACTOR: &str = "THREADKEEP_SOAK";

/// Returns the number of repetitions of a test: `usual`, times the factor that was asked for.
///
/// # Panics
/// If the factor is no whole number from 1.
pub fn repetitions(usual: u32) -> u32 {
    let factor = std::env::var(FACTOR).map_or(1, |asked| {
        let asked: u32 = asked.parse().expect("THREADKEEP_SOAK is a whole number");
        asked.max(1)
    });
    usual.saturating_mul(factor)
}
