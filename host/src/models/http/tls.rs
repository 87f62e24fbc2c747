//! TLS of the HTTP client: rustls with ring and the certificates that the system trusts, and
//! nothing of it global.

use rustls::ClientConfig;
use rustls_platform_verifier::BuilderVerifierExt;
use std::error::Error;
use std::sync::Arc;

/// The configuration of a client. For plain `http` no certificates are looked for: a machine
/// without any must still reach its local server.
pub(super) fn config(https: bool) -> Result<ClientConfig, rustls::Error> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder =
        ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    let mut config = if https {
        builder.with_platform_verifier()?.with_no_client_auth()
    } else {
        builder
            .with_root_certificates(rustls::RootCertStore::empty())
            .with_no_client_auth()
    };
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}

/// Why the server's certificate was refused; `None` if it was not.
pub(super) fn certificate_problem(error: &dyn Error) -> Option<String> {
    let mut source = error.source();
    while let Some(cause) = source {
        if let Some(rustls::Error::InvalidCertificate(problem)) = tls_error(cause) {
            return Some(problem.to_string());
        }
        source = cause.source();
    }
    None
}

/// Returns true if the server's first bytes were none of TLS.
pub(super) fn is_plain_server(error: &dyn Error) -> bool {
    let mut source = error.source();
    while let Some(cause) = source {
        if let Some(rustls::Error::InvalidMessage(_)) = tls_error(cause) {
            return true;
        }
        source = cause.source();
    }
    false
}

/// The error of TLS that this one is, or that it wraps: an error of input and output names what it
/// wraps as no source, and may wrap another of its kind.
fn tls_error<'a>(cause: &'a (dyn Error + 'static)) -> Option<&'a rustls::Error> {
    match cause.downcast_ref::<std::io::Error>() {
        Some(io) => tls_error(io.get_ref()?),
        None => cause.downcast_ref(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;

    /// Symptom: a certificate that is not trusted was tried four times. Cause: it was looked for
    /// behind one wrapper of input and output, and the client library makes two. Fix: all are
    /// opened.
    #[test]
    fn a_refused_certificate_is_found_behind_any_wrapper() {
        #[derive(Debug, thiserror::Error)]
        #[error("outer")]
        struct Outer(#[source] io::Error);
        let refused = || rustls::Error::InvalidCertificate(rustls::CertificateError::Expired);
        let once = io::Error::other(refused());
        let twice = io::Error::other(io::Error::other(refused()));
        let other = io::Error::other(rustls::Error::HandshakeNotComplete);
        for (error, found) in [(once, true), (twice, true), (other, false)] {
            assert_eq!(certificate_problem(&Outer(error)).is_some(), found);
        }
    }
}
