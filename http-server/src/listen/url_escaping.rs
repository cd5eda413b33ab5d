//! URL escaping on HTTP/1 connections: escapes characters that the HTTP library rejects and other servers
//! accept.
//!
//! Users write selectors into URLs without escaping: `?query=cpu{service="shop"}`. A URL with `"`, `<` or `>`
//! is invalid by the standard. The library responds with 400 before any of our handlers sees the request.
//! [`UrlEscaper`] follows a connection from request to request and writes `%22` for `"` in the first line of
//! each. Bodies are never changed: once the framing of a request is in doubt, no further URL is escaped on
//! that connection.
//!
//! HTTP/2 needs no escaping: its clients send escaped URLs.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use percent_encoding::percent_encode_byte;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Maximum length of a URL in which characters are escaped. The library rejects longer ones.
const MAX_URL_BYTES: usize = 64 << 10;
/// Maximum length of a line that is parsed: the headers that define the length of a body are shorter.
const MAX_LINE_BYTES: usize = 256;

/// Stream that escapes the URLs of the requests it reads.
pub struct UrlEscapingStream<S> {
    stream: S,
    escaper: UrlEscaper,
    /// Escaped bytes that did not fit in the reader's buffer.
    pending: Vec<u8>,
    taken: usize,
}

/// Parser that finds the URLs in the requests of an HTTP/1 connection.
#[derive(Debug, Default)]
pub struct UrlEscaper {
    place: RequestPosition,
    line: LinePrefix,
    url_bytes: usize,
    body: BodyLength,
}

/// Position within a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum RequestPosition {
    #[default]
    Method,
    Url,
    Version,
    Header,
    Body {
        left: u64,
    },
    ChunkSize,
    Chunk {
        left: u64,
    },
    ChunkEnd,
    Trailer,
    /// The rest of the connection is not followed.
    Unknown,
}

/// Prefix of the current line.
#[derive(Debug, Default)]
struct LinePrefix {
    bytes: Vec<u8>,
    is_cut: bool,
}

/// Length of a body, according to the headers so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum BodyLength {
    #[default]
    Empty,
    Known(u64),
    Chunked,
}

// === impl UrlEscaper ===

impl UrlEscaper {
    /// Processes the next bytes of the connection. Returns the escaped bytes if they differ.
    pub fn escape(&mut self, bytes: &[u8]) -> Option<Vec<u8>> {
        let mut escaped: Option<Vec<u8>> = None;
        let mut at = 0;
        let mut copied = 0;
        while at < bytes.len() {
            match &mut self.place {
                RequestPosition::Unknown => break,
                RequestPosition::Body { left } | RequestPosition::Chunk { left } => {
                    let step = (bytes.len() - at).min(usize::try_from(*left).unwrap_or(usize::MAX));
                    *left -= step as u64;
                    at += step;
                    if *left == 0 {
                        let is_body = matches!(self.place, RequestPosition::Body { .. });
                        self.place =
                            if is_body { RequestPosition::Method } else { RequestPosition::ChunkEnd };
                    }
                }
                RequestPosition::Url => {
                    let byte = bytes[at];
                    if is_refused(byte) {
                        let escaped = escaped.get_or_insert_with(|| Vec::with_capacity(bytes.len() + 64));
                        escaped.extend_from_slice(&bytes[copied..at]);
                        escaped.extend_from_slice(percent_encode_byte(byte).as_bytes());
                        copied = at + 1;
                    }
                    self.url(byte);
                    at += 1;
                }
                RequestPosition::Method => {
                    self.method(bytes[at]);
                    at += 1;
                }
                _ => {
                    let rest = &bytes[at..];
                    let end = rest.iter().position(|byte| *byte == b'\n');
                    self.line.extend(&rest[..end.unwrap_or(rest.len())]);
                    at += end.map_or(rest.len(), |end| end + 1);
                    if end.is_some() {
                        self.end_line();
                    }
                }
            }
        }
        if let Some(escaped) = &mut escaped {
            escaped.extend_from_slice(&bytes[copied..]);
        }
        escaped
    }

    fn method(&mut self, byte: u8) {
        match byte {
            b' ' => {
                let line = std::mem::take(&mut self.line);
                let is_followed = !line.is_cut && !matches!(line.text(), b"" | b"PRI" | b"CONNECT");
                self.place = if is_followed { RequestPosition::Url } else { RequestPosition::Unknown };
                (self.url_bytes, self.body) = (0, BodyLength::Empty);
            }
            // Empty lines before a request are skipped.
            b'\n' if self.line.text().is_empty() => self.line = LinePrefix::default(),
            b'\n' => self.place = RequestPosition::Unknown,
            b'\r' | b'!'..=b'~' => self.line.extend(&[byte]),
            _ => self.place = RequestPosition::Unknown,
        }
    }

    fn url(&mut self, byte: u8) {
        self.url_bytes += 1;
        match byte {
            b' ' => self.place = RequestPosition::Version,
            b'\n' => self.place = RequestPosition::Unknown,
            _ if self.url_bytes > MAX_URL_BYTES => self.place = RequestPosition::Unknown,
            _ => {}
        }
    }

    fn end_line(&mut self) {
        let line = std::mem::take(&mut self.line);
        let text = line.text();
        let next = match self.place {
            RequestPosition::Version => {
                (text == b"HTTP/1.1" || text == b"HTTP/1.0").then_some(RequestPosition::Header)
            }
            RequestPosition::Header if text.is_empty() => Some(match self.body {
                BodyLength::Empty | BodyLength::Known(0) => RequestPosition::Method,
                BodyLength::Known(left) => RequestPosition::Body { left },
                BodyLength::Chunked => RequestPosition::ChunkSize,
            }),
            RequestPosition::Header => self.header(text, line.is_cut).map(|()| RequestPosition::Header),
            RequestPosition::ChunkSize => chunk_size(text).map(|left| match left {
                0 => RequestPosition::Trailer,
                _ => RequestPosition::Chunk { left },
            }),
            RequestPosition::ChunkEnd => text.is_empty().then_some(RequestPosition::ChunkSize),
            RequestPosition::Trailer if text.is_empty() => Some(RequestPosition::Method),
            RequestPosition::Trailer => Some(RequestPosition::Trailer),
            RequestPosition::Method
            | RequestPosition::Url
            | RequestPosition::Body { .. }
            | RequestPosition::Chunk { .. }
            | RequestPosition::Unknown => None,
        };
        self.place = next.unwrap_or(RequestPosition::Unknown);
    }

    /// Processes a header. Returns None if the length of the body is in doubt.
    fn header(&mut self, line: &[u8], is_cut: bool) -> Option<()> {
        if line.starts_with(b" ") || line.starts_with(b"\t") {
            return None;
        }
        let colon = line.iter().position(|byte| *byte == b':')?;
        let name = &line[..colon];
        let value = line[colon + 1..].trim_ascii();
        if name.eq_ignore_ascii_case(b"content-length") {
            let length = std::str::from_utf8(value).ok()?.parse().ok()?;
            match self.body {
                _ if is_cut => return None,
                BodyLength::Empty => self.body = BodyLength::Known(length),
                BodyLength::Known(known) if known != length => return None,
                BodyLength::Known(_) => {}
                BodyLength::Chunked => return None,
            }
        } else if name.eq_ignore_ascii_case(b"transfer-encoding") {
            if is_cut || !value.eq_ignore_ascii_case(b"chunked") || self.body != BodyLength::Empty {
                return None;
            }
            self.body = BodyLength::Chunked;
        }
        Some(())
    }
}

// === impl LinePrefix ===

impl LinePrefix {
    fn extend(&mut self, bytes: &[u8]) {
        let space = MAX_LINE_BYTES - self.bytes.len();
        self.is_cut |= bytes.len() > space;
        self.bytes.extend_from_slice(&bytes[..bytes.len().min(space)]);
    }

    fn text(&self) -> &[u8] {
        self.bytes.strip_suffix(b"\r").unwrap_or(&self.bytes)
    }
}

/// Returns whether the library rejects a character in a URL.
fn is_refused(byte: u8) -> bool {
    matches!(byte, b'"' | b'<' | b'>' | b'`' | b'\\' | b'^' | 0x80..)
}

fn chunk_size(line: &[u8]) -> Option<u64> {
    let digits = line.split(|byte| *byte == b';').next()?.trim_ascii();
    // Signs and more digits than a size has are invalid.
    if digits.is_empty() || digits.len() > 16 || !digits.iter().all(u8::is_ascii_hexdigit) {
        return None;
    }
    u64::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

// === impl UrlEscapingStream ===

impl<S> UrlEscapingStream<S> {
    /// Returns a stream at the beginning of a connection.
    pub fn new(stream: S) -> Self {
        Self { stream, escaper: UrlEscaper::default(), pending: Vec::new(), taken: 0 }
    }

    fn take_pending(&mut self, buffer: &mut ReadBuf<'_>) {
        let step = buffer.remaining().min(self.pending.len() - self.taken);
        buffer.put_slice(&self.pending[self.taken..self.taken + step]);
        self.taken += step;
        if self.taken == self.pending.len() {
            (self.pending, self.taken) = (Vec::new(), 0);
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for UrlEscapingStream<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.pending.is_empty() {
            let before = buffer.filled().len();
            ready!(Pin::new(&mut this.stream).poll_read(context, buffer))?;
            let Some(escaped) = this.escaper.escape(&buffer.filled()[before..]) else {
                return Poll::Ready(Ok(()));
            };
            buffer.set_filled(before);
            this.pending = escaped;
        }
        this.take_pending(buffer);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for UrlEscapingStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tokio::io::AsyncReadExt;

    use super::*;

    /// What stands for bytes that come in pieces of these lengths, over and over.
    fn escaped(bytes: &[u8], pieces: &[usize]) -> Vec<u8> {
        let mut escaper = UrlEscaper::default();
        let (mut rest, mut all) = (bytes, Vec::new());
        for length in pieces.iter().cycle() {
            if rest.is_empty() {
                break;
            }
            let (piece, more) = rest.split_at((*length).min(rest.len()));
            all.extend(escaper.escape(piece).unwrap_or_else(|| piece.to_vec()));
            rest = more;
        }
        all
    }

    #[test]
    fn urls_are_escaped_and_nothing_else() {
        let same = [
            "GET /a%22?b={c} HTTP/1.1\r\nHost: \"x\"\r\n\r\n",
            "POST /a HTTP/1.1\r\ncontent-length: 18\r\n\r\nGET /\" HTTP/1.1\r\n\r\n",
            "POST /a HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n12;x=\"\r\nGET /\" HTTP/1.1\r\n\r\n\r\n0\r\nT: \"\r\n\r\n",
            "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\nGET /\" HTTP/1.1\r\n\r\n",
            "CONNECT a HTTP/1.1\r\n\r\nGET /\" HTTP/1.1\r\n\r\n",
            "POST /a HTTP/1.1\r\nTransfer-Encoding: chunked\r\ncontent-length: 1\r\n\r\nGET /\" HTTP/1.1\r\n\r\n",
            "POST /a HTTP/1.1\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nGET /\" HTTP/1.1\r\n\r\n",
            "POST /a HTTP/1.1\r\ncontent-length: 1,1\r\n\r\nGET /\" HTTP/1.1\r\n\r\n",
            "POST /a HTTP/1.1\r\nTransfer-Encoding: gzip, chunked\r\n\r\nGET /\" HTTP/1.1\r\n\r\n",
            "POST /a HTTP/1.1\r\na: b\r\n c\r\n\r\nGET /\" HTTP/1.1\r\n\r\n",
            "POST /a\nGET /\" HTTP/1.1\r\n\r\n",
            "POST /a HTTP/2.0\r\n\r\nGET /\" HTTP/1.1\r\n\r\n",
            "\u{16}\u{3}\u{1}GET /\"",
        ];
        let changed = [
            ("GET /?q=\"<a>\" HTTP/1.1\r\n\r\n", "GET /?q=%22%3Ca%3E%22 HTTP/1.1\r\n\r\n"),
            ("\r\n\r\nGET /\u{e4} HTTP/1.0\n\n", "\r\n\r\nGET /%C3%A4 HTTP/1.0\n\n"),
            (
                "POST /\" HTTP/1.1\r\nCONTENT-LENGTH: 2\r\n\r\n\"\"POST /\" HTTP/1.1\r\n\r\nGET /\"",
                "POST /%22 HTTP/1.1\r\nCONTENT-LENGTH: 2\r\n\r\n\"\"POST /%22 HTTP/1.1\r\n\r\nGET /%22",
            ),
            (
                "POST / HTTP/1.1\r\ntransfer-encoding: Chunked\r\n\r\n1\r\n\"\r\n0\r\n\r\nGET /\" HTTP/1.1\r\n\r\n",
                "POST / HTTP/1.1\r\ntransfer-encoding: Chunked\r\n\r\n1\r\n\"\r\n0\r\n\r\nGET /%22 HTTP/1.1\r\n\r\n",
            ),
        ];
        for (sent, expected) in same.iter().map(|same| (*same, *same)).chain(changed) {
            for pieces in [&[1][..], &[2, 3], &[7], &[1_000]] {
                let came = escaped(sent.as_bytes(), pieces);
                assert_eq!(String::from_utf8_lossy(&came), expected, "{pieces:?}");
            }
        }
        let long = format!("GET /{}\" HTTP/1.1\r\n\r\n", "a".repeat(MAX_URL_BYTES));
        assert_eq!(escaped(long.as_bytes(), &[100]), long.as_bytes());
        let long = format!("GET / HTTP/1.1\r\nx: {}\r\n\r\nGET /\" ", "a".repeat(9_000));
        assert!(escaped(long.as_bytes(), &[100]).ends_with(b"GET /%22 "));
    }

    proptest! {
        /// Whatever a body holds, it comes as it was sent, and so does the request after it.
        #[test]
        fn bodies_stay_as_they_are(
            bodies in prop::collection::vec((prop::collection::vec(any::<u8>(), 0..60), any::<bool>()), 1..4),
            pieces in prop::collection::vec(1..40_usize, 1..5),
        ) {
            let (mut sent, mut expected) = (Vec::new(), Vec::new());
            for (body, is_chunked) in bodies {
                let framed = match is_chunked {
                    false => [format!("content-length: {}\r\n\r\n", body.len()).as_bytes(), &body].concat(),
                    true if body.is_empty() => b"transfer-encoding: chunked\r\n\r\n0\r\n\r\n".to_vec(),
                    true => {
                        let head = format!("transfer-encoding: chunked\r\n\r\n{:x}\r\n", body.len());
                        [head.as_bytes(), &body, b"\r\n0\r\n\r\n"].concat()
                    }
                };
                for (all, url) in [(&mut sent, "/?a=\"b\""), (&mut expected, "/?a=%22b%22")] {
                    all.extend(format!("POST {url} HTTP/1.1\r\n").bytes());
                    all.extend_from_slice(&framed);
                }
            }
            prop_assert_eq!(escaped(&sent, &pieces), expected);
        }
    }

    #[tokio::test]
    async fn small_buffers_get_all_of_it() {
        let sent = "GET /?a=\"\"\"\"\"\" HTTP/1.1\r\n\r\n";
        let mut stream = UrlEscapingStream::new(sent.as_bytes());
        let mut came = Vec::new();
        loop {
            let mut piece = [0; 3];
            match stream.read(&mut piece).await.unwrap() {
                0 => break,
                length => came.extend_from_slice(&piece[..length]),
            }
        }
        assert_eq!(came, b"GET /?a=%22%22%22%22%22%22 HTTP/1.1\r\n\r\n");
    }
}
