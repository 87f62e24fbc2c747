//! Money: accounts, and the calls of an external loop.

use super::{CommandAnswer, ThreadCost, count_noun, lacking, optional_spend, spend};
use crate::exit::CommandExit;
use crate::money;
use crate::screen::OutputScreen;
use crate::table::{ColumnAlignment, TextTable};
use serde::Serialize;

/// An account. With a limit, always `spent + held + reserved + remaining = limit + debt`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AccountView {
    /// The chain that owns it: the id of its first thread.
    pub chain: String,
    /// The chain whose account it reserves from.
    pub parent: Option<String>,
    /// Nano-USD; decimal text in JSON, like all amounts here. None is unlimited.
    #[serde(serialize_with = "optional_spend")]
    pub limit: Option<u64>,
    /// Settled and charged, including descendants.
    #[serde(serialize_with = "spend")]
    pub spent: u64,
    /// Set aside for calls under way.
    #[serde(serialize_with = "spend")]
    pub held: u64,
    /// Set aside for accounts of children.
    #[serde(serialize_with = "spend")]
    pub reserved: u64,
    /// The part of the limit that is neither spent, held nor reserved. None is unlimited.
    #[serde(serialize_with = "optional_spend")]
    pub remaining: Option<u64>,
    /// The amount taken above the limit.
    #[serde(serialize_with = "spend")]
    pub debt: u64,
    /// The part of `spent` that was reported to its parent.
    #[serde(serialize_with = "spend")]
    pub reported: u64,
    /// Chains and accounts that draw on it; an account with none is closed.
    pub users: u32,
    /// True if no further hold is admitted.
    pub frozen: bool,
    /// Nano-USD of `reserved` that open accounts below it have spent and not yet reported.
    #[serde(skip)]
    spent_below: u64,
}

/// The figures of an account's own record.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(missing_docs, reason = "the fields are those of `AccountView`")]
pub struct AccountFigures {
    pub chain: String,
    pub parent: Option<String>,
    pub limit: Option<u64>,
    pub spent: u64,
    pub held: u64,
    pub reserved: u64,
    pub reported: u64,
    pub users: u32,
    pub frozen: bool,
}

impl From<AccountFigures> for AccountView {
    fn from(books: AccountFigures) -> Self {
        let taken = books.spent.saturating_add(books.held);
        let taken = taken.saturating_add(books.reserved);
        Self {
            remaining: books.limit.map(|limit| limit.saturating_sub(taken)),
            debt: books.limit.map_or(0, |limit| taken.saturating_sub(limit)),
            chain: books.chain,
            parent: books.parent,
            limit: books.limit,
            spent: books.spent,
            held: books.held,
            reserved: books.reserved,
            reported: books.reported,
            users: books.users,
            frozen: books.frozen,
            spent_below: 0,
        }
    }
}

/// Characters of a bar between its brackets.
const BAR_WIDTH: u64 = 10;

impl AccountView {
    /// Adds the spend of the owner's whole tree, including open accounts: a screen shows that part
    /// of the reserves as spent.
    #[must_use]
    pub fn with_tree_spend(mut self, tree_spend: u64) -> Self {
        self.spent_below = tree_spend.saturating_sub(self.spent).min(self.reserved);
        self
    }

    /// The amount that a screen shows as spent.
    pub fn total_spent(&self) -> u64 {
        self.spent.saturating_add(self.spent_below)
    }

    /// The amount that accounts below it may still spend.
    pub(super) fn still_reserved(&self) -> u64 {
        self.reserved.saturating_sub(self.spent_below)
    }

    /// Draws `[##+-------]`: of the limit `#` is spent, `+` held or reserved, `-` left; empty
    /// without a limit. The amount taken is rounded up, and as long as anything is left at least
    /// one `-` shows it.
    pub(super) fn bar(&self) -> String {
        let (Some(limit), Some(remaining)) = (self.limit, self.remaining) else {
            return String::new();
        };
        let cells = |part: u64| {
            let share = u128::from(part) * u128::from(BAR_WIDTH);
            let share = share.div_ceil(u128::from(limit.max(1)));
            u64::try_from(share).unwrap_or(BAR_WIDTH).min(BAR_WIDTH)
        };
        let taken = match remaining {
            0 => BAR_WIDTH,
            _ => cells(limit - remaining).min(BAR_WIDTH - 1),
        };
        let spent = match limit {
            0 => BAR_WIDTH,
            _ => cells(self.total_spent()).min(taken),
        };
        let run = |mark: &str, count: u64| mark.repeat(usize::try_from(count).unwrap_or(0));
        format!(
            "[{}{}{}]",
            run("#", spent),
            run("+", taken - spent),
            run("-", BAR_WIDTH - taken)
        )
    }

    /// The limit, and the amount left of it or owed, as a screen shows them.
    pub(super) fn describe_limit(&self) -> [String; 2] {
        let left = match (self.remaining, self.debt) {
            (None, _) => "unlimited".to_owned(),
            (Some(_), debt) if debt > 0 => format!("owes {}", money::format_decimal(debt)),
            (Some(remaining), _) => money::format_decimal(remaining),
        };
        let limit = self
            .limit
            .map_or("unlimited".to_owned(), money::format_decimal);
        [limit, left]
    }

    fn describe_state(&self) -> &'static str {
        match (self.frozen, self.users) {
            (true, _) => "frozen: nothing more is admitted",
            (false, 0) => "at rest: nobody draws on it now",
            (false, _) => "",
        }
    }
}

/// The answer of `budget show`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct BudgetAnswer {
    /// The thread.
    pub thread_id: String,
    /// Its status.
    pub status: String,
    /// Its own cost.
    pub cost: ThreadCost,
    /// The spend of it and all threads below it: nano-USD, decimal text in JSON.
    #[serde(serialize_with = "spend")]
    pub tree_spend: u64,
    /// Threads of the tree, including this one.
    pub tree_threads: u64,
    /// Threads of the tree that cannot be read: `tree_spend` lacks what they have spent.
    pub tree_unreadable: Vec<String>,
    /// The account that it draws on.
    pub account: AccountView,
    /// The tip of its chain, if it was continued.
    pub continued_in: Option<String>,
    /// The exit code.
    pub exit: CommandExit,
    /// True if the account belongs to its own chain.
    #[serde(skip)]
    pub own: bool,
}

impl CommandAnswer for BudgetAnswer {
    fn exit(&self) -> CommandExit {
        self.exit
    }

    fn print(&self, screen: &mut OutputScreen) {
        let account = &self.account;
        let whose = match self.own {
            true => "its own".to_owned(),
            false => format!("that of {}", account.chain),
        };
        let lacks = lacking(&self.tree_unreadable);
        let tree = match self.tree_threads {
            0 | 1 if lacks.is_empty() => String::new(),
            many => {
                let threads = count_noun(many, "thread");
                format!(
                    "{} for {threads}{lacks}",
                    money::format_usd(self.tree_spend)
                )
            }
        };
        let [limit, left] = account.describe_limit();
        let mut table = TextTable::new(&[ColumnAlignment::Left, ColumnAlignment::Left]);
        for (name, value) in [
            ("thread", self.thread_id.clone()),
            ("status", self.status.clone()),
            ("own cost", self.cost.describe()),
            ("tree", tree),
            ("account", whose),
            ("reserved in", account.parent.clone().unwrap_or_default()),
            ("limit", limit),
            (
                "spent",
                format!(
                    "{} with descendants",
                    money::format_decimal(account.total_spent())
                ),
            ),
            (
                "held",
                format!("{} for calls", money::format_decimal(account.held)),
            ),
            (
                "reserved",
                format!(
                    "{} for children",
                    money::format_decimal(account.still_reserved())
                ),
            ),
            ("remaining", format!("{left} {}", account.bar())),
            ("state", account.describe_state().to_owned()),
        ] {
            if !value.is_empty() {
                table.add_row(&[name, value.trim_end()]);
            }
        }
        for line in table.lines() {
            screen.print_line(&line);
        }
    }
}

/// The answer of `budget hold`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct HoldAnswer {
    /// The thread.
    pub thread_id: String,
    /// The caller's name for the call.
    pub key: String,
    /// The number of the call, which `budget settle` and `budget release` take.
    pub call: u64,
    /// Nano-USD set aside; decimal text in JSON.
    #[serde(serialize_with = "spend")]
    pub amount: u64,
    /// Most tokens that the model may write; none for an estimate in money.
    pub output: Option<u64>,
    /// The exit code.
    pub exit: CommandExit,
}

impl CommandAnswer for HoldAnswer {
    fn exit(&self) -> CommandExit {
        self.exit
    }

    /// Prints only the number on standard output, for a variable of a shell.
    fn print(&self, screen: &mut OutputScreen) {
        screen.print_line(&self.call.to_string());
        let output = match self.output {
            Some(output) => format!(", for at most {output} output tokens"),
            None => String::new(),
        };
        screen.note(&format!(
            "{} are set aside for {} of {}{output}",
            money::format_usd(self.amount),
            self.key,
            self.thread_id
        ));
    }
}

/// The answer of `budget settle` and `budget release`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SettledAnswer {
    /// The thread.
    pub thread_id: String,
    /// The call.
    pub call: u64,
    /// The version of the thread now.
    pub version: u64,
    /// The exit code.
    pub exit: CommandExit,
}

impl CommandAnswer for SettledAnswer {
    fn exit(&self) -> CommandExit {
        self.exit
    }

    fn print(&self, screen: &mut OutputScreen) {
        screen.note(&format!(
            "call {} of {} is settled, at version {}",
            self.call, self.thread_id, self.version
        ));
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::screen::tests::screen;

    pub(crate) fn account(limit: Option<u64>, spent: u64, held: u64, reserved: u64) -> AccountView {
        AccountView::from(AccountFigures {
            chain: "root".to_owned(),
            parent: None,
            limit,
            spent,
            held,
            reserved,
            reported: 0,
            users: 1,
            frozen: false,
        })
    }

    #[test]
    fn a_bar_shows_what_is_taken_and_never_says_full_too_early() {
        let most = u64::MAX;
        for (limit, spent, held, reserved, bar) in [
            (Some(100), 0, 0, 0, "[----------]"),
            (Some(100), 50, 0, 0, "[#####-----]"),
            (Some(100), 20, 10, 20, "[##+++-----]"),
            (Some(100), 1, 0, 0, "[#---------]"),
            (Some(100), 0, 1, 0, "[+---------]"),
            (Some(100), 99, 0, 0, "[#########-]"),
            (Some(100), 50, 25, 25, "[#####+++++]"),
            (Some(100), 100, 0, 0, "[##########]"),
            (Some(100), 170, 10, 0, "[##########]"),
            (Some(0), 0, 0, 0, "[##########]"),
            (Some(1), 0, 0, 0, "[----------]"),
            (Some(most), most - 1, 0, 0, "[#########-]"),
            (Some(most), most, 0, 0, "[##########]"),
            (None, 5, 5, 5, ""),
        ] {
            let shown = account(limit, spent, held, reserved);
            assert_eq!(shown.bar(), bar, "{shown:?}");
            let taken = spent.saturating_add(held + reserved);
            let Some(limit) = limit else {
                assert_eq!((shown.remaining, shown.debt), (None, 0));
                continue;
            };
            let sum = u128::from(taken) + u128::from(shown.remaining.unwrap());
            assert_eq!(sum, u128::from(limit) + u128::from(shown.debt));
        }
    }

    /// Symptom: a screen showed 0.00 spent while open accounts of children had spent, and showed
    /// that money as reserved. Cause: an account learns of a child's spend when the child's account
    /// closes. Fix: the spend of the tree is shown, and the figures still add up to the limit.
    #[test]
    fn spend_of_open_child_accounts_is_shown_as_spent() {
        for (spent, reserved, tree, in_all, still, bar) in [
            (100, 500, 400, 400, 200, "[####++----]"),
            (100, 500, 100, 100, 500, "[#+++++----]"),
            // One account below owes: its limit grows when the debt is reported.
            (100, 500, 700, 600, 0, "[######----]"),
            (100, 0, 100, 100, 0, "[#---------]"),
        ] {
            let shown = account(Some(1_000), spent, 0, reserved).with_tree_spend(tree);
            assert_eq!(
                (shown.total_spent(), shown.still_reserved()),
                (in_all, still)
            );
            assert_eq!(shown.bar(), bar, "{shown:?}");
            let sum = in_all + still + shown.remaining.unwrap();
            assert_eq!(sum, 1_000, "{shown:?}");
        }
    }

    #[test]
    fn the_number_of_a_call_is_the_answer_and_the_rest_is_beside_it() {
        let (mut person, out, err) = screen(false, false);
        let mut hold = HoldAnswer {
            thread_id: "a".to_owned(),
            key: "turn-1".to_owned(),
            call: 7,
            amount: 250_000_000,
            output: None,
            exit: CommandExit::Done,
        };
        person.print_answer(&hold);
        hold.output = Some(300);
        person.print_answer(&hold);
        assert_eq!(out.text(), "7\n7\n");
        let said = "0.25 USD are set aside for turn-1 of a";
        let expected = format!("{said}\n{said}, for at most 300 output tokens\n");
        assert_eq!(err.text(), expected);
    }
}
