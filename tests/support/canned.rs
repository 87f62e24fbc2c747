//! A model server with answers written by hand, byte for byte, for behaviour that no correct server
//! shows.

use crate::llmock::MockWire;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};

/// The head of an answer that is a stream and ends with its connection.
pub const SSE: &str =
    "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n";

/// A server that reports each request that it has read.
#[derive(Debug)]
pub struct CannedServer {
    address: std::net::SocketAddr,
    /// Head and body of each request.
    pub requests: Receiver<String>,
}

impl CannedServer {
    /// Starts a server that gives the first connection the first answer, and so on, and every
    /// further one the last.
    pub fn start(answers: Vec<String>) -> Self {
        let next = std::cell::Cell::new(0);
        Self::serve(move |mut stream, requests| {
            let answer = answers.get(next.get()).or(answers.last());
            next.set(next.get() + 1);
            let _ = requests.send(read_request(&mut stream));
            let _ = stream.write_all(answer.map_or(&[], |answer| answer.as_bytes()));
        })
    }

    /// Starts a server that handles each connection with this function, one after the other, until
    /// the test process ends.
    pub fn serve(each: impl Fn(TcpStream, &Sender<String>) + Send + 'static) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
        let address = listener.local_addr().expect("an address");
        let (sender, requests) = channel();
        std::thread::spawn(move || {
            listener
                .incoming()
                .flatten()
                .for_each(|stream| each(stream, &sender))
        });
        Self { address, requests }
    }

    /// Its `base_url` for one wire.
    pub fn base_url(&self, wire: MockWire) -> String {
        match wire {
            MockWire::OpenAi => format!("http://{}/v1", self.address),
            MockWire::Anthropic => format!("http://{}", self.address),
        }
    }
}

/// Reads head and body of one request.
pub fn read_request(stream: &mut TcpStream) -> String {
    let (mut bytes, mut buffer) = (Vec::new(), [0; 4096]);
    loop {
        let read = stream.read(&mut buffer).unwrap_or(0);
        bytes.extend_from_slice(&buffer[..read]);
        let text = String::from_utf8_lossy(&bytes);
        let length = text
            .split("content-length: ")
            .nth(1)
            .and_then(|rest| rest.split("\r\n").next());
        let length = length
            .and_then(|length| length.parse::<usize>().ok())
            .unwrap_or(0);
        let body = text.split_once("\r\n\r\n").map(|(_, body)| body.len());
        if read == 0 || body.is_some_and(|body| body >= length) {
            return text.into_owned();
        }
    }
}
