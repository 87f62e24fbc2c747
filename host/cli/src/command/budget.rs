//! `budget` and `tree`: the money that threads may spend, and the money of an external loop, such
//! as a shell script.

use super::list::forks_of;
use super::{cap_warning, chain, external_loop, fault, thread_names, tree_totals, view};
use crate::answer::{BranchRow, BudgetAnswer, HoldAnswer, SettledAnswer, TreeAnswer, has_ended};
use crate::args::{self, BudgetCommand};
use crate::contract::{CallBill, CostEstimate, ModelCall, RefusalKind, TokenUsage, TreeBranch};
use crate::exit::{CommandExit, CommandFault};
use crate::screen::OutputScreen;
use crate::threads::{CallResult, CommandHost, ProjectThreads};

/// Most threads that `tree` shows in one answer, plus at most one page of the component. A terminal
/// shows no more either, and a cursor continues the list.
const TREE_THREADS_MAX: usize = 1_000;
/// Most forks that `tree` names; `list --forks` has all.
const FORKS_NAMED_MAX: u32 = 50;

/// Performs one of the `budget` commands.
pub async fn budget(
    host: &impl CommandHost,
    budget: args::BudgetArgs,
    screen: &mut OutputScreen,
) -> Result<CommandExit, CommandFault> {
    match budget.command {
        BudgetCommand::Show(named) => show(host, named, screen).await,
        BudgetCommand::Hold(asked) => hold(host, asked, screen).await,
        BudgetCommand::Settle(settle) => {
            let bill = to_bill(&settle.bill);
            settle_or_release(host, settle.thread, settle.call, Some(bill), screen).await
        }
        BudgetCommand::Release(release) => {
            settle_or_release(host, release.thread, release.call, None, screen).await
        }
    }
}

async fn show(
    host: &impl CommandHost,
    mut named: args::ThreadArgs,
    screen: &mut OutputScreen,
) -> Result<CommandExit, CommandFault> {
    let opened = host.open_to_read(screen)?;
    thread_names::resolve(&opened, &mut named.thread).await?;
    let failed = |error| fault::from_thread_call(&opened, &named.thread, &error);
    let threads = &opened;
    let thread = threads.get(&named.thread).await.map_err(failed)?;
    let account = threads.account(&thread.id).await.map_err(failed)?;
    let tree = tree_totals::load_totals(threads, &thread.id)
        .await
        .map_err(failed)?;
    // The account may belong to a thread above, under which other threads spend as well.
    let of_account = match account.chain == thread.id {
        true => tree.spend,
        false => {
            let owner = tree_totals::load_totals(threads, &account.chain).await;
            owner.map_err(failed)?.spend
        }
    };
    let continued_in = chain::name_tip(&opened, &named.thread, "budget show", screen).await;
    let account = view::account(account).with_tree_spend(of_account);
    if !has_ended(&thread.status) {
        cap_warning::warn_of_limit(&account, screen);
    }
    Ok(screen.print_answer(&BudgetAnswer {
        continued_in,
        cost: view::cost(&thread.cost),
        thread_id: thread.id,
        status: thread.status,
        own: account.chain == thread.chain,
        tree_spend: tree.spend,
        tree_threads: tree.threads,
        tree_unreadable: tree.unreadable,
        account,
        exit: CommandExit::Done,
    }))
}

async fn hold(
    host: &impl CommandHost,
    mut hold: args::HoldArgs,
    screen: &mut OutputScreen,
) -> Result<CommandExit, CommandFault> {
    let opened = host.open()?;
    thread_names::resolve(&opened, &mut hold.thread).await?;
    let Some(token) = external_loop::find_token(host, hold.token, &hold.thread)? else {
        return Err(external_loop::missing_token(
            "money is held with the token of the lease",
        ));
    };
    let failed = |error| fault::from_thread_call(&opened, &hold.thread, &error);
    let threads = &opened;
    let thread = threads.get(&hold.thread).await.map_err(failed)?.id;
    let deadline = external_loop::deadline_after(threads, hold.time);
    let asked = hold.estimate;
    let held = threads
        .hold(&thread, token, &hold.key, to_estimate(asked), deadline)
        .await;
    let held = match held {
        Ok(held) => held,
        Err(error) => {
            return Err(chain::explain_refusal(&opened, &thread, "budget hold", &error).await);
        }
    };
    opened.refresh_documents(&thread, screen).await;
    screen.set_lost_hint("the same command again prints the number of the call".to_owned());
    Ok(screen.print_answer(&HoldAnswer {
        thread_id: thread,
        key: hold.key,
        call: held.version,
        amount: held.amount,
        output: held.output,
        exit: CommandExit::Done,
    }))
}

/// Converts the command line's estimate. The argument parser ensures that a model or an amount is
/// given.
fn to_estimate(asked: args::EstimateArgs) -> CostEstimate {
    match asked.model {
        Some(model) => CostEstimate::Tokens(ModelCall {
            model,
            input: asked.input.unwrap_or_default(),
            output: asked.output.unwrap_or_default(),
        }),
        None => CostEstimate::Amount(asked.amount.unwrap_or_default()),
    }
}

fn to_bill(told: &args::BillArgs) -> CallBill {
    match told.amount {
        Some(amount) => CallBill::Amount(amount),
        None => CallBill::Usage(TokenUsage {
            input: told.input.unwrap_or_default(),
            output: told.output.unwrap_or_default(),
            read: told.cache_read.unwrap_or_default(),
            write: told.cache_write.unwrap_or_default(),
            reasoning: told.reasoning.unwrap_or_default(),
        }),
    }
}

/// Settles a call with its bill, or releases it if nothing was sent (`bill` is none).
async fn settle_or_release(
    host: &impl CommandHost,
    mut thread: String,
    call: u64,
    bill: Option<CallBill>,
    screen: &mut OutputScreen,
) -> Result<CommandExit, CommandFault> {
    let opened = host.open()?;
    thread_names::resolve(&opened, &mut thread).await?;
    let failed = |error| fault::from_thread_call(&opened, &thread, &error);
    let threads = &opened;
    let thread_id = threads.get(&thread).await.map_err(failed)?.id;
    let version = match bill {
        Some(bill) => threads.settle(&thread_id, call, bill).await,
        None => threads.release(&thread_id, call).await,
    };
    let version = version.map_err(failed)?;
    opened.refresh_documents(&thread_id, screen).await;
    Ok(screen.print_answer(&SettledAnswer {
        thread_id,
        call,
        version,
        exit: CommandExit::Done,
    }))
}

/// Shows a thread and all threads that it spawned.
pub async fn tree(
    host: &impl CommandHost,
    mut tree: args::TreeArgs,
    screen: &mut OutputScreen,
) -> Result<CommandExit, CommandFault> {
    let opened = host.open_to_read(screen)?;
    thread_names::resolve(&opened, &mut tree.thread).await?;
    let answer = load_tree(&opened, &tree).await;
    let answer = answer.map_err(|error| fault::from_thread_call(&opened, &tree.thread, &error))?;
    Ok(screen.print_answer(&answer))
}

/// Loads a thread and all threads that it spawned, up to the bound of one answer.
pub(super) async fn load_tree(
    threads: &impl ProjectThreads,
    tree: &args::TreeArgs,
) -> CallResult<TreeAnswer> {
    let (mut rows, mut cursor) = (TreeRows::default(), tree.cursor.clone());
    let mut unreadable = Vec::new();
    let mut drawn = AncestorAccounts::default();
    let mut more = None;
    loop {
        let page = threads.tree(&tree.thread, cursor).await?;
        drawn.is_whole = page.unreadable.is_empty();
        unreadable.extend(page.unreadable.into_iter().map(view::unreadable));
        for branch in page.branches {
            // Threads after the last row that is shown only add their spend to the rows of their
            // ancestors.
            if more.is_some() {
                rows.add_spend(branch.depth, branch.spend);
                continue;
            }
            let draws_on = drawn.account_of(threads, &branch).await?;
            rows.push(branch, draws_on);
        }
        cursor = page.cursor;
        if more.is_none() && rows.threads.len() >= TREE_THREADS_MAX {
            more = cursor.clone();
        }
        if cursor.is_none() || (more.is_some() && rows.open.is_empty()) {
            break;
        }
    }
    for row in &mut rows.threads {
        // A record that can no longer be read was read for its row a moment ago: it stays.
        if let Ok(thread) = threads.get(&row.thread_id).await {
            (row.title, row.directive) = (thread.title, thread.directive);
        }
    }
    Ok(TreeAnswer {
        forks: list_forks(threads, &tree.thread).await?,
        threads: rows.into_rows(),
        unreadable,
        cursor: more,
        exit: CommandExit::Done,
    })
}

/// Names the newest forks of the chain of a thread; none where its record cannot be read, which the
/// tree itself tells.
async fn list_forks(opened: &impl ProjectThreads, thread: &str) -> CallResult<Vec<String>> {
    let Ok(record) = opened.get(thread).await else {
        return Ok(Vec::new());
    };
    let forks = opened.list(forks_of(&record.chain), FORKS_NAMED_MAX, None);
    Ok(forks.await?.threads.into_iter().map(|row| row.id).collect())
}

/// Rows of a tree in its order, each with the spend of the threads below it so far.
#[derive(Default)]
struct TreeRows {
    threads: Vec<BranchRow>,
    /// Indexes of the rows under which the next thread may lie, from the top down.
    open: Vec<usize>,
}

impl TreeRows {
    fn push(&mut self, branch: TreeBranch, draws_on: String) {
        self.add_spend(branch.depth, branch.spend);
        self.open.push(self.threads.len());
        self.threads.push(BranchRow {
            thread_id: branch.thread,
            depth: branch.depth,
            status: branch.status,
            title: None,
            directive: None,
            spend: branch.spend,
            tree_spend: branch.spend,
            draws_on,
            account: branch.account.map(view::account),
        });
    }

    /// Adds the spend of a thread at this depth to all rows that it lies under.
    fn add_spend(&mut self, depth: u32, spend: u64) {
        let threads = &mut self.threads;
        self.open.retain(|place| threads[*place].depth < depth);
        for place in &self.open {
            let row = &mut threads[*place];
            row.tree_spend = row.tree_spend.saturating_add(spend);
        }
    }

    fn into_rows(self) -> Vec<BranchRow> {
        let rows = self.threads.into_iter().map(|row| BranchRow {
            account: row
                .account
                .map(|account| account.with_tree_spend(row.tree_spend)),
            ..row
        });
        rows.collect()
    }
}

/// Accounts on which the ancestors of the next thread draw, from the top down, as far as they were
/// read.
#[derive(Default)]
struct AncestorAccounts {
    chains: Vec<Option<String>>,
    /// False for a page with threads left out: its rows do not show which thread lies above which.
    is_whole: bool,
}

/// Shown in place of the chain of an account that is missing or cannot be read.
const UNREADABLE_ACCOUNT: &str = "an account that cannot be read";

impl AncestorAccounts {
    async fn account_of(
        &mut self,
        threads: &impl ProjectThreads,
        branch: &TreeBranch,
    ) -> CallResult<String> {
        let depth = usize::try_from(branch.depth).unwrap_or(usize::MAX);
        let above = depth.checked_sub(1);
        let above = above.and_then(|above| self.chains.get(above));
        let above = above.filter(|_| self.is_whole);
        let chain = match (&branch.account, above.cloned().flatten()) {
            (Some(account), _) => account.chain.clone(),
            (None, Some(above)) => above,
            // The first thread of a later page, or of a subtree.
            (None, None) => match threads.account(&branch.thread).await {
                Ok(account) => account.chain,
                Err(error) if error.is_refused_as(RefusalKind::Corrupt) => {
                    UNREADABLE_ACCOUNT.to_owned()
                }
                Err(error) => return Err(error),
            },
        };
        self.chains.resize(depth.min(DEPTH_MAX), None);
        if depth < DEPTH_MAX {
            self.chains.push(Some(chain.clone()));
        }
        Ok(chain)
    }
}

/// Largest depth at which the account of a thread is remembered for the threads below it.
const DEPTH_MAX: usize = 1_000;
