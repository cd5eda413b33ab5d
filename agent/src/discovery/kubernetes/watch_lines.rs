//! Lines of a watch: the stream is split with a bound, and each line is an event.

use serde::Deserialize;
use serde_json::value::RawValue;

use super::objects::{Object, Resource};

/// Maximum bytes of one line of a watch. The API accepts objects of 1.5 MiB, and escapes may multiply them.
pub const MAX_WATCH_LINE_BYTES: usize = 16 << 20;
/// Maximum characters of an error that may contain text of the API.
const MAX_ERROR_CHARS: usize = 200;

/// Splitter of a stream into lines of bounded length. An unfinished line at the end of the stream is no line.
#[derive(Debug, Default)]
pub struct WatchLineSplitter {
    unfinished: Vec<u8>,
}

/// Event of a watch.
#[derive(Clone, Debug, PartialEq)]
pub enum WatchEvent {
    /// The object is new or changed.
    Applied {
        /// Object, without its version.
        object: Box<Object>,
        /// Version from which the watch continues.
        version: Box<str>,
    },
    /// The object is deleted, or no longer selected.
    Deleted {
        /// Last state of the object.
        object: Box<Object>,
        /// Version from which the watch continues.
        version: Box<str>,
    },
    /// All changes up to a version were sent.
    Bookmark {
        /// Version from which the watch continues.
        version: Box<str>,
    },
    /// The watch failed.
    Failed(ApiStatus),
}

/// Failure as the API describes it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct ApiStatus {
    /// HTTP status code.
    pub code: u16,
    /// Reason as one word.
    pub reason: String,
    /// Reason as a sentence.
    pub message: String,
}

/// Line of a watch that is no event.
#[derive(Debug, thiserror::Error)]
pub enum WatchLineError {
    /// The line is longer than the limit.
    #[error("line of a watch has over {MAX_WATCH_LINE_BYTES} bytes")]
    TooLong,
    /// The line is not UTF-8.
    #[error("line of a watch is not UTF-8")]
    NotUtf8,
    /// The line is not an event of the resource.
    #[error("line of a watch is malformed: {}", shorten_json_error(.0))]
    Malformed(#[from] serde_json::Error),
    /// The type of the event is unknown.
    #[error("type {0:?} of a watch event is unknown")]
    UnknownType(String),
    /// The object has no name or no version.
    #[error("object of a watch event has no {0}")]
    Incomplete(&'static str),
}

#[derive(Deserialize)]
struct EventLine<'a> {
    #[serde(rename = "type", default)]
    kind: String,
    #[serde(borrow)]
    object: &'a RawValue,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct BookmarkObject {
    metadata: BookmarkMetadata,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct BookmarkMetadata {
    resource_version: Box<str>,
}

impl WatchLineSplitter {
    /// Appends bytes of the stream and calls `line` for each line that they finish.
    ///
    /// # Errors
    ///
    /// If a line is longer than [`MAX_WATCH_LINE_BYTES`].
    pub fn push(&mut self, mut bytes: &[u8], mut line: impl FnMut(&[u8])) -> Result<(), WatchLineError> {
        while let Some(end) = bytes.iter().position(|byte| *byte == b'\n') {
            if self.unfinished.len() + end > MAX_WATCH_LINE_BYTES {
                return Err(WatchLineError::TooLong);
            }
            if self.unfinished.is_empty() {
                line(&bytes[..end]);
            } else {
                self.unfinished.extend_from_slice(&bytes[..end]);
                line(&std::mem::take(&mut self.unfinished));
            }
            bytes = &bytes[end + 1..];
        }
        if self.unfinished.len() + bytes.len() > MAX_WATCH_LINE_BYTES {
            return Err(WatchLineError::TooLong);
        }
        self.unfinished.extend_from_slice(bytes);
        Ok(())
    }
}

/// Describes why JSON is malformed. The description of the decoder contains the value, however long it is.
pub(super) fn shorten_json_error(error: &serde_json::Error) -> String {
    error.to_string().chars().take(MAX_ERROR_CHARS).collect()
}

/// Decodes a line of a watch. Empty lines are no event.
///
/// # Errors
///
/// If the line is not an event of the resource.
pub fn decode_watch_line(resource: Resource, line: &[u8]) -> Result<Option<WatchEvent>, WatchLineError> {
    let line = line.trim_ascii();
    if line.is_empty() {
        return Ok(None);
    }
    let line = std::str::from_utf8(line).map_err(|_| WatchLineError::NotUtf8)?;
    let event: EventLine<'_> = serde_json::from_str(line)?;
    let json = event.object.get();
    Ok(Some(match event.kind.as_str() {
        "ADDED" | "MODIFIED" => {
            let (object, version) = decode_object(resource, json)?;
            WatchEvent::Applied { object, version }
        }
        "DELETED" => {
            let (object, version) = decode_object(resource, json)?;
            WatchEvent::Deleted { object, version }
        }
        "BOOKMARK" => {
            let bookmark: BookmarkObject = serde_json::from_str(json)?;
            WatchEvent::Bookmark { version: require_version(bookmark.metadata.resource_version)? }
        }
        "ERROR" => WatchEvent::Failed(serde_json::from_str(json)?),
        other => return Err(WatchLineError::UnknownType(other.chars().take(40).collect())),
    }))
}

fn decode_object(resource: Resource, json: &str) -> Result<(Box<Object>, Box<str>), WatchLineError> {
    let mut object = resource.decode(json)?;
    if object.metadata().name.is_empty() {
        return Err(WatchLineError::Incomplete("name"));
    }
    let version = require_version(object.take_version())?;
    Ok((Box::new(object), version))
}

fn require_version(version: Box<str>) -> Result<Box<str>, WatchLineError> {
    if version.is_empty() { Err(WatchLineError::Incomplete("resourceVersion")) } else { Ok(version) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(chunks: &[&[u8]]) -> Vec<String> {
        let mut splitter = WatchLineSplitter::default();
        let mut lines = Vec::new();
        for chunk in chunks {
            let take = |line: &[u8]| lines.push(String::from_utf8_lossy(line).into_owned());
            splitter.push(chunk, take).unwrap();
        }
        lines
    }

    #[test]
    fn lines_are_equal_for_each_division_into_chunks() {
        let stream = b"one\n\ntwo\nthree";
        for cut in 0..stream.len() {
            assert_eq!(split(&[&stream[..cut], &stream[cut..]]), ["one", "", "two"], "{cut}");
        }
    }

    #[test]
    fn line_over_limit_is_rejected_before_it_ends() {
        let mut splitter = WatchLineSplitter::default();
        let chunk = vec![b'x'; MAX_WATCH_LINE_BYTES];
        splitter.push(&chunk, |_| ()).unwrap();
        assert!(matches!(splitter.push(b"x", |_| ()), Err(WatchLineError::TooLong)));
        splitter.push(b"\n", |line| assert_eq!(line.len(), MAX_WATCH_LINE_BYTES)).unwrap();
        let chunk = [chunk.as_slice(), b"x\n"].concat();
        assert!(matches!(splitter.push(&chunk, |_| ()), Err(WatchLineError::TooLong)));
    }

    #[test]
    fn lines_decode_to_events() {
        let decode = |line: &str| decode_watch_line(Resource::Namespaces, line.as_bytes());
        let named = r#""object": {"metadata": {"name": "a", "resourceVersion": "7"}}}"#;
        let applied = decode(&format!(r#"{{"type": "ADDED", {named}"#)).unwrap().unwrap();
        assert!(
            matches!(&applied, WatchEvent::Applied { object, version } if &*object.key() == "a" && &**version == "7")
        );
        let deleted = decode(&format!(r#"{{"type": "DELETED", {named}"#)).unwrap().unwrap();
        assert!(matches!(deleted, WatchEvent::Deleted { .. }));
        let bookmark = r#"{"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "9"}}}"#;
        assert_eq!(decode(bookmark).unwrap(), Some(WatchEvent::Bookmark { version: "9".into() }));
        let gone = r#"{"type": "ERROR", "object": {"code": 410, "reason": "Expired", "message": "too old"}}"#;
        assert!(matches!(decode(gone).unwrap(), Some(WatchEvent::Failed(status)) if status.code == 410));
        assert_eq!(decode("  ").unwrap(), None);
    }

    #[test]
    fn lines_that_are_no_events_are_rejected() {
        for line in [
            "x",
            "{}",
            r#"{"type": "ADDED"}"#,
            r#"{"type": "RENAMED", "object": {}}"#,
            r#"{"type": "ADDED", "object": {"metadata": {"name": "a"}}}"#,
            r#"{"type": "ADDED", "object": {"metadata": {"resourceVersion": "1"}}}"#,
            r#"{"type": "BOOKMARK", "object": {}}"#,
            r#"{"type": "ADDED", "object": {"metadata": {"name": 3}}}"#,
        ] {
            assert!(decode_watch_line(Resource::Pods, line.as_bytes()).is_err(), "{line}");
        }
        assert!(decode_watch_line(Resource::Pods, b"\xff").is_err());
    }
}
