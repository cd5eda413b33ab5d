//! Stand-in for the API server of Kubernetes: HTTP on loopback, with lists, watches and faults.

use std::collections::{BTreeSet, VecDeque};
use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use athanor_chassis::net::{LocalNet, NetStream};
use athanor_chassis::{Clock, Net, Random, TaskGroup};
use bytes::Bytes;
use http::{Request, Response, StatusCode, header};
use http_body_util::StreamBody;
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::{mpsc, watch};
use tokio_rustls::TlsAcceptor;

use crate::cluster::{Cluster, Selection, VersionExpired, is_resource, resource};

/// Bytes of one piece of a slow body.
const SLOW_PIECE_BYTES: usize = 7;
const MAX_TASKS: usize = 10_000;
/// Length of a watch if the client requests none.
const DEFAULT_WATCH_SECONDS: u64 = 1800;
/// Pieces of a body that wait for the client.
const BODY_QUEUE: usize = 16;

type Piece = Result<Frame<Bytes>, io::Error>;
type ApiResponse = Response<StreamBody<BodyStream>>;
type BodyStream = futures::stream::BoxStream<'static, Piece>;
/// Function that returns the body of a path outside of the API.
pub(crate) type ServeFile = dyn Fn(&str) -> Option<String> + Send + Sync;

/// Kind of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    List,
    Watch,
}

/// Failure of one request.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Fault {
    /// Failure status, with the seconds of Retry-After.
    Status(u16, &'static str, Option<u64>),
    /// The connection breaks in the middle of the body or of a line.
    Truncate,
    /// The body ends in its middle or in the middle of a line, as if it were complete.
    End,
    /// The body arrives in small pieces. Nothing is missing.
    Slow,
    /// The body is not what the API promises.
    Malformed,
    /// All versions before the current one are forgotten.
    Expire,
    /// Nothing is sent, not even a status.
    Hang,
}

/// Faults that a server may survive by a retry, with all that a random choice needs.
const RANDOM_FAULTS: [Fault; 9] = [
    Fault::Status(410, "Expired", None),
    Fault::Status(429, "TooManyRequests", Some(0)),
    Fault::Status(500, "InternalError", None),
    Fault::Status(503, "ServiceUnavailable", None),
    Fault::Truncate,
    Fault::End,
    Fault::Slow,
    Fault::Malformed,
    Fault::Expire,
];

/// Running server. Dropping it ends all connections.
pub(crate) struct ApiStandIn {
    pub(crate) address: SocketAddr,
    state: Arc<ApiState>,
    _tasks: TaskGroup,
}

/// Settings of a server.
#[derive(Default)]
pub(crate) struct ApiSettings {
    pub(crate) tls: Option<TlsAcceptor>,
    /// Maximum objects of a page. None for the limit that the client requests.
    pub(crate) max_page: Option<usize>,
    pub(crate) serve_file: Option<Box<ServeFile>>,
}

struct ApiState {
    cluster: Mutex<Cluster>,
    signal: watch::Sender<Signal>,
    scripted: Mutex<VecDeque<(Verb, Fault)>>,
    /// Randomness of faults and their percentage.
    random: Mutex<Option<(Random, u64)>>,
    denied: Mutex<BTreeSet<String>>,
    /// Value of the `Authorization` header that requests need.
    authorization: Mutex<Option<String>>,
    requests: Mutex<Vec<String>>,
    settings: ApiSettings,
    clock: Clock,
    tasks: TaskGroup,
}

/// State that running watches wait for.
#[derive(Clone, Copy, Default)]
struct Signal {
    version: u64,
    bookmarks: u64,
    ended_watches: u64,
}

/// Request for objects.
struct ApiRequest {
    verb: Verb,
    selection: Selection,
    query: Vec<(String, String)>,
}

impl ApiStandIn {
    /// Starts a server on loopback.
    pub(crate) async fn start(settings: ApiSettings) -> Self {
        let clock = Clock::system();
        let net = LocalNet::new(clock.clone());
        let mut listener = net.listen("127.0.0.1:0".parse().unwrap()).await.unwrap();
        let address = listener.local_address();
        let tasks = TaskGroup::new(clock.clone(), MAX_TASKS);
        let cluster = Cluster::new();
        let signal = Signal { version: cluster.version(), ..Signal::default() };
        let state = Arc::new(ApiState {
            cluster: Mutex::new(cluster),
            signal: watch::Sender::new(signal),
            scripted: Mutex::default(),
            random: Mutex::default(),
            denied: Mutex::default(),
            authorization: Mutex::default(),
            requests: Mutex::default(),
            settings,
            clock,
            tasks: tasks.clone(),
        });
        let server = Arc::clone(&state);
        let accept = async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let connection = Arc::clone(&server).serve_connection(stream);
                server.tasks.spawn("connection", connection).unwrap();
            }
        };
        tasks.spawn("accept", accept).unwrap();
        Self { address, state, _tasks: tasks }
    }

    /// URL without TLS.
    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Adds or replaces an object.
    pub(crate) fn apply(&self, object: Value) {
        self.state.change(|cluster| cluster.apply(object));
    }

    /// Deletes an object.
    pub(crate) fn delete(&self, plural: &str, namespace: &str, name: &str) {
        self.state.change(|cluster| cluster.delete(plural, namespace, name));
    }

    /// Forgets all versions before the current one.
    pub(crate) fn compact(&self) {
        self.state.cluster.lock().compact();
    }

    /// Sends a bookmark to all watches.
    pub(crate) fn send_bookmarks(&self) {
        self.state.signal.send_modify(|signal| signal.bookmarks += 1);
    }

    /// Ends all watches, as after their timeout.
    pub(crate) fn end_watches(&self) {
        self.state.signal.send_modify(|signal| signal.ended_watches += 1);
    }

    /// Lets the next request of a kind fail.
    pub(crate) fn inject(&self, verb: Verb, fault: Fault) {
        self.state.scripted.lock().push_back((verb, fault));
    }

    /// Number of faults that no request met yet.
    pub(crate) fn pending_faults(&self) -> usize {
        self.state.scripted.lock().len()
    }

    /// Lets a percentage of requests fail. Zero ends it.
    pub(crate) fn set_fault_rate(&self, random: Random, percent: u64) {
        *self.state.random.lock() = Some((random, percent));
    }

    /// Denies or allows access to a resource.
    pub(crate) fn set_denied(&self, plural: &str, is_denied: bool) {
        let mut denied = self.state.denied.lock();
        if is_denied {
            denied.insert(plural.to_owned());
        } else {
            denied.remove(plural);
        }
    }

    /// Sets the `Authorization` header that requests need from now on.
    pub(crate) fn require_authorization(&self, value: &str) {
        *self.state.authorization.lock() = Some(value.to_owned());
    }

    /// Paths with queries of all requests so far.
    pub(crate) fn requests(&self) -> Vec<String> {
        self.state.requests.lock().clone()
    }
}

impl ApiState {
    fn change(&self, change: impl FnOnce(&mut Cluster)) {
        let mut cluster = self.cluster.lock();
        change(&mut cluster);
        let version = cluster.version();
        drop(cluster);
        self.signal.send_modify(|signal| signal.version = version);
    }

    async fn serve_connection(self: Arc<Self>, stream: NetStream) {
        let stream: NetStream = match &self.settings.tls {
            None => stream,
            Some(tls) => match tls.accept(stream).await {
                Ok(stream) => Box::new(stream),
                Err(_) => return,
            },
        };
        let service = service_fn(move |request| {
            let state = Arc::clone(&self);
            async move { Ok::<_, Infallible>(state.respond(&request).await) }
        });
        // Clients close connections, and faults break them.
        let _ =
            hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
    }

    async fn respond(self: Arc<Self>, request: &Request<Incoming>) -> ApiResponse {
        let path_and_query = request.uri().to_string();
        self.requests.lock().push(path_and_query);
        let path = request.uri().path();
        let Some(request_of_objects) = parse_request(path, request.uri().query().unwrap_or_default()) else {
            let file = self.settings.serve_file.as_ref().and_then(|serve| serve(path));
            return match file {
                Some(text) => whole(StatusCode::OK, None, text),
                None => status(404, "NotFound", "the server could not find the requested resource", None),
            };
        };
        let authorization =
            request.headers().get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
        let required = self.authorization.lock().clone();
        if required.is_some() && required.as_deref() != authorization {
            return status(401, "Unauthorized", "Unauthorized", None);
        }
        let plural = request_of_objects.selection.plural.clone();
        if self.denied.lock().contains(&plural) {
            let message = format!("{plural} is forbidden: User \"agent\" cannot list resource \"{plural}\"");
            return status(403, "Forbidden", &message, None);
        }
        if !request_of_objects.parameter("sendInitialEvents").is_empty() {
            return status(422, "Invalid", "sendInitialEvents is forbidden: the feature is disabled", None);
        }
        let fault = self.take_fault(request_of_objects.verb);
        match fault {
            Some(Fault::Status(code, reason, retry_after)) => {
                return status(code, reason, "the server is currently unable to handle it", retry_after);
            }
            Some(Fault::Hang) => std::future::pending().await,
            Some(Fault::Expire) => self.cluster.lock().compact(),
            _ => {}
        }
        match request_of_objects.verb {
            Verb::List => self.list(&request_of_objects, fault),
            Verb::Watch => self.watch(request_of_objects, fault),
        }
    }

    fn take_fault(&self, verb: Verb) -> Option<Fault> {
        let mut scripted = self.scripted.lock();
        if let Some(index) = scripted.iter().position(|(of, _)| *of == verb) {
            return scripted.remove(index).map(|(_, fault)| fault);
        }
        let random = self.random.lock();
        let (random, percent) = random.as_ref()?;
        if random.next_below(100) >= *percent {
            return None;
        }
        let index = random.next_below(RANDOM_FAULTS.len() as u64);
        RANDOM_FAULTS.get(usize::try_from(index).unwrap()).copied()
    }

    fn list(&self, request: &ApiRequest, fault: Option<Fault>) -> ApiResponse {
        let limit = request.parameter("limit").parse().ok().filter(|limit| *limit > 0).unwrap_or(usize::MAX);
        let limit = self.settings.max_page.unwrap_or(limit).min(limit);
        let page = self.cluster.lock().list(&request.selection, limit, &request.parameter("continue"));
        let text = match page {
            Ok(page) => page.to_string(),
            Err(VersionExpired) => {
                return status(410, "Expired", "the provided continue parameter is too old", None);
            }
        };
        let half = text.len() / 2;
        let pieces = match fault {
            Some(Fault::Truncate) => vec![piece(&text.as_bytes()[..half]), broken()],
            Some(Fault::End) => vec![piece(&text.as_bytes()[..half])],
            Some(Fault::Malformed) => {
                vec![piece(br#"{"metadata":{"resourceVersion":"7"},"items":[{"metadata":3}]}"#)]
            }
            Some(Fault::Slow) => text.as_bytes().chunks(SLOW_PIECE_BYTES).map(piece).collect(),
            _ => vec![piece(text.as_bytes())],
        };
        let body: BodyStream = Box::pin(futures::stream::iter(pieces));
        json_response(StatusCode::OK, body)
    }

    fn watch(self: Arc<Self>, request: ApiRequest, fault: Option<Fault>) -> ApiResponse {
        let (sender, receiver) = mpsc::channel(BODY_QUEUE);
        let state = Arc::clone(&self);
        let send = async move {
            let closed = sender.clone();
            tokio::select! {
                () = state.send_events(&request, fault, sender) => {}
                () = closed.closed() => {}
            }
        };
        self.tasks.spawn("watch", send).unwrap();
        let body: BodyStream = Box::pin(futures::stream::unfold(receiver, async |mut receiver| {
            let piece = receiver.recv().await?;
            if piece.is_err() {
                // The connection sends what is buffered, then it breaks.
                tokio::task::yield_now().await;
            }
            Some((piece, receiver))
        }));
        json_response(StatusCode::OK, body)
    }

    /// Sends the events of a watch until it ends.
    async fn send_events(&self, request: &ApiRequest, fault: Option<Fault>, sender: mpsc::Sender<Piece>) {
        let mut signal = self.signal.subscribe();
        let first = *signal.borrow_and_update();
        let mut seen = first;
        let seconds = request.parameter("timeoutSeconds").parse().unwrap_or(DEFAULT_WATCH_SECONDS);
        let end = self.clock.sleep(Duration::from_secs(seconds));
        tokio::pin!(end);
        let requested: u64 = request.parameter("resourceVersion").parse().unwrap_or_default();
        // Without a version, a watch begins with all objects.
        let (mut version, mut lines) = match requested {
            0 => self.cluster.lock().added_events(&request.selection),
            version => (version, Vec::new()),
        };
        loop {
            let events = {
                let cluster = self.cluster.lock();
                let events = cluster.events_after(&request.selection, version);
                version = cluster.version();
                events
            };
            let is_expired = events.is_err();
            match events {
                Ok(events) => lines.extend(events.iter().map(Value::to_string)),
                Err(VersionExpired) => lines.push(expired_event()),
            }
            let bookmarks = signal.borrow().bookmarks;
            if bookmarks != seen.bookmarks && !is_expired {
                lines.push(bookmark_event(&request.selection.plural, version));
            }
            if send_lines(&lines, fault, &sender).await.is_none() || is_expired {
                return;
            }
            lines.clear();
            seen.bookmarks = bookmarks;
            if signal.borrow().ended_watches != first.ended_watches {
                return;
            }
            tokio::select! {
                changed = signal.changed() => if changed.is_err() { return },
                () = &mut end => return,
            }
        }
    }
}

impl ApiRequest {
    fn parameter(&self, name: &str) -> String {
        let found = self.query.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.clone()).unwrap_or_default()
    }
}

/// Sends lines with a fault. Returns None if the watch is over.
async fn send_lines(lines: &[String], fault: Option<Fault>, sender: &mpsc::Sender<Piece>) -> Option<()> {
    let mut text = lines.iter().map(|line| format!("{line}\n")).collect::<String>();
    if text.is_empty() {
        return Some(());
    }
    // The last line is incomplete, those before are not.
    let middle = text.len() - lines.last()?.len() / 2;
    match fault {
        Some(Fault::Truncate) => {
            sender.send(piece(&text.as_bytes()[..middle])).await.ok()?;
            sender.send(broken()).await.ok()?;
            return None;
        }
        Some(Fault::End) => {
            sender.send(piece(&text.as_bytes()[..middle])).await.ok()?;
            return None;
        }
        Some(Fault::Malformed) => text.insert_str(0, "{\"type\":\"ADDED\",\"object\":[]}\n"),
        Some(Fault::Slow) => {
            for part in text.as_bytes().chunks(SLOW_PIECE_BYTES) {
                sender.send(piece(part)).await.ok()?;
            }
            return Some(());
        }
        _ => {}
    }
    sender.send(piece(text.as_bytes())).await.ok()
}

/// Returns the request for objects that a path and query stand for.
fn parse_request(path: &str, query: &str) -> Option<ApiRequest> {
    let parts: Vec<&str> = path.split('/').skip(1).collect();
    let (api_version, rest) = match parts.as_slice() {
        ["api", version, rest @ ..] => ((*version).to_owned(), rest),
        ["apis", group, version, rest @ ..] => (format!("{group}/{version}"), rest),
        _ => return None,
    };
    let (namespace, plural) = match rest {
        ["namespaces", namespace, plural] => (Some((*namespace).to_owned()), *plural),
        [plural] => (None, *plural),
        _ => return None,
    };
    if !is_resource(plural, &api_version) {
        return None;
    }
    let query: Vec<(String, String)> = form_urlencoded::parse(query.as_bytes()).into_owned().collect();
    let selector = |name: &str| -> Vec<(String, String)> {
        let values = query.iter().filter(|(known, _)| known == name);
        let terms = values.flat_map(|(_, value)| value.split(',')).filter(|term| !term.is_empty());
        terms
            .map(|term| term.split_once('=').expect("a term is name=value"))
            .map(|(k, v)| (k.to_owned(), v.to_owned()))
            .collect()
    };
    let selection = Selection {
        plural: plural.to_owned(),
        namespace,
        labels: selector("labelSelector"),
        fields: selector("fieldSelector"),
    };
    // The API takes each value but these two for true.
    let is_true = |value: &str| !value.eq_ignore_ascii_case("false") && value != "0";
    let is_watch = query.iter().any(|(name, value)| name == "watch" && is_true(value));
    let verb = if is_watch { Verb::Watch } else { Verb::List };
    Some(ApiRequest { verb, selection, query })
}

fn bookmark_event(plural: &str, version: u64) -> String {
    let (kind, api_version) = resource(plural);
    let metadata = json!({"resourceVersion": version.to_string(), "creationTimestamp": null});
    json!({"type": "BOOKMARK", "object": {"kind": kind, "apiVersion": api_version, "metadata": metadata}})
        .to_string()
}

fn expired_event() -> String {
    json!({"type": "ERROR", "object": status_object(410, "Expired", "too old resource version")}).to_string()
}

fn status_object(code: u16, reason: &str, message: &str) -> Value {
    json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": message, "reason": reason, "code": code,
    })
}

fn status(code: u16, reason: &str, message: &str, retry_after: Option<u64>) -> ApiResponse {
    let text = status_object(code, reason, message).to_string();
    whole(StatusCode::from_u16(code).unwrap(), retry_after, text)
}

fn whole(code: StatusCode, retry_after: Option<u64>, text: String) -> ApiResponse {
    let body: BodyStream = Box::pin(futures::stream::iter([Ok(Frame::data(Bytes::from(text)))]));
    let mut response = json_response(code, body);
    if let Some(seconds) = retry_after {
        response.headers_mut().insert(header::RETRY_AFTER, seconds.into());
    }
    response
}

fn json_response(code: StatusCode, body: BodyStream) -> ApiResponse {
    let response = Response::builder().status(code).header(header::CONTENT_TYPE, "application/json");
    response.body(StreamBody::new(body)).unwrap()
}

fn piece(bytes: &[u8]) -> Piece {
    Ok(Frame::data(Bytes::copy_from_slice(bytes)))
}

fn broken() -> Piece {
    Err(io::ErrorKind::ConnectionReset.into())
}
