//! Providers over `wasi:http`: one request a call, its answer read as natively.
//!
//! There is no runtime. A wait blocks where bytes are read, and not beyond the deadline that the
//! reader has set: then the read is left pending, which is its time-out.

use futures_util::stream::{self, Stream};
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};
use threadkeep_adapters::models::wire::{
    AnswerHead, AnswerTimer, ExchangeFault, ModelWire, ProviderAnswer, ProviderProfile,
};
use threadkeep_adapters::models::{CompletionRequest, ModelCompletion, ModelFailure};
use wasip2::clocks::monotonic_clock::subscribe_duration;
use wasip2::http::outgoing_handler;
use wasip2::http::types::{
    ErrorCode, Fields, FutureIncomingResponse, IncomingBody, IncomingResponse, Method,
    OutgoingBody, OutgoingRequest, RequestOptions, Scheme,
};
use wasip2::io::poll::{Pollable, poll};
use wasip2::io::streams::{InputStream, StreamError};

/// The name by which the bundle calls itself.
const USER_AGENT: &str = concat!("threadkeep/", env!("CARGO_PKG_VERSION"));

/// Most bytes that are read at once.
const READ_BYTES: u64 = 64 << 10;

/// An answer whose body is read while the caller waits.
type BlockingAnswer = ProviderAnswer<AnswerBytes, BlockingTimer>;

/// The body of an answer as it comes.
type AnswerBytes = Pin<Box<dyn Stream<Item = Result<Vec<u8>, ()>> + Send>>;

/// Makes one call of at most `longest`, on the wire that the profile is of.
pub fn complete<W: ModelWire>(
    profile: &ProviderProfile,
    request: &CompletionRequest,
    longest: Duration,
) -> Result<ModelCompletion, ModelFailure> {
    let last = Instant::now() + longest;
    let send = |body: Vec<u8>| std::future::ready(send_request(profile, &body, last));
    let exchange = profile.exchange::<W, _, _, _, _>(request, &|_| {}, send);
    crate::model::block_on(exchange).map_err(|failure| {
        let is_late = matches!(failure.code.as_str(), "timeout" | "stalled");
        match is_late && Instant::now() >= last {
            true => name_call_time(failure, longest),
            false => failure,
        }
    })
}

/// Names the time of the whole call as the one that is over, as the native host does: the wire
/// knows only the times of its own waits.
fn name_call_time(failure: ModelFailure, longest: Duration) -> ModelFailure {
    let seconds = longest.as_millis().div_ceil(1_000);
    ModelFailure {
        code: "timeout".to_owned(),
        message: format!(
            "the model's reply was not whole after {seconds} s, the time of this call"
        ),
        ..failure
    }
}

fn send_request(
    profile: &ProviderProfile,
    body: &[u8],
    last: Instant,
) -> Result<BlockingAnswer, ExchangeFault> {
    let times = profile.times();
    let deadline = last.min(Instant::now() + times.answer);
    let request = make_request(profile, body.len())?;
    let outgoing = request.body().map_err(|()| ExchangeFault::Disconnected)?;
    let options = RequestOptions::new();
    // A host that does not know a time-out says so, and has its own.
    let _ = options.set_connect_timeout(Some(nanos(times.connect)));
    let _ = options.set_first_byte_timeout(Some(nanos(times.answer)));
    let _ = options.set_between_bytes_timeout(Some(nanos(times.idle)));
    let response = outgoing_handler::handle(request, Some(options));
    let response = response.map_err(|code| send_fault(&code, times.answer))?;
    // Where the body cannot be written, the response says why.
    if write_body(&outgoing, body, deadline).is_ok() {
        let _ = OutgoingBody::finish(outgoing, None);
    }
    let response = await_response(&response, deadline, times.answer)?;
    open_answer(response, last)
}

fn make_request(profile: &ProviderProfile, bytes: usize) -> Result<OutgoingRequest, ExchangeFault> {
    let refused = |what: &str| ExchangeFault::Connect {
        problem: format!("the host takes no such {what}"),
    };
    let headers = profile.headers().iter();
    let mut headers: Vec<(String, Vec<u8>)> = headers
        .map(|(name, value)| (name.as_str().to_owned(), value.as_bytes().to_vec()))
        .collect();
    headers.push(("content-length".to_owned(), bytes.to_string().into_bytes()));
    headers.push(("user-agent".to_owned(), USER_AGENT.into()));
    let headers = Fields::from_list(&headers).map_err(|_| refused("headers"))?;
    let request = OutgoingRequest::new(headers);
    let url = profile.url();
    let scheme = match url.scheme() {
        "https" => Scheme::Https,
        _ => Scheme::Http,
    };
    let path = match url.query() {
        Some(query) => format!("{}?{query}", url.path()),
        None => url.path().to_owned(),
    };
    let made = request
        .set_method(&Method::Post)
        .and_then(|()| request.set_scheme(Some(&scheme)))
        .and_then(|()| request.set_authority(Some(url.authority())))
        .and_then(|()| request.set_path_with_query(Some(&path)));
    made.map_err(|()| refused("address"))?;
    Ok(request)
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Writes the body as the host takes it. The error is that it takes no more.
fn write_body(outgoing: &OutgoingBody, body: &[u8], deadline: Instant) -> Result<(), ()> {
    let stream = outgoing.write()?;
    let mut rest = body;
    while !rest.is_empty() {
        let room = stream.check_write().map_err(drop)?;
        if room == 0 {
            await_until(&stream.subscribe(), deadline).ok_or(())?;
            continue;
        }
        let size = usize::try_from(room).unwrap_or(usize::MAX).min(rest.len());
        let (now, later) = rest.split_at(size);
        stream.write(now).map_err(drop)?;
        rest = later;
    }
    stream.flush().map_err(drop)
}

fn await_response(
    response: &FutureIncomingResponse,
    deadline: Instant,
    longest: Duration,
) -> Result<IncomingResponse, ExchangeFault> {
    loop {
        match response.get() {
            Some(Ok(Ok(response))) => return Ok(response),
            Some(Ok(Err(code))) => return Err(send_fault(&code, longest)),
            Some(Err(())) => return Err(ExchangeFault::Disconnected),
            None => await_until(&response.subscribe(), deadline)
                .ok_or(ExchangeFault::Timeout(longest))?,
        }
    }
}

/// Waits until the host is ready; `None` if the deadline passes first.
fn await_until(ready: &Pollable, deadline: Instant) -> Option<()> {
    let left = deadline.saturating_duration_since(Instant::now());
    let timer = subscribe_duration(nanos(left));
    let events = poll(&[ready, &timer]);
    events.contains(&0).then_some(())
}

/// The fault of a request that was not sent as a whole: nothing was sent if no connection was made.
/// `longest` is the time that the host was given for the answer to begin.
fn send_fault(code: &ErrorCode, longest: Duration) -> ExchangeFault {
    let problem = match code {
        ErrorCode::DnsTimeout => "the name of the server was not resolved in time",
        ErrorCode::DnsError(_) => "the name of the server cannot be resolved",
        ErrorCode::DestinationNotFound => "there is no such server",
        ErrorCode::DestinationUnavailable => "the server is not there",
        ErrorCode::DestinationIpProhibited => "the host does not let its address be reached",
        ErrorCode::DestinationIpUnroutable => "no route leads to its address",
        ErrorCode::ConnectionRefused => "the connection was refused",
        ErrorCode::ConnectionTimeout => "no connection was made in time",
        ErrorCode::ConnectionLimitReached => "the host makes no more connections",
        ErrorCode::HttpRequestDenied => "the host does not let the request be sent",
        ErrorCode::HttpRequestUriInvalid => "the host takes no such address",
        // `wasmtime` answers this for a certificate that it does not trust, too.
        ErrorCode::TlsProtocolError
        | ErrorCode::TlsCertificateError
        | ErrorCode::TlsAlertReceived(_) => return ExchangeFault::TlsFailed,
        ErrorCode::HttpResponseTimeout | ErrorCode::ConnectionReadTimeout => {
            return ExchangeFault::Timeout(longest);
        }
        _ => return ExchangeFault::Disconnected,
    };
    ExchangeFault::Connect {
        problem: problem.to_owned(),
    }
}

fn open_answer(response: IncomingResponse, last: Instant) -> Result<BlockingAnswer, ExchangeFault> {
    let headers = response.headers();
    let header = |name: &str| {
        let value = headers.get(name).into_iter().next()?;
        String::from_utf8(value).ok()
    };
    let head = AnswerHead::new(response.status(), header);
    drop(headers);
    let body = response
        .consume()
        .map_err(|()| ExchangeFault::Disconnected)?;
    let stream = body.stream().map_err(|()| ExchangeFault::Disconnected)?;
    let timer = BlockingTimer {
        last,
        deadline: Arc::new(Mutex::new(last)),
    };
    let mut open = OpenAnswer {
        stream,
        _body: body,
        _response: response,
        timer: timer.clone(),
    };
    Ok(ProviderAnswer {
        head,
        bytes: Box::pin(stream::poll_fn(move |_| open.read_chunk())),
        timer,
    })
}

/// An answer whose body is being read. Fields are dropped in this order.
struct OpenAnswer {
    stream: InputStream,
    _body: IncomingBody,
    _response: IncomingResponse,
    timer: BlockingTimer,
}

impl OpenAnswer {
    /// Reads what has come, or waits for more until the deadline.
    fn read_chunk(&mut self) -> Poll<Option<Result<Vec<u8>, ()>>> {
        loop {
            match self.stream.read(READ_BYTES) {
                Ok(bytes) if bytes.is_empty() => {
                    let deadline = self.timer.current_deadline();
                    if await_until(&self.stream.subscribe(), deadline).is_none() {
                        return Poll::Pending;
                    }
                }
                Ok(bytes) => return Poll::Ready(Some(Ok(bytes))),
                Err(StreamError::Closed) => return Poll::Ready(None),
                Err(StreamError::LastOperationFailed(_)) => return Poll::Ready(Some(Err(()))),
            }
        }
    }
}

/// Tells the reads of an answer how long they may block.
#[derive(Debug, Clone)]
struct BlockingTimer {
    /// The end of the whole call.
    last: Instant,
    deadline: Arc<Mutex<Instant>>,
}

impl BlockingTimer {
    fn current_deadline(&self) -> Instant {
        *self.deadline.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AnswerTimer for BlockingTimer {
    async fn run_until<F: Future + Send>(&self, deadline: Instant, future: F) -> Option<F::Output> {
        *self.deadline.lock().unwrap_or_else(PoisonError::into_inner) = deadline.min(self.last);
        // A read that is still pending has waited until the deadline.
        match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(output) => Some(output),
            Poll::Pending => None,
        }
    }
}
