//! Parts of the pages that the server renders: style, escaping, and pages of errors.

use athanor_http_server::encoding::ErrorText;
use athanor_profile::render::printable::replace_control;
use axum::body::Body;
use axum::http::header::{ACCEPT, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE};
use axum::http::{HeaderMap, HeaderValue, Method, Request, Response};

/// Content type of pages.
pub const PAGE_CONTENT_TYPE: &str = "text/html; charset=utf-8";
/// Style of all pages.
pub const PAGE_STYLE: &str = "body{font:15px system-ui,sans-serif;margin:2em auto;max-width:60em;padding:0 1em;color:#222}\
h1{font-size:1.4em}h2{font-size:1.05em;margin:1.4em 0 .3em}a{color:#b4380a}li{margin:.15em 0}\
code{background:#f3f0ec;padding:.1em .3em;border-radius:3px}.t{color:#777}";

/// Returns whether the client accepts HTML, as browsers do when they open a page.
pub fn accepts_html(headers: &HeaderMap) -> bool {
    let mut accepted = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
    accepted.any(|value| value.contains("text/html"))
}

/// Returns whether a browser opens the URL of the request as a page. Calls of scripts accept other types.
pub fn opens_page(request: &Request<Body>) -> bool {
    matches!(*request.method(), Method::GET | Method::HEAD) && accepts_html(request.headers())
}

/// Replaces the JSON of an error by a page. Status and other headers stay.
pub fn show_error_as_page(response: Response<Body>) -> Response<Body> {
    let Some(error) = response.extensions().get::<ErrorText>() else { return response };
    let page = error_page(response.status().as_u16(), error);
    let (mut parts, _) = response.into_parts();
    parts.headers.remove(CONTENT_LENGTH);
    parts.headers.remove(CONTENT_ENCODING);
    parts.headers.insert(CONTENT_TYPE, HeaderValue::from_static(PAGE_CONTENT_TYPE));
    Response::from_parts(parts, Body::from(page))
}

fn error_page(status: u16, error: &ErrorText) -> String {
    format!(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>Error {status}</title>\
         <style>{PAGE_STYLE}</style><h1>Error {status}</h1><p>{}</p>\
         <p class=\"t\">Code: <code>{}</code></p></html>",
        escape_html(&error.message),
        escape_html(&error.code)
    )
}

/// Escapes text for element content and quoted attributes.
pub fn escape_html(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in replace_control(text).chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            _ => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use athanor_chassis::{ErrorCode, Status};
    use athanor_http_server::encoding::json_error;
    use axum::http::header::RETRY_AFTER;

    use super::*;

    #[test]
    fn text_is_escaped() {
        assert_eq!(escape_html("<a&b>\""), "&lt;a&amp;b&gt;&quot;");
        assert_eq!(escape_html("a\u{202e}b\u{1b}"), "a\u{fffd}b\u{fffd}");
    }

    #[test]
    fn only_a_browser_that_opens_a_page_accepts_html() {
        let request = |method: &str, accept: Option<&str>| {
            let mut request = Request::builder().method(method).uri("/shards");
            if let Some(accept) = accept {
                request = request.header(ACCEPT, accept);
            }
            opens_page(&request.body(Body::empty()).unwrap())
        };
        let browser = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8";
        assert!(request("GET", Some(browser)) && request("HEAD", Some("text/html")));
        assert!(!request("POST", Some(browser)));
        assert!(
            !request("GET", None)
                && !request("GET", Some("*/*"))
                && !request("GET", Some("application/json"))
        );
    }

    #[tokio::test]
    async fn page_of_an_error_states_it_as_text() {
        let status = Status::new(ErrorCode::Exhausted, "service is \"<b>\"; retry later")
            .with_retry_after(std::time::Duration::from_secs(7));
        let page = show_error_as_page(json_error(&status));
        assert_eq!(page.status(), 429);
        assert_eq!(page.headers()[RETRY_AFTER], "7");
        assert_eq!(page.headers()[CONTENT_TYPE], PAGE_CONTENT_TYPE);
        let bytes = axum::body::to_bytes(page.into_body(), 1 << 16).await.unwrap();
        let text = std::str::from_utf8(&bytes).unwrap();
        assert!(text.contains("<p>service is &quot;&lt;b&gt;&quot;; retry later</p>"), "{text}");
        assert!(text.contains("<code>resource_exhausted</code>"), "{text}");
        let other = Response::new(Body::from("plain"));
        assert!(show_error_as_page(other).headers().get(CONTENT_TYPE).is_none());
    }
}
