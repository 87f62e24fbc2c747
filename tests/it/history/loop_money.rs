//! The money of an external loop: held before a call, settled or released after it, and corrected
//! whenever the real bill comes.

use super::{LoopHost, code, message_event};
use crate::runner::fixture::usage;
use threadkeep_component::service::ledger::{HoldAdmission, UnresolvedEstimate};
use threadkeep_component::service::tree::TREE_THREADS_MAX;
use threadkeep_component::service::{Error, ErrorKind};
use threadkeep_core::error::ErrorKind as CoreErrorKind;
use threadkeep_core::limits::ThreadCaps;
use threadkeep_core::money::NanoUsd;
use threadkeep_core::runner::{CallBill, CapRaise, Signal};

/// Price of this many tokens of the model `default`: 1 USD a million read, 2 USD a million written.
pub fn price(read: u64, written: u64) -> u64 {
    read * 1_000 + written * 2_000
}

pub fn tokens(read: u64, written: u64) -> UnresolvedEstimate {
    UnresolvedEstimate::Tokens("default".to_owned(), read, written)
}

pub fn dollars(nanos: u64) -> UnresolvedEstimate {
    UnresolvedEstimate::Amount(NanoUsd::new(nanos))
}

impl LoopHost {
    pub fn hold(&self, name: &str, asked: &UnresolvedEstimate) -> Result<HoldAdmission, Error> {
        let (token, until) = (
            self.token.unwrap_or_default(),
            self.now().plus_millis(9_000),
        );
        let service = &self.world.service;
        let held = service.hold(&self.thread, token, name, asked, until);
        self.world.audit();
        held
    }

    pub fn settle(&self, version: u64, bill: CallBill) -> Result<u64, Error> {
        let settled = self.world.service.settle(&self.thread, version, bill);
        self.world.audit();
        settled
    }

    pub fn spawn(&self, parent: &str, id: &str, named: Option<u64>) -> String {
        self.world.spawn(parent, id, named)
    }

    /// Returns (spent, held) of the thread's account.
    pub fn figures(&self) -> (u64, u64) {
        let loaded = self.world.service.load(&self.thread).unwrap();
        let account = loaded.account();
        (account.spent.get(), account.held.get())
    }
}

pub fn usage_bill(read: u64, written: u64) -> CallBill {
    CallBill::Usage(usage(read, written).unwrap())
}

#[test]
fn a_call_is_held_and_settled_and_each_may_be_repeated() {
    let host = LoopHost::open();
    host.append(&[message_event("user", "hi")]).unwrap();
    let held = host.hold("turn-1", &tokens(100, 300)).unwrap();
    assert_eq!((held.amount, held.output), (price(100, 300), 300));
    assert_eq!(host.figures(), (0, price(100, 300)));
    assert_eq!(host.hold("turn-1", &tokens(100, 300)).unwrap(), held);
    let version = host.settle(held.version, usage_bill(90, 20)).unwrap();
    assert_eq!(host.figures(), (price(90, 20), 0));
    assert_eq!(
        host.settle(held.version, usage_bill(90, 20)).unwrap(),
        version
    );
    // Also after settlement the name has its recorded answer.
    assert_eq!(host.hold("turn-1", &tokens(100, 300)).unwrap(), held);
    let head = host.head();
    assert_eq!((head.version, head.counters.turns), (version, 1));
    host.append(&[message_event("assistant", "hello")]).unwrap();
    let closed = host.close("idle", None).unwrap();
    assert_eq!(closed.status.to_string(), "idle");
    // The history records it as it records a turn of the runner.
    let (_, lines, _) = host
        .world
        .service
        .entries(&host.thread, 0, None, 50)
        .unwrap();
    let events = lines.iter().flat_map(|line| &line.entry.events);
    assert_eq!(events.filter(|event| event.kind() == "result").count(), 1);
}

#[test]
fn another_estimate_or_bill_of_the_same_call_is_a_conflict_and_changes_nothing() {
    let host = LoopHost::open();
    let held = host.hold("a", &tokens(100, 300)).unwrap();
    for other in [tokens(101, 300), tokens(100, 299), dollars(held.amount)] {
        assert_eq!(code(&host.hold("a", &other).unwrap_err()), "conflict");
    }
    let settled = host.hold("b", &dollars(500)).unwrap().version;
    host.settle(settled, CallBill::Amount(NanoUsd::new(400)))
        .unwrap();
    let released = host.hold("c", &dollars(500)).unwrap().version;
    host.settle(released, CallBill::Nothing).unwrap();
    host.settle(released, CallBill::Nothing).unwrap();
    for (version, bill) in [
        (settled, CallBill::Amount(NanoUsd::new(401))),
        (settled, usage_bill(1, 0)),
        (settled, CallBill::Nothing),
        (released, CallBill::Amount(NanoUsd::ZERO)),
        (released, usage_bill(0, 0)),
    ] {
        assert_eq!(code(&host.settle(version, bill).unwrap_err()), "conflict");
    }
    assert_eq!(host.figures(), (400, held.amount));
}

#[test]
fn what_cannot_be_held_is_refused_and_writes_nothing() {
    let mut host = LoopHost::open();
    for n in 0..threadkeep_core::thread::HOLDS_MAX {
        host.hold(&format!("held-{n}"), &dollars(1)).unwrap();
    }
    let before = host.head();
    let long = "x".repeat(129);
    let refused = |host: &LoopHost, name: &str, asked: &UnresolvedEstimate| {
        code(&host.hold(name, asked).unwrap_err())
    };
    assert_eq!(refused(&host, "one-too-many", &dollars(1)), "refused");
    assert_eq!(refused(&host, "", &dollars(1)), "invalid");
    assert_eq!(refused(&host, "a\nb", &dollars(1)), "invalid");
    assert_eq!(refused(&host, &long, &dollars(1)), "invalid");
    assert_eq!(
        refused(
            &host,
            "m",
            &UnresolvedEstimate::Tokens("defualt".to_owned(), 1, 1)
        ),
        "not-found"
    );
    let service = &host.world.service;
    for (millis, expected) in [(0, "invalid"), (3_600_001, "invalid")] {
        let until = host.now().plus_millis(millis);
        let token = host.token.unwrap();
        let held = service.hold(&host.thread, token, "late", &dollars(1), until);
        assert_eq!(code(&held.unwrap_err()), expected);
    }
    let token = host.token.replace(0);
    assert_eq!(refused(&host, "no-token", &dollars(1)), "fenced");
    host.token = token;
    assert_eq!(host.head(), before);
    service.signal(&host.thread, "c", &Signal::Cancel).unwrap();
    let first = before.holds[0].version;
    host.settle(first, CallBill::Nothing).unwrap();
    assert_eq!(refused(&host, "cancelled", &dollars(1)), "refused");
}

#[test]
fn money_that_is_short_lowers_the_output_and_then_denies() {
    let host = LoopHost::open();
    // The account has one dollar; beside the hold, 200 tokens of output remain.
    let rest = price(100, 300);
    host.hold("much", &dollars(1_000_000_000 - rest)).unwrap();
    let held = host.hold("lowered", &tokens(100, 100_000)).unwrap();
    assert_eq!((held.output, held.amount), (300, rest));
    let before = host.head();
    for asked in [tokens(100, 256), dollars(1)] {
        let Err(ErrorKind::Core(CoreErrorKind::Exceeded(cause))) =
            host.hold("denied", &asked).map_err(Error::into_kind)
        else {
            panic!("{asked:?}: it is admitted");
        };
        assert_eq!(cause.reason, "budget");
        assert_eq!(cause.maximum, Some(0), "{cause:?}");
        assert!(cause.value > Some(0), "{cause:?}");
    }
    assert_eq!(host.head(), before);
}

#[test]
fn a_bill_larger_than_its_hold_is_recorded_and_at_the_root_a_debt() {
    let host = LoopHost::open();
    let held = host.hold("a", &dollars(10)).unwrap();
    let all = CallBill::Amount(NanoUsd::new(1_500_000_000));
    host.settle(held.version, all).unwrap();
    assert_eq!(host.figures(), (1_500_000_000, 0));
    let denied = host.hold("b", &dollars(0)).unwrap_err();
    assert!(
        format!("{denied:?}").contains("owes 0.50 USD"),
        "{denied:?}"
    );
    let caps = ThreadCaps {
        spend: Some(NanoUsd::new(1_500_000_001)),
        ..ThreadCaps::NONE
    };
    let through = false;
    let raise = Signal::Raise(CapRaise { caps, through });
    host.world
        .service
        .signal(&host.thread, "r", &raise)
        .unwrap();
    host.hold("c", &dollars(1)).unwrap();
}

#[test]
fn open_holds_are_charged_at_the_end_and_corrected_once() {
    for end in ["close", "kill", "recover", "claimed"] {
        let host = LoopHost::open();
        let tokens_held = host.hold("a", &tokens(100, 300)).unwrap();
        let money_held = host.hold("b", &dollars(5_000)).unwrap();
        // Time enough for 300 tokens.
        host.world.advance(10_000);
        let service = &host.world.service;
        match end {
            "close" => {
                host.close("completed", None).unwrap();
            }
            "kill" => {
                service.signal(&host.thread, "k", &Signal::Kill).unwrap();
            }
            "recover" => {
                service.recover(&["h/1".to_owned()], None).unwrap();
            }
            _ => {
                let dead = threadkeep_core::runner::HolderProof::Dead;
                service.claim(&host.thread, "h/2", dead).unwrap();
            }
        }
        host.world.audit();
        let charged = tokens_held.amount + 5_000;
        assert_eq!(host.figures(), (charged, 0), "{end}");
        let no_prices = host
            .settle(money_held.version, usage_bill(1, 1))
            .unwrap_err();
        assert_eq!(code(&no_prices), "invalid", "{end}");
        host.settle(tokens_held.version, usage_bill(50, 5)).unwrap();
        host.settle(money_held.version, CallBill::Nothing).unwrap();
        assert_eq!(host.figures(), (price(50, 5), 0), "{end}");
        host.settle(tokens_held.version, usage_bill(50, 5)).unwrap();
        let other = host
            .settle(tokens_held.version, usage_bill(50, 6))
            .unwrap_err();
        assert_eq!(code(&other), "conflict", "{end}");
        assert_eq!(host.figures(), (price(50, 5), 0), "{end}");
        assert_eq!(
            code(&host.settle(99, CallBill::Nothing).unwrap_err()),
            "invalid"
        );
    }
}

#[test]
fn a_tree_is_listed_with_its_accounts_page_by_page() {
    let mut host = LoopHost::open();
    let top = host.thread.clone();
    // A child with an account of its own, one without, and so many more that a page is full.
    let rich = host.spawn(&top, "rich", Some(700_000));
    let grandchild = host.spawn(&rich, "grandchild", None);
    let poor = host.spawn(&top, "poor", None);
    for n in 0..TREE_THREADS_MAX {
        host.spawn(&top, &format!("z{n:03}"), None);
    }
    host.world.audit();
    let service = &host.world.service;
    let (mut cursor, mut seen, mut pages) = (None, Vec::new(), 0);
    loop {
        let page = service.tree_page(&top, cursor.as_deref()).unwrap();
        let (page, next) = (page.branches, page.cursor);
        assert!(page.len() <= TREE_THREADS_MAX);
        seen.extend(page);
        pages += 1;
        match next {
            Some(next) => cursor = Some(next),
            None => break,
        }
    }
    assert_eq!((pages, seen.len()), (2, 4 + TREE_THREADS_MAX));
    let place = |id: &str| {
        let at = seen.iter().position(|(l, _)| l.thread.value.id == id);
        let at = at.unwrap_or_else(|| panic!("{id} is missing"));
        (at, seen[at].1, seen[at].0.chain.value.has_account())
    };
    assert_eq!(place(&top), (0, 0, true));
    assert_eq!((place(&rich).1, place(&rich).2), (1, true));
    let child = place(&grandchild);
    assert_eq!(child, (place(&rich).0 + 1, 2, false), "after its parent");
    assert_eq!((place(&poor).1, place(&poor).2), (1, false));
    let draws = service.load(&grandchild).unwrap();
    assert_eq!(draws.account().limit, Some(NanoUsd::new(700_000)));
    let reserved = service.load(&top).unwrap().account().reserved;
    assert_eq!(reserved.get(), 700_000);
    for wrong in ["", "nobody", "nobody\nelse"] {
        assert_eq!(
            code(&service.tree_page(&top, Some(wrong)).unwrap_err()),
            "invalid"
        );
    }
    // Each draws on its own account, so the loop of a child holds there.
    host.thread = grandchild;
    host.token = None;
    host.take_lease("h/9", 60).unwrap();
    host.hold("a", &dollars(600_000)).unwrap();
    assert_eq!(host.figures(), (0, 600_000));
    assert_eq!(
        code(&host.hold("b", &dollars(100_001)).unwrap_err()),
        "exceeded"
    );
    host.close("completed", None).unwrap();
    assert_eq!(host.figures(), (600_000, 0));
    host.world.audit();
}
