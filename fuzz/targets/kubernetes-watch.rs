//! Any bytes as the stream of a watch: each way of cutting them into pieces yields the same lines, and each line is
//! an event or an error. The first byte determines resource and size of the pieces.
#![no_main]

use athanor_agent::discovery::kubernetes::Resource;
use athanor_agent::discovery::kubernetes::watch_lines::{
    WatchEvent, WatchLineSplitter, decode_watch_line,
};
use libfuzzer_sys::fuzz_target;

const RESOURCES: [Resource; 6] = [
    Resource::Pods,
    Resource::Nodes,
    Resource::Services,
    Resource::Endpoints,
    Resource::EndpointSlices,
    Resource::Namespaces,
];

fuzz_target!(|bytes: &[u8]| {
    let Some((first, stream)) = bytes.split_first() else { return };
    let resource = RESOURCES[usize::from(*first) % RESOURCES.len()];
    let whole = split_lines(stream, stream.len().max(1));
    assert_eq!(split_lines(stream, usize::from(*first) + 1), whole);
    for line in whole {
        match decode_watch_line(resource, &line) {
            Ok(Some(WatchEvent::Applied { object, version } | WatchEvent::Deleted { object, version })) => {
                assert!(!object.key().is_empty());
                assert!(!version.is_empty());
            }
            Ok(Some(WatchEvent::Bookmark { version })) => assert!(!version.is_empty()),
            Ok(Some(WatchEvent::Failed(_)) | None) => {}
            Err(error) => assert!(error.to_string().len() < 1000),
        }
    }
});

fn split_lines(stream: &[u8], piece_bytes: usize) -> Vec<Vec<u8>> {
    let mut splitter = WatchLineSplitter::default();
    let mut lines = Vec::new();
    for piece in stream.chunks(piece_bytes) {
        // No input is as long as the limit of a line.
        splitter.push(piece, |line| lines.push(line.to_vec())).unwrap();
    }
    lines
}
