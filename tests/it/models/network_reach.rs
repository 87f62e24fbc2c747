//! Network addresses that a provider may have under `preset: strict`, over real connections: a
//! server of this machine is not reached, by any name, unless the operator grants it.

use super::judged_project::{JudgedProject, ProjectPlan};
use super::{WAIT_TIME_MAX, ask, request};
use std::net::{SocketAddr, TcpListener};
use threadkeep::models::openai::OpenAiProvider;
use threadkeep::models::{FailureKind, ProviderOptions, SecretText};
use threadkeep::policy::NetworkReach;
use threadkeep_tests::canned::CannedServer;
use threadkeep_tests::judge::{answer_in_order, text_reply};
use threadkeep_tests::llmock::MockWire;

/// A server that notices connections and never answers.
fn silent_server() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
    listener.set_nonblocking(true).expect("it does not block");
    let address = listener.local_addr().expect("an address");
    (listener, address)
}

fn options(base_url: String, reach: NetworkReach) -> ProviderOptions {
    let times = threadkeep::models::ProviderTimeouts {
        connect: WAIT_TIME_MAX,
        answer: WAIT_TIME_MAX,
        idle: WAIT_TIME_MAX,
    };
    ProviderOptions {
        key: Some(SecretText::new("sk-test-0123456789")),
        reach,
        times,
        ..ProviderOptions::openai(base_url)
    }
}

/// Symptom: the adapter connected to a name that led to this machine. Cause: names were not judged
/// by their addresses. Fix: the client's own look-up returns no address that is out of reach, so a
/// name that had another address a moment ago gains nothing.
#[tokio::test]
async fn a_name_that_leads_out_of_reach_is_not_connected_to() {
    let (listener, address) = silent_server();
    let base_url = format!("http://localhost:{}/v1", address.port());
    let provider =
        OpenAiProvider::new(options(base_url, NetworkReach::Public)).expect("a name is none");
    let failure = ask(&provider, &request("Hi")).await.0.unwrap_err();
    assert_eq!(
        (failure.kind, failure.code.as_str(), failure.sent),
        (FailureKind::Permanent, "out_of_reach", false),
        "{failure:?}"
    );
    for word in ["localhost", "private", "private: true"] {
        assert!(failure.message.contains(word), "{failure:?}");
    }
    let heard = listener.accept().map(drop).unwrap_err();
    assert_eq!(
        heard.kind(),
        std::io::ErrorKind::WouldBlock,
        "a connection was made"
    );
}

/// A numeric address needs no look-up, so it is judged when the provider is set up.
#[test]
fn a_number_out_of_reach_is_refused_at_once() {
    for host in [
        "127.0.0.1",
        "[::1]",
        "[::ffff:127.0.0.1]",
        "169.254.169.254",
        "10.0.0.1",
        "0",
    ] {
        let made =
            OpenAiProvider::new(options(format!("http://{host}:1/v1"), NetworkReach::Public));
        let said = made.map(drop).expect_err(host).to_string();
        assert!(said.contains("private address"), "{host}: {said}");
        OpenAiProvider::new(options(
            format!("http://{host}:1/v1"),
            NetworkReach::Anywhere,
        ))
        .expect(host);
    }
}

/// An address within reach is reached through the same look-up.
#[tokio::test]
async fn a_name_within_reach_is_connected_to() {
    let server = CannedServer::start(vec![
        "HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n".into(),
    ]);
    let base_url = server
        .base_url(MockWire::OpenAi)
        .replace("127.0.0.1", "localhost");
    let provider = OpenAiProvider::new(options(base_url, NetworkReach::Loopback)).expect("a name");
    let failure = ask(&provider, &request("Hi")).await.0.unwrap_err();
    assert_eq!(failure.code, "http_400", "{failure:?}");
    assert_eq!(server.requests.try_iter().count(), 1);
}

/// Whole runs of the command. Kind: this machine by number, by name and below a path, granted and
/// not.
#[test]
fn a_strict_policy_keeps_a_tenant_off_this_machine() {
    let judged = JudgedProject::new(
        &ProjectPlan::default(),
        answer_in_order(vec![text_reply("ready")]),
    );
    let address = judged.server.address();
    let named = address.replace("127.0.0.1", "localhost");
    let policy = judged.project.path().with_extension("policy.yaml");
    let policies = [
        ("preset: strict".to_owned(), false),
        (
            format!("preset: strict\nproviders: {{p: {{hosts: ['http://{named}']}}}}"),
            false,
        ),
        (
            format!("preset: strict\nproviders: {{p: {{hosts: ['http://{address}/v2']}}}}"),
            false,
        ),
        (
            format!("preset: strict\nproviders: {{p: {{hosts: ['http://{address}/v']}}}}"),
            false,
        ),
        (
            format!("preset: strict\nproviders: {{p: {{hosts: ['http://{address}/v1']}}}}"),
            true,
        ),
        (
            format!("preset: strict\nproviders: {{p: {{hosts: ['http://{address}']}}}}"),
            true,
        ),
        ("preset: local".to_owned(), true),
    ];
    for (at, (text, reached)) in policies.iter().enumerate() {
        std::fs::write(&policy, text).unwrap();
        let before = judged.server.requests().len();
        let id = format!("t{at}");
        let path = policy.to_str().unwrap();
        let ran = judged
            .project
            .json(&["run", "go", "--id", &id, "--policy", path]);
        let asked = judged.server.requests().len() - before;
        assert_eq!(
            (ran["status"] == "completed", asked),
            (*reached, usize::from(*reached)),
            "{text}: {ran}"
        );
    }
    std::fs::remove_file(&policy).unwrap();
}
