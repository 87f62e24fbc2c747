//! A server with an untrusted certificate.

use super::judged_project::ProjectPlan;
use std::io::Read;
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Starts a TLS server with a self-signed certificate; returns its port and its count of
/// connections.
fn start_server() -> (u16, Arc<AtomicU64>) {
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]);
    let made = made.expect("a certificate");
    let key = rustls::pki_types::PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("the usual versions")
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key.into());
    let config = Arc::new(config.expect("a certificate and its key"));
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
    let port = listener.local_addr().expect("an address").port();
    let seen = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&seen);
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            count.fetch_add(1, Ordering::SeqCst);
            let _ = stream.set_read_timeout(Some(Duration::from_secs(10)));
            let connection = rustls::ServerConnection::new(Arc::clone(&config));
            let mut tls = rustls::StreamOwned::new(connection.expect("a connection"), stream);
            let _ = tls.read(&mut [0; 64]);
        }
    });
    (port, seen)
}

/// Symptom: a certificate that is not trusted was reported as an unreachable server. Fix: it is
/// named, with its address and a remedy, and the call is not repeated. Kind: permanent refusals
/// before anything is sent.
#[test]
fn a_certificate_that_is_not_trusted_is_permanent_and_named() {
    let (port, seen) = start_server();
    let project = ProjectPlan::default().make_project("127.0.0.1:1");
    project.write(
        ".ai/config/models.yaml",
        &format!(
            "providers: {{p: {{wire: openai, base_url: \"https://localhost:{port}/v1\"}}}}\n\
             models: {{m: {{provider: p, prices: {{input: 1, output: 2}}}}}}\n\
             tiers: {{default: m}}\n"
        ),
    );
    let document = project.json(&["run", "go", "--id", "t"]);
    let cause = &document["cause"];
    assert_eq!(cause["code"], "provider_permanent", "{document}");
    let message = cause["message"].as_str().unwrap_or_default();
    for word in [
        "certificate",
        &format!("https://localhost:{port}/v1/chat/completions"),
        "UnknownIssuer",
        "authority",
    ] {
        assert!(message.contains(word), "{word}: {message}");
    }
    assert_eq!(document["cost"]["spend"], "0.00", "{document}");
    assert_eq!(seen.load(Ordering::SeqCst), 1, "it is asked once");
}
