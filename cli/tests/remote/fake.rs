//! A server that writes down what it is asked and answers as the wire has it.

use std::sync::Arc;

use athanor_profile::formats::pprof;
use axum::Router;
use axum::body::{Body, Bytes, to_bytes};
use axum::http::{HeaderMap, Request, Response};
use parking_lot::Mutex;
use prost::Message;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;

/// One request, decompressed.
#[derive(Clone)]
pub struct Seen {
    pub method: String,
    /// Query of the URL.
    pub query: String,
    pub headers: HeaderMap,
    pub body: Bytes,
}

/// Status, headers, body.
pub struct Answer(pub u16, pub Vec<(&'static str, String)>, pub Vec<u8>);

pub struct Server {
    // It runs as long as this lives.
    _runtime: Runtime,
    pub url: String,
    seen: Arc<Mutex<Vec<Seen>>>,
}

impl Seen {
    pub fn read<M: Message + Default>(&self) -> M {
        M::decode(self.body.clone()).unwrap()
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }
}

impl Answer {
    pub fn of(message: &impl Message) -> Self {
        Answer(200, vec![("content-type", "application/proto".into())], message.encode_to_vec())
    }

    pub fn error(status: u16, code: &str, message: &str) -> Self {
        let body = serde_json::json!({ "code": code, "message": message }).to_string();
        Answer(status, vec![("content-type", "application/json".into())], body.into_bytes())
    }

    pub fn with(mut self, name: &'static str, value: &str) -> Self {
        self.1.push((name, value.to_owned()));
        self
    }
}

impl Server {
    /// Answers a request by itself and by how many came before it.
    #[expect(clippy::disallowed_methods, reason = "a foreign server")]
    pub fn start(answer: impl Fn(&Seen, usize) -> Answer + Send + Sync + 'static) -> Self {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let (all, answer) = (Arc::clone(&seen), Arc::new(answer));
        let handler = move |request: Request<Body>| {
            let (all, answer) = (Arc::clone(&all), Arc::clone(&answer));
            async move {
                let method = request.uri().path().trim_start_matches('/').to_owned();
                let query = request.uri().query().unwrap_or_default().to_owned();
                let headers = request.headers().clone();
                let mut body = to_bytes(request.into_body(), usize::MAX).await.unwrap();
                if headers.get("content-encoding").is_some_and(|value| value == "gzip") {
                    body = pprof::inflate(&body, usize::MAX >> 1).unwrap().into();
                }
                let one = Seen { method, query, headers, body };
                let before = {
                    let mut all = all.lock();
                    all.push(one.clone());
                    all.len() - 1
                };
                let Answer(status, headers, body) = answer(&one, before);
                let response = Response::builder().status(status);
                let response = headers
                    .into_iter()
                    .fold(response, |response, (name, value)| response.header(name, value));
                response.body(Body::from(body)).unwrap()
            }
        };
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        runtime.spawn(async move { axum::serve(listener, Router::new().fallback(handler)).await });
        Server { _runtime: runtime, url, seen }
    }

    /// What was asked so far.
    pub fn seen(&self) -> Vec<Seen> {
        self.seen.lock().clone()
    }
}
