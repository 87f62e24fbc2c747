//! The `policy` section: what the operator's policy grants, what it bounds, and the file it comes
//! from.

use super::DoctorFindings;
use crate::command::session::CommandSession;
use threadkeep::ceilings::UsageBook;
use threadkeep::policy::{AddressPrefix, Policy};
use threadkeep_cli::answer::{DoctorSection, ItemState, ceiling_advice};
use threadkeep_cli::money;

/// Adds every bound that is set; a bound that is not listed is unlimited. Returns false if the
/// policy would refuse every call.
pub fn check_policy(session: &CommandSession, findings: &mut DoctorFindings) -> bool {
    let mut section = DoctorSection::new("policy");
    let good = match session.policy() {
        Ok(policy) => {
            describe_policy(&policy, &mut section);
            check_book(session, &policy, &mut section, findings)
        }
        Err(fault) => {
            section.add_item(
                ItemState::Bad,
                "policy",
                fault.message.clone(),
                Some("--policy"),
            );
            findings.add_problem(fault.message, fault.hint.unwrap_or_default());
            false
        }
    };
    findings.sections.push(section);
    good
}

/// Adds the book that the policy names, read in the way a call reads it.
fn check_book(
    session: &CommandSession,
    policy: &Policy,
    section: &mut DoctorSection,
    findings: &mut DoctorFindings,
) -> bool {
    let Some(name) = &policy.book else {
        return true;
    };
    let used = match session.open_book(policy) {
        Ok(book) => book.map_or(Ok(()), |book| {
            book.read_totals()
                .map(drop)
                .map_err(|refusal| refusal.message)
        }),
        Err(fault) => Err(fault.message),
    };
    match used {
        Ok(()) => {
            section.add_with_origin("book", format!("{name}, beside the policy"), &policy.name);
            true
        }
        Err(problem) => {
            section.add_item(ItemState::Bad, "book", problem.clone(), Some(&policy.name));
            findings.add_problem(problem, ceiling_advice("book"));
            false
        }
    }
}

fn describe_policy(policy: &Policy, section: &mut DoctorSection) {
    let Policy {
        name,
        preset,
        limits,
        models,
        tools,
        approvals,
        providers,
        ceilings,
        unknown_bill,
        quota_bytes,
        book: _,
    } = policy;
    section.add_with_origin("preset", preset.as_str(), name);
    for (cap, value) in limits {
        section.add_with_origin(&format!("most {cap}"), value.to_string(), name);
    }
    let all = |names: Option<Vec<&str>>| match names {
        None => "all".to_owned(),
        Some(names) if names.is_empty() => "none".to_owned(),
        Some(names) => names.join(", "),
    };
    let models = models.as_ref();
    let granted = models.map(|models| models.keys().map(String::as_str).collect());
    section.add_with_origin("models", all(granted), name);
    let tools = tools.as_ref();
    let granted = tools.map(|tools| tools.iter().map(String::as_str).collect());
    section.add_with_origin("tools", all(granted), name);
    if !approvals.is_empty() {
        section.add_with_origin("approvals", approvals.join(", "), name);
    }
    match providers {
        None => section.add_with_origin("providers", "all; a key goes where its name says", name),
        Some(granted) if granted.is_empty() => section.add_with_origin("providers", "none", name),
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
                section.add_with_origin(&format!("provider {provider}"), value, name);
            }
        }
    }
    for (ceiling, value) in ceilings.named_values() {
        let value = match ceiling {
            "spend" => ceilings.spend_nanos_max.map(money::format_usd),
            _ => value,
        };
        if let Some(value) = value {
            section.add_with_origin(&format!("ceiling {ceiling}"), value, name);
        }
    }
    section.add_with_origin("unknown bill", unknown_bill.as_str(), name);
    if let Some(quota) = quota_bytes {
        section.add_with_origin(
            "quota",
            format!("{quota} bytes of records, not of the file"),
            name,
        );
    }
}
