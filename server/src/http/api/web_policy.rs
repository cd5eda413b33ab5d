//! Web policy: the web pages that may use this server, and the permissions of this server's pages.
//!
//! A browser sends requests for any page that it shows. Three rules keep foreign pages out:
//!
//! - A server that listens on loopback serves only known host names. Otherwise a foreign name that resolves
//!   to loopback would give a foreign page the same origin as the server (DNS rebinding).
//! - A request that may write is rejected if its `Origin` is foreign or its `Sec-Fetch-Site` is `cross-site`.
//!   Programs send neither header.
//! - Pages and graphs run no script but their own, and no foreign page frames them.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, LazyLock};

use athanor_chassis::{ErrorCode, Status};
use athanor_profile::render::svg;
use axum::body::Body;
use axum::http::header::{CONTENT_SECURITY_POLICY, CONTENT_TYPE, HOST, ORIGIN, X_CONTENT_TYPE_OPTIONS};
use axum::http::{HeaderValue, Method, Request, Response};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use ring::digest;

const SEC_FETCH_SITE: &str = "sec-fetch-site";
const NOSNIFF_VALUE: HeaderValue = HeaderValue::from_static("nosniff");
const PAGE_POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
);

/// Policy of graphs, which have one script.
static GRAPH_POLICY: LazyLock<HeaderValue> = LazyLock::new(|| {
    let hash = BASE64_STANDARD.encode(digest::digest(&digest::SHA256, svg::GRAPH_SCRIPT.as_bytes()));
    let policy = format!(
        "default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{hash}'; base-uri 'none'; form-action 'none'; \
         frame-ancestors 'none'"
    );
    HeaderValue::from_str(&policy).expect("the policy is ASCII")
});

/// Rules for requests of browsers. Cheap to clone.
#[derive(Clone, Debug)]
pub struct WebPolicy {
    is_local: bool,
    allowed_hosts: Arc<[String]>,
}

/// Name and port of a server, as in a `Host` header or an origin.
#[derive(Debug, PartialEq, Eq)]
struct HostAndPort<'a> {
    name: &'a str,
    port: Option<&'a str>,
}

impl<'a> HostAndPort<'a> {
    fn parse(text: &'a str) -> Self {
        let text = text.rsplit_once('@').map_or(text, |(_, rest)| rest);
        let is_port = |port: &str| port.bytes().all(|byte| byte.is_ascii_digit());
        let (name, port) = match text.rsplit_once(':') {
            Some((name, port)) if is_port(port) && (!name.contains(':') || name.ends_with(']')) => {
                (name, Some(port).filter(|port| !port.is_empty()))
            }
            _ => (text, None),
        };
        let name = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
        Self { name: name.strip_suffix('.').unwrap_or(name), port }
    }

    fn is_loopback(&self) -> bool {
        let is_localhost = |name: &str| name == "localhost" || name.ends_with(".localhost");
        match self.name.parse::<IpAddr>() {
            Ok(address) => address.to_canonical().is_loopback(),
            Err(_) => is_localhost(&self.name.to_ascii_lowercase()),
        }
    }
}

impl WebPolicy {
    /// Returns the policy of a server that listens on these addresses and is known by these names.
    pub fn new(listens: &[SocketAddr], allowed_hosts: &[String]) -> Self {
        let is_local = listens.iter().all(|address| address.ip().to_canonical().is_loopback());
        let allowed_hosts =
            allowed_hosts.iter().map(|host| HostAndPort::parse(host).name.to_ascii_lowercase());
        Self { is_local, allowed_hosts: allowed_hosts.collect() }
    }

    /// Rejects a request that a foreign web page made.
    pub fn check(&self, request: &Request<Body>) -> Result<(), Status> {
        let hosts = || {
            let sent = request.headers().get_all(HOST).iter();
            let sent = sent.map(|value| value.to_str().unwrap_or("?"));
            sent.chain(request.uri().authority().map(|authority| authority.as_str()))
        };
        if self.is_local {
            hosts().try_for_each(|host| self.check_host(host))?;
        }
        if !matches!(*request.method(), Method::GET | Method::HEAD | Method::OPTIONS) {
            self.check_origin(request, hosts().next())?;
        }
        Ok(())
    }

    fn check_host(&self, host: &str) -> Result<(), Status> {
        let authority = HostAndPort::parse(host);
        if host.is_empty() || authority.is_loopback() || self.is_allowed(&authority) {
            return Ok(());
        }
        let message = format!(
            "host {host:?} is refused, because this server listens on loopback only; use localhost or 127.0.0.1, or \
             add the host to allowed_hosts"
        );
        Err(Status::new(ErrorCode::PermissionDenied, message).with_reason("unknown_host"))
    }

    fn is_allowed(&self, authority: &HostAndPort<'_>) -> bool {
        self.allowed_hosts.iter().any(|allowed| authority.name.eq_ignore_ascii_case(allowed))
    }

    fn check_origin(&self, request: &Request<Body>, host: Option<&str>) -> Result<(), Status> {
        let header = |name: &str| request.headers().get(name).map(|value| value.to_str().unwrap_or("?"));
        let site = header(SEC_FETCH_SITE);
        let origin = header(ORIGIN.as_str());
        if origin.is_none() && site != Some("cross-site") {
            return Ok(());
        }
        let is_known = origin.is_some_and(|origin| self.is_own(origin, host));
        // Behind a proxy the origin contains the proxy's name, so the browser's `Sec-Fetch-Site` decides.
        if is_known || site == Some("same-origin") {
            return Ok(());
        }
        let from = origin.map_or_else(|| "another site".to_owned(), |origin| format!("{origin:?}"));
        let message = format!(
            "write request from a web page of {from} is refused, because its origin is foreign; add its host to \
             allowed_hosts if you trust the page"
        );
        Err(Status::new(ErrorCode::PermissionDenied, message).with_reason("foreign_origin"))
    }

    /// Returns whether an origin is this server's own or an allowed host.
    fn is_own(&self, origin: &str, host: Option<&str>) -> bool {
        let Some((scheme, authority)) = origin.split_once("://") else { return false };
        let origin = HostAndPort::parse(authority);
        let default_port = if scheme.eq_ignore_ascii_case("https") { "443" } else { "80" };
        let is_same = |host: &HostAndPort<'_>| {
            host.name.eq_ignore_ascii_case(origin.name)
                && host.port.unwrap_or(default_port) == origin.port.unwrap_or(default_port)
        };
        self.is_allowed(&origin) || host.is_some_and(|host| is_same(&HostAndPort::parse(host)))
    }
}

/// Adds the security headers of a response for browsers. The files of the UI have a policy of their own.
pub fn protect(response: &mut Response<Body>) {
    let content_type = response.headers().get(CONTENT_TYPE).map(HeaderValue::as_bytes).unwrap_or_default();
    let policy = match content_type {
        kind if kind.starts_with(b"text/html") => Some(PAGE_POLICY),
        kind if kind.starts_with(b"image/svg+xml") => Some(GRAPH_POLICY.clone()),
        _ => None,
    };
    response.headers_mut().insert(X_CONTENT_TYPE_OPTIONS, NOSNIFF_VALUE);
    if let Some(policy) = policy {
        response.headers_mut().entry(CONTENT_SECURITY_POLICY).or_insert(policy);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(listens: &str) -> WebPolicy {
        WebPolicy::new(&[listens.parse().unwrap()], &["profiles.example.com".to_owned()])
    }

    fn refused(policy: &WebPolicy, method: &str, headers: &[(&str, &str)]) -> Option<&'static str> {
        let mut request = Request::builder().method(method).uri("/ingest");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        policy.check(&request.body(Body::empty()).unwrap()).err().and_then(|status| status.reason)
    }

    #[test]
    fn loopback_listener_answers_known_hosts_only() {
        let known = [
            "localhost",
            "LOCALHOST:4040",
            "localhost.",
            "app.localhost:1",
            "127.0.0.1",
            "127.0.0.1:4040",
            "127.9.8.7",
            "[::1]:4040",
            "[::1]",
            "[::ffff:127.0.0.1]:1",
            "profiles.example.com",
            "Profiles.Example.com:443",
            "",
        ];
        let unknown = [
            "evil.example",
            "evil.example:4040",
            "localhost.evil.example",
            "127.0.0.1.nip.io",
            "notlocalhost",
            "10.0.0.5",
            "profiles.example.com.evil.example",
            "[::2]:1",
            "localhost:4040@evil.example",
            "x",
            "\u{e4}",
        ];
        for listens in ["127.0.0.1:4040", "[::1]:4040", "[::ffff:127.0.0.1]:4040"] {
            for host in known {
                assert_eq!(refused(&policy(listens), "GET", &[("host", host)]), None, "{host}");
            }
            for host in unknown {
                for method in ["GET", "POST"] {
                    let refused = refused(&policy(listens), method, &[("host", host)]);
                    assert_eq!(refused, Some("unknown_host"), "{host}");
                }
            }
            assert_eq!(refused(&policy(listens), "GET", &[]), None, "HTTP/1.0");
        }
        for host in known.into_iter().chain(unknown) {
            for listens in ["0.0.0.0:4040", "[::]:4040", "10.0.0.5:4040"] {
                assert_eq!(refused(&policy(listens), "POST", &[("host", host)]), None, "{host}");
            }
        }
        let absolute = |uri: &str| Request::builder().uri(uri).body(Body::empty()).unwrap();
        assert!(policy("127.0.0.1:1").check(&absolute("http://evil.example/")).is_err(), "as HTTP/2 has it");
        assert!(policy("127.0.0.1:1").check(&absolute("http://localhost:1/")).is_ok());
    }

    #[test]
    fn foreign_pages_may_not_write() {
        let host = ("host", "localhost:4040");
        for listens in ["127.0.0.1:4040", "0.0.0.0:4040"] {
            let policy = policy(listens);
            let refused = |method, headers: &[(&str, &str)]| {
                let all: Vec<_> = [host].iter().chain(headers).copied().collect();
                refused(&policy, method, &all)
            };
            for own in [
                &[][..],
                &[("origin", "http://localhost:4040")],
                &[("origin", "http://LocalHost:4040"), ("sec-fetch-site", "same-origin")],
                &[("origin", "https://profiles.example.com")],
                &[("origin", "https://proxy.example"), ("sec-fetch-site", "same-origin")],
                &[("sec-fetch-site", "none")],
                &[("sec-fetch-site", "same-origin")],
            ] {
                assert_eq!(refused("POST", own), None, "{own:?}");
            }
            for foreign in [
                &[("origin", "http://evil.example")][..],
                &[("origin", "http://localhost")],
                &[("origin", "https://localhost")],
                &[("origin", "http://localhost:3000"), ("sec-fetch-site", "same-site")],
                &[("origin", "http://evil.example"), ("sec-fetch-site", "cross-site")],
                &[("origin", "null")],
                &[("origin", "")],
                &[("sec-fetch-site", "cross-site")],
            ] {
                for method in ["POST", "PUT", "DELETE"] {
                    assert_eq!(refused(method, foreign), Some("foreign_origin"), "{foreign:?}");
                }
                assert_eq!(refused("GET", foreign), None, "the browser shows the page nothing of it");
            }
        }
        let default_port = [("host", "profiles.internal"), ("origin", "https://profiles.internal")];
        assert_eq!(super::tests::refused(&policy("0.0.0.0:1"), "POST", &default_port), None);
    }

    #[test]
    fn calls_of_the_ui_pass_from_its_own_origin_only() {
        let call = |listens: &str, headers: &[(&str, &str)]| {
            let ui = [("host", "127.0.0.1:4040"), ("athanor-ui", "1"), ("content-type", "application/json")];
            refused(&policy(listens), "POST", &[&ui[..], headers].concat())
        };
        for listens in ["127.0.0.1:4040", "0.0.0.0:4040"] {
            let own = [("origin", "http://127.0.0.1:4040"), ("sec-fetch-site", "same-origin")];
            assert_eq!(call(listens, &own), None);
            assert_eq!(call(listens, &own[..1]), None, "plain HTTP states no site");
            let proxied = [("origin", "https://profiles.internal"), ("sec-fetch-site", "same-origin")];
            assert_eq!(call(listens, &proxied), None, "a proxy changes the host");
            for site in ["cross-site", "same-site"] {
                let foreign = [("origin", "http://localhost:3000"), ("sec-fetch-site", site)];
                assert_eq!(call(listens, &foreign), Some("foreign_origin"), "{site}");
            }
        }
    }

    #[test]
    fn policy_of_the_ui_stays() {
        let mut response = Response::builder()
            .header(CONTENT_TYPE, "text/html; charset=utf-8")
            .header(CONTENT_SECURITY_POLICY, "default-src 'none'; script-src 'self'")
            .body(Body::empty())
            .unwrap();
        protect(&mut response);
        let policies = response.headers().get_all(CONTENT_SECURITY_POLICY);
        assert_eq!(policies.iter().collect::<Vec<_>>(), ["default-src 'none'; script-src 'self'"]);
    }

    #[test]
    fn pages_and_graphs_run_their_own_script_only() {
        let header = |kind: &str, name| {
            let mut response = Response::builder().header(CONTENT_TYPE, kind).body(Body::empty()).unwrap();
            protect(&mut response);
            response.headers().get(name).map(|value| value.to_str().unwrap().to_owned())
        };
        for kind in ["text/html; charset=utf-8", "image/svg+xml", "text/plain", "application/json"] {
            assert_eq!(header(kind, X_CONTENT_TYPE_OPTIONS).as_deref(), Some("nosniff"), "{kind}");
        }
        let page = header("text/html; charset=utf-8", CONTENT_SECURITY_POLICY).unwrap();
        assert!(page.contains("default-src 'none'") && !page.contains("script-src"), "{page}");
        let graph = header("image/svg+xml", CONTENT_SECURITY_POLICY).unwrap();
        assert!(graph.contains("script-src 'sha256-") && graph.contains("frame-ancestors 'none'"), "{graph}");
        assert_eq!(header("text/plain", CONTENT_SECURITY_POLICY), None);
    }
}
