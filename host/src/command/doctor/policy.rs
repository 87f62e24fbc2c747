//! The `policy` section: what the operator's policy grants, what it bounds, and the file it comes
//! from.

use super::Findings;
use crate::command::open::Session;
use threadkeep::ceilings::Book;
use threadkeep::policy::{AddressPrefix, Policy};
use threadkeep_cli::answer::{Section, State, lift};
use threadkeep_cli::money;

/// Adds every bound that is set; a bound that is not listed is unlimited. Returns false if the
/// policy would refuse every call.
pub fn section(session: &Session, findings: &mut Findings) -> bool {
    let mut section = Section::new("policy");
    let good = match session.policy() {
        Ok(policy) => {
            describe(&policy, &mut section);
            book(session, &policy, &mut section, findings)
        }
        Err(fault) => {
            section.item(
                State::Bad,
                "policy",
                fault.message.clone(),
                Some("--policy"),
            );
            findings.missing(fault.message, fault.hint.unwrap_or_default());
            false
        }
    };
    findings.sections.push(section);
    good
}

/// Adds the book that the policy names, read in the way a call reads it.
fn book(
    session: &Session,
    policy: &Policy,
    section: &mut Section,
    findings: &mut Findings,
) -> bool {
    let Some(name) = &policy.book else {
        return true;
    };
    let used = match session.book(policy) {
        Ok(book) => book.map_or(Ok(()), |book| {
            book.used().map(drop).map_err(|refusal| refusal.message)
        }),
        Err(fault) => Err(fault.message),
    };
    match used {
        Ok(()) => {
            section.from("book", format!("{name}, beside the policy"), &policy.name);
            true
        }
        Err(problem) => {
            section.item(State::Bad, "book", problem.clone(), Some(&policy.name));
            findings.missing(problem, lift("book"));
            false
        }
    }
}

fn describe(policy: &Policy, section: &mut Section) {
    let Policy {
        name,
        preset,
        limits,
        models,
        tools,
        providers,
        ceilings,
        unknown_bill,
        quota_bytes,
        book: _,
    } = policy;
    section.from("preset", preset.as_str(), name);
    for (cap, value) in limits {
        section.from(&format!("most {cap}"), value.to_string(), name);
    }
    let all = |names: Option<Vec<&str>>| match names {
        None => "all".to_owned(),
        Some(names) if names.is_empty() => "none".to_owned(),
        Some(names) => names.join(", "),
    };
    let models = models.as_ref();
    let granted = models.map(|models| models.keys().map(String::as_str).collect());
    section.from("models", all(granted), name);
    let tools = tools.as_ref();
    let granted = tools.map(|tools| tools.iter().map(String::as_str).collect());
    section.from("tools", all(granted), name);
    match providers {
        None => section.from("providers", "all; a key goes where its name says", name),
        Some(granted) if granted.is_empty() => section.from("providers", "none", name),
        Some(granted) => {
            for (provider, grant) in granted {
                let wire = grant.wire.map_or("any wire", |wire| wire.as_str());
                let hosts: Vec<String> = grant.hosts.iter().map(AddressPrefix::to_string).collect();
                let hosts = hosts.iter().map(String::as_str).collect();
                let keys = grant.keys.iter().map(String::as_str).collect();
                let (hosts, keys) = (all(Some(hosts)), all(Some(keys)));
                let private = if grant.private {
                    "; names may lead to private addresses"
                } else {
                    ""
                };
                let value = format!("{wire}; hosts: {hosts}; keys: {keys}{private}");
                section.from(&format!("provider {provider}"), value, name);
            }
        }
    }
    for (ceiling, value) in ceilings.named() {
        let value = match ceiling {
            "spend" => ceilings.spend_nanos_max.map(money::shown),
            _ => value,
        };
        if let Some(value) = value {
            section.from(&format!("ceiling {ceiling}"), value, name);
        }
    }
    section.from("unknown bill", unknown_bill.as_str(), name);
    if let Some(quota) = quota_bytes {
        section.from(
            "quota",
            format!("{quota} bytes of records, not of the file"),
            name,
        );
    }
}
