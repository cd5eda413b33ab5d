//! Requests, each on a connection of its own.

use std::io::{Error, ErrorKind, Read, Result, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// What opens the pages of administration.
pub const TOKEN: &str = "a-token-for-those-who-look";
const CONNECT: Duration = Duration::from_secs(1);
/// Longer than a server keeps trying by itself.
const ANSWER: Duration = Duration::from_secs(20);

/// What came back.
pub struct Answer {
    pub status: u16,
    /// In small letters.
    head: String,
    pub body: String,
}

impl Answer {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
    }

    /// Whether another try may help.
    pub fn is_for_later(&self) -> bool {
        self.status >= 500 || self.status == 429
    }
}

pub fn get(address: SocketAddr, path: &str) -> Result<Answer> {
    send(address, &format!("GET {path}"), "text/plain", "")
}

pub fn post(address: SocketAddr, path: &str, kind: &str, body: &str) -> Result<Answer> {
    send(address, &format!("POST {path}"), kind, body)
}

fn send(address: SocketAddr, begin: &str, kind: &str, body: &str) -> Result<Answer> {
    let mut stream = TcpStream::connect_timeout(&address, CONNECT)?;
    stream.set_read_timeout(Some(ANSWER))?;
    stream.set_write_timeout(Some(ANSWER))?;
    let length = body.len();
    let request = format!(
        "{begin} HTTP/1.1\r\nhost: {address}\r\nauthorization: Bearer {TOKEN}\r\ncontent-type: {kind}\r\ncontent-length: {length}\r\n\
         connection: close\r\n\r\n{body}"
    );
    stream.write_all(request.as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let cut_short = || Error::from(ErrorKind::UnexpectedEof);
    let (head, body) = answer.split_once("\r\n\r\n").ok_or_else(cut_short)?;
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).ok_or_else(cut_short)?;
    let answer = Answer { status, head: head.to_ascii_lowercase(), body: body.to_owned() };
    let length = answer.header("content-length").and_then(|length| length.parse::<usize>().ok());
    if length.is_some_and(|length| length != answer.body.len()) {
        return Err(cut_short());
    }
    Ok(answer)
}
