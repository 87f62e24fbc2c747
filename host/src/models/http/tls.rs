//! TLS of the HTTP client: rustls with ring and the certificates that the system trusts. Nothing is
//! installed globally.

use rustls::ClientConfig;
use rustls_platform_verifier::BuilderVerifierExt;
use std::error::Error;
use std::sync::Arc;

/// Makes the configuration of a client. Plain `http` loads no certificates: a machine that has none
/// must still reach its local server.
pub(super) fn client_config(https: bool) -> Result<ClientConfig, rustls::Error> {
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

/// Returns the reason why the server's certificate was refused; `None` if it was not.
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

/// Returns true if the server's first bytes were not TLS.
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

/// Returns the TLS error that `cause` is or wraps. An I/O error does not report what it wraps as
/// its source, and may wrap another I/O error.
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

    /// Symptom: a certificate that is not trusted was tried four times. Cause: the error was
    /// searched behind one I/O wrapper, and the client library makes two. Fix: all wrappers are
    /// opened.
    #[test]
    fn a_refused_certificate_is_found_behind_any_wrapper() {
        #[derive(Debug, thiserror::Error)]
        #[error("outer")]
        struct WrapperError(#[source] io::Error);
        let refused = || rustls::Error::InvalidCertificate(rustls::CertificateError::Expired);
        let once = io::Error::other(refused());
        let twice = io::Error::other(io::Error::other(refused()));
        let other = io::Error::other(rustls::Error::HandshakeNotComplete);
        for (error, found) in [(once, true), (twice, true), (other, false)] {
            assert_eq!(certificate_problem(&WrapperError(error)).is_some(), found);
        }
    }
}
