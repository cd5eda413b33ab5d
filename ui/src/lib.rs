//! Files of the web UI, embedded in the program, as HTTP responses.
//!
//! `dist` contains the built UI, and the build script adds a gzip variant and a hash of each file. The page refers
//! to its files by relative paths, so it works below any path prefix.

#![cfg_attr(test, allow(clippy::unwrap_used))]

use bytes::Bytes;
use http::header::{
    CACHE_CONTROL, CONTENT_ENCODING, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG, REFERRER_POLICY, VARY,
    X_CONTENT_TYPE_OPTIONS,
};
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};

/// Name of the page, which all views share.
const PAGE_FILE: &str = "index.html";
/// Version in the page's references to files. It changes with their content.
const FILES_VERSION: &str = include!(concat!(env!("OUT_DIR"), "/version.rs"));
static EMBEDDED_FILES: &[EmbeddedFile] = include!(concat!(env!("OUT_DIR"), "/files.rs"));

/// Permissions of the page: its own files and calls of its own server.
const UI_POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; \
     worker-src 'self'; font-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
);
const SECURITY_HEADERS: [(HeaderName, HeaderValue); 3] = [
    (CONTENT_SECURITY_POLICY, UI_POLICY),
    (X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
    (REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
];
/// Caching of files whose URL contains the version of their content.
const IMMUTABLE_CACHING: HeaderValue = HeaderValue::from_static("public, max-age=31536000, immutable");
/// Caching of all other files: a browser asks each time whether its copy is current.
const REVALIDATED_CACHING: HeaderValue = HeaderValue::from_static("no-cache");

/// Content types by the extensions of file names.
const CONTENT_TYPES: [(&str, &str); 11] = [
    ("html", "text/html; charset=utf-8"),
    ("js", "text/javascript; charset=utf-8"),
    ("css", "text/css; charset=utf-8"),
    ("json", "application/json"),
    ("map", "application/json"),
    ("txt", "text/plain; charset=utf-8"),
    ("svg", "image/svg+xml"),
    ("png", "image/png"),
    ("ico", "image/x-icon"),
    ("woff2", "font/woff2"),
    ("wasm", "application/wasm"),
];
const UNKNOWN_CONTENT_TYPE: &str = "application/octet-stream";

/// File of the UI.
struct EmbeddedFile {
    /// Path of the file below `dist`.
    name: &'static str,
    /// Hash of the content.
    hash: &'static str,
    plain: &'static [u8],
    /// Compressed content. None if it is not smaller.
    gzip: Option<&'static [u8]>,
}

/// Request for a file or a view of the UI.
#[derive(Clone, Copy, Debug, Default)]
pub struct FileRequest<'a> {
    /// Path below the address of the UI: `app.js`, or `explore` for a view.
    pub path: &'a str,
    /// Query string of the URL.
    pub query: &'a str,
    /// True if the client accepts gzip.
    pub accepts_gzip: bool,
    /// Tags of the copies that the client has, as in the header `If-None-Match`.
    pub if_none_match: Option<&'a str>,
}

impl FileRequest<'_> {
    /// Returns the response with the file. The path of a view returns the page, and any other unknown path none.
    pub fn respond(&self) -> Option<Response<Bytes>> {
        let name = if is_view(self.path) { PAGE_FILE } else { self.path };
        let file = EMBEDDED_FILES.iter().find(|file| file.name == name)?;
        let gzip = file.gzip.filter(|_| self.accepts_gzip);
        // Each variant has a tag of its own, since their bytes differ.
        let tag = format!("\"{}{}\"", file.hash, if gzip.is_some() { "-gzip" } else { "" });
        let is_current = self.if_none_match.is_some_and(|tags| matches_tag(tags, &tag));
        let mut response = Response::new(Bytes::new());
        let headers = response.headers_mut();
        headers.extend(SECURITY_HEADERS);
        headers.insert(CACHE_CONTROL, self.caching(file));
        headers.insert(VARY, HeaderValue::from_static("Accept-Encoding"));
        headers.insert(ETAG, HeaderValue::from_str(&tag).ok()?);
        if is_current {
            *response.status_mut() = StatusCode::NOT_MODIFIED;
            return Some(response);
        }
        insert_content_headers(headers, file, gzip.is_some());
        *response.body_mut() = Bytes::from_static(gzip.unwrap_or(file.plain));
        Some(response)
    }

    /// Returns the caching of a file. During an upgrade, a page of another version may refer to it: then the browser
    /// must not keep it.
    fn caching(&self, file: &EmbeddedFile) -> HeaderValue {
        let mut parameters = self.query.split('&').filter_map(|pair| pair.strip_prefix("v="));
        let is_versioned = !FILES_VERSION.is_empty() && parameters.next() == Some(FILES_VERSION);
        if is_versioned && file.name != PAGE_FILE { IMMUTABLE_CACHING } else { REVALIDATED_CACHING }
    }
}

fn insert_content_headers(headers: &mut HeaderMap, file: &EmbeddedFile, is_gzip: bool) {
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type(file.name)));
    if is_gzip {
        headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
}

/// Returns true if a path is that of a view: empty, or one word. Deeper paths are none, because the page's references
/// would not reach its files from there.
fn is_view(path: &str) -> bool {
    path.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-')
}

/// Returns whether a list of tags, as in `If-None-Match`, contains a tag.
fn matches_tag(tags: &str, tag: &str) -> bool {
    let mut tags = tags.split(',').map(str::trim);
    tags.any(|sent| sent == "*" || sent.strip_prefix("W/").unwrap_or(sent) == tag)
}

fn content_type(name: &str) -> &'static str {
    let extension = name.rsplit_once('.').map_or("", |(_, extension)| extension);
    let known = CONTENT_TYPES.iter().find(|(known, _)| *known == extension);
    known.map_or(UNKNOWN_CONTENT_TYPE, |(_, content_type)| content_type)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fetch(path: &str, query: &str, accepts_gzip: bool) -> Response<Bytes> {
        FileRequest { path, query, accepts_gzip, if_none_match: None }.respond().unwrap()
    }

    fn header(response: &Response<Bytes>, name: HeaderName) -> &str {
        response.headers().get(name).map_or("", |value| value.to_str().unwrap())
    }

    /// Files to which the page refers, each with the query of its URL.
    fn references() -> Vec<(String, String)> {
        let page = fetch(PAGE_FILE, "", false);
        let page = std::str::from_utf8(page.body()).unwrap().to_owned();
        let urls = page.split("=\"./").skip(1).map(|rest| rest.split('"').next().unwrap());
        let split = |url: &str| url.split_once('?').map(|(path, query)| (path.to_owned(), query.to_owned()));
        urls.map(|url| split(url).unwrap_or_else(|| (url.to_owned(), String::new()))).collect()
    }

    #[test]
    fn files_of_the_page_are_embedded() {
        let references = references();
        assert!(references.iter().any(|(path, _)| path.ends_with(".js")), "{references:?}");
        for (path, query) in references {
            let plain = fetch(&path, &query, false);
            assert_eq!(plain.status(), StatusCode::OK, "{path}");
            assert_ne!(header(&plain, CONTENT_TYPE), UNKNOWN_CONTENT_TYPE, "{path}");
            let caching = header(&plain, CACHE_CONTROL);
            assert_eq!(caching.contains("immutable"), !query.is_empty(), "{path}?{query}");
            assert_eq!(header(&fetch(&path, "v=other", false), CACHE_CONTROL), "no-cache", "{path}");
        }
    }

    #[test]
    fn page_runs_only_files_of_its_own() {
        let page = fetch("", "", false);
        let text = std::str::from_utf8(page.body()).unwrap();
        assert_eq!(header(&page, CONTENT_TYPE), "text/html; charset=utf-8");
        for inline in ["<style", " style=", " onload=", "javascript:", "http://", "https://"] {
            assert!(!text.contains(inline), "{inline} in {text}");
        }
        assert!(
            text.split("<script").skip(1).all(|script| script.split('>').next().unwrap().contains("src="))
        );
        let policy = header(&page, CONTENT_SECURITY_POLICY);
        assert!(policy.starts_with("default-src 'none'; script-src 'self';"), "{policy}");
        assert!(!policy.contains("unsafe"), "{policy}");
        assert_eq!(header(&page, X_CONTENT_TYPE_OPTIONS), "nosniff");
        assert_eq!(header(&page, REFERRER_POLICY), "no-referrer");
        assert_eq!(header(&page, CACHE_CONTROL), "no-cache");
    }

    #[test]
    fn path_of_a_view_returns_the_page() {
        let page = fetch(PAGE_FILE, "", false);
        for path in ["", "explore", "comparison", "fleet", "not-a-view-yet"] {
            assert_eq!(fetch(path, "query=x", false).body(), page.body(), "{path}");
        }
        for path in
            ["explore/", "a/b", "none.js", "../index.html", "Explore", "%2e", ".", "/", "dist/index.html"]
        {
            let request = FileRequest { path, ..FileRequest::default() };
            assert!(request.respond().is_none(), "{path}");
        }
    }

    #[test]
    fn gzip_variant_has_the_same_content() {
        for file in EMBEDDED_FILES {
            let response = fetch(file.name, "", true);
            assert_eq!(header(&response, VARY), "Accept-Encoding");
            if header(&response, CONTENT_ENCODING) != "gzip" {
                assert_eq!(response.body(), file.plain, "{}", file.name);
                continue;
            }
            let mut plain = vec![0; file.plain.len()];
            let length =
                libdeflater::Decompressor::new().gzip_decompress(response.body(), &mut plain).unwrap();
            assert!(length == plain.len() && plain == file.plain, "{}", file.name);
            assert!(response.body().len() < plain.len());
        }
        assert!(fetch("", "", false).headers().get(CONTENT_ENCODING).is_none());
    }

    #[test]
    fn client_with_a_current_copy_gets_no_body() {
        let request = |tags: &str, accepts_gzip| {
            let request = FileRequest { if_none_match: Some(tags), accepts_gzip, ..FileRequest::default() };
            request.respond().unwrap()
        };
        for accepts_gzip in [false, true] {
            let first = fetch("", "", accepts_gzip);
            let tag = header(&first, ETAG);
            for tags in [tag.to_owned(), format!("\"other\", W/{tag}"), "*".to_owned()] {
                let second = request(&tags, accepts_gzip);
                assert_eq!(second.status(), StatusCode::NOT_MODIFIED, "{tags}");
                assert!(second.body().is_empty() && header(&second, ETAG) == tag);
                assert!(header(&second, CONTENT_SECURITY_POLICY).contains("default-src 'none'"));
            }
            for tags in ["", "\"other\"", tag.trim_matches('"')] {
                assert_eq!(request(tags, accepts_gzip).status(), StatusCode::OK, "{tags}");
            }
            assert_eq!(request(tag, !accepts_gzip).status(), StatusCode::OK, "the other variant differs");
        }
    }
}
