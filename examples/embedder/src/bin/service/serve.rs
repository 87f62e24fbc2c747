//! The protocol: one request a line, one line of JSON for an answer.
//!
//! `TENANT run DIRECTIVE INPUTS`, where INPUTS is a JSON object, and `TENANT resume THREAD`. Here
//! the line names the tenant; in a real service the credentials of the connection must, and nothing
//! else.

use crate::tenants::{TenantMap, error_answer};
use serde_json::Value;
use std::io;
use std::sync::Arc;
use threadkeep::driver::{StopLevel, StopReceiver};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

/// Longest request. Of a longer line nothing more is read.
const LINE_BYTES_MAX: u64 = 64 << 10;
/// Most connections at the same time.
const CONNECTIONS_MAX: usize = 256;

/// Serves connections until `end`, and returns those that are still open. Once `stop` is raised
/// they take no further request.
pub async fn accept(
    listener: TcpListener,
    tenants: &Arc<TenantMap>,
    stop: &StopReceiver,
    end: impl Future<Output = ()>,
) -> JoinSet<io::Result<()>> {
    let mut end = std::pin::pin!(end);
    let mut connections = JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {}
        tokio::select! {
            () = &mut end => return connections,
            Some(_) = connections.join_next(), if connections.len() >= CONNECTIONS_MAX => {}
            Ok((stream, _)) = listener.accept(), if connections.len() < CONNECTIONS_MAX => {
                connections.spawn(serve_connection(stream, Arc::clone(tenants), stop.clone()));
            }
        }
    }
}

async fn serve_connection(
    stream: TcpStream,
    tenants: Arc<TenantMap>,
    mut stop: StopReceiver,
) -> io::Result<()> {
    let (reader, mut writer) = stream.into_split();
    let mut reader = BufReader::new(reader);
    loop {
        let mut line = Vec::new();
        let mut limited = (&mut reader).take(LINE_BYTES_MAX);
        let read = tokio::select! {
            biased;
            () = stop.wait_for_level(StopLevel::Now) => return Ok(()),
            read = limited.read_until(b'\n', &mut line) => read?,
        };
        if read == 0 {
            return Ok(());
        }
        let answer = match String::from_utf8(line) {
            Ok(line) if line.ends_with('\n') => handle_request(line.trim(), &tenants).await,
            _ => error_answer("a request is one line of UTF-8, at most 64 KiB long"),
        };
        writer.write_all(format!("{answer}\n").as_bytes()).await?;
    }
}

async fn handle_request(line: &str, tenants: &TenantMap) -> Value {
    let mut words = line.splitn(4, ' ');
    let (tenant, verb, name) = (words.next(), words.next(), words.next());
    let inputs = words.next().unwrap_or("{}");
    let Some(tenant) = tenant.and_then(|name| tenants.get(name)) else {
        return error_answer("there is no such tenant");
    };
    let tenant = match tenant {
        Ok(tenant) => tenant,
        Err(error) => return error_answer(error),
    };
    if let Err(error) = tenant.ensure_recovered().await {
        return error_answer(&error.to_string());
    }
    match (verb, name) {
        (Some("run"), Some(directive)) => tenant.run(directive, inputs).await,
        (Some("resume"), Some(thread)) => tenant.resume(thread).await,
        _ => error_answer("say TENANT run DIRECTIVE INPUTS, or TENANT resume THREAD"),
    }
}
