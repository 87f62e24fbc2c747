//! A warning to a person whose money is nearly spent, before a cap stops the thread.

use crate::answer::{AccountView, has_ended};
use crate::money;
use crate::screen::OutputScreen;
use crate::threads::ProjectThreads;

/// The part of a limit, in hundredths, at which a person is warned.
const WARNED_AT_PERCENT: u128 = 80;

/// Warns of the account that a thread draws on. An account that cannot be read is told of by the
/// commands about it.
pub async fn warn_of_account(
    opened: &impl ProjectThreads,
    thread: &str,
    status: &str,
    tree_spend: Option<u64>,
    screen: &mut OutputScreen,
) {
    if has_ended(status) {
        return;
    }
    if let Ok(account) = opened.account(thread).await {
        let account = super::view::account(account);
        let is_own = account.chain.eq_ignore_ascii_case(thread);
        let spend = tree_spend.filter(|_| is_own).unwrap_or_default();
        warn_of_limit(&account.with_tree_spend(spend), screen);
    }
}

/// Warns if most of what an account may spend is spent. The owner of the account is who is raised.
pub fn warn_of_limit(account: &AccountView, screen: &mut OutputScreen) {
    let (spent, owner) = (account.total_spent(), &account.chain);
    if let Some(percent) = percent_spent(spent, account.limit) {
        screen.warn(&format!(
            "{percent} % of the money of {owner} is spent, {} of {}: `threadkeep raise {owner} \
             --spend USD` lifts its cap",
            money::format_decimal(spent),
            money::format_usd(account.limit.unwrap_or_default()),
        ));
    }
}

/// Returns how many hundredths of a limit are spent, rounded down, if they are worth a warning.
fn percent_spent(spent: u64, limit: Option<u64>) -> Option<u128> {
    let limit = limit.filter(|limit| *limit > 0)?;
    let percent = u128::from(spent) * 100 / u128::from(limit);
    (percent >= WARNED_AT_PERCENT).then_some(percent)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_person_is_warned_from_eighty_percent_on() {
        for (spent, limit, expected) in [
            (79, Some(100), None),
            (799_999_999, Some(1_000_000_000), None),
            (80, Some(100), Some(80)),
            (100, Some(100), Some(100)),
            (150, Some(100), Some(150)),
            (u64::MAX, Some(u64::MAX), Some(100)),
            (u64::MAX, None, None),
            (0, Some(0), None),
        ] {
            assert_eq!(
                percent_spent(spent, limit),
                expected,
                "{spent} of {limit:?}"
            );
        }
    }
}
