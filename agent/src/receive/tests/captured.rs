//! Requests of real SDKs, where they are present beside the repository.

use std::path::{Path, PathBuf};

use athanor_profile::formats::pprof::inflate;

use super::*;
use crate::receive::otlp::HTTP_EXPORT_PATH;

fn shared_data(folder: &str) -> Option<PathBuf> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/data").join(folder);
    if !path.is_dir() {
        println!("skip: no captured requests at ../shared/data/{folder}");
        return None;
    }
    Some(path)
}

/// Request of an SDK: path with query, headers and body.
struct CapturedRequest {
    path: String,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

fn captured_requests(folder: &Path) -> Vec<CapturedRequest> {
    let mut files: Vec<PathBuf> = folder.read_dir().unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    let heads = files.iter().filter_map(|file| Some((file, file.to_str()?.strip_suffix(".head.txt")?)));
    let requests = heads.map(|(file, name)| {
        let head = std::fs::read_to_string(file).unwrap();
        let mut lines = head.lines();
        let path = lines.next().unwrap().split(' ').nth(1).unwrap().to_owned();
        let headers = lines.take_while(|line| !line.is_empty()).filter_map(|line| line.split_once(": "));
        let headers = headers.filter(|(name, _)| !name.eq_ignore_ascii_case("content-length"));
        let headers = headers.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        CapturedRequest { path, headers, body: std::fs::read(format!("{name}.body")).unwrap() }
    });
    requests.collect()
}

#[tokio::test]
async fn requests_of_sdks_keep_their_profiles() {
    let Some(folder) = shared_data("captures") else { return };
    let receiver = TestReceiver::new(labeling_settings());
    let mut pushes = 0;
    let mut ingests = 0;
    for request in captured_requests(&folder) {
        let headers: Vec<_> = request.headers.iter().map(|(name, value)| (&**name, &**value)).collect();
        let upload = receiver.upload(&request.path, &headers, request.body.clone()).await;
        assert_eq!(upload.tenant, Some(tenant("t1")), "{}", request.path);
        if let UploadRoute::Ingest { query, .. } = &upload.route {
            ingests += 1;
            assert_eq!(upload.body, request.body);
            assert!(query.contains("pod%3Dcart-0%2C"), "{query}");
            continue;
        }
        pushes += 1;
        let sent = PushRequest::decode(&inflate(&request.body, 1 << 24).unwrap()[..]).unwrap();
        let received = pushed(&upload);
        for (sent, received) in sent.series.iter().zip(&received.series) {
            assert_eq!(sent.samples, received.samples);
            assert!(pairs(received).starts_with(&pairs(sent)));
            assert!(pairs(received).contains(&("zone", "a")));
        }
    }
    assert!(pushes > 0 && ingests > 0);
    assert_eq!(receiver.receiver.stats().given_identities, 0);
}

#[tokio::test]
async fn export_of_a_real_profiler_only_gains_attributes() {
    let Some(folder) = shared_data("otlp") else { return };
    let body = std::fs::read(folder.join("otel-ebpf-profiler-1.10.pb")).unwrap();
    let headers = [("content-type", "application/x-protobuf")];
    let plain = TestReceiver::new(plain_settings()).upload(HTTP_EXPORT_PATH, &headers, body.clone()).await;
    let labeled = TestReceiver::new(labeling_settings()).upload(HTTP_EXPORT_PATH, &headers, body).await;
    let limits =
        athanor_profile::formats::otlp::OtlpLimits { profile: 1 << 24, total: 1 << 26, profiles: 1000 };
    let read = |upload: &Upload| {
        let export = athanor_profile::formats::otlp::read(&upload.body, &limits).unwrap();
        export.profiles.into_iter().flat_map(Result::unwrap).collect::<Vec<_>>()
    };
    let plain = read(&plain);
    let labeled = read(&labeled);
    assert_eq!(plain.len(), labeled.len());
    assert!(!plain.is_empty());
    for (plain, labeled) in plain.iter().zip(&labeled) {
        assert_eq!(plain.content, labeled.content);
        // The reader's name for a profile without a service gives way to the service of the sender.
        let sent = plain.labels.iter().filter(|(_, value)| !value.starts_with("unknown_service"));
        let lost: Vec<_> = sent.filter(|label| !labeled.labels.contains(label)).collect();
        assert!(lost.is_empty(), "{lost:?} of {:?}", labeled.labels);
        assert!(labeled.labels.contains(&("zone".into(), "a".into())));
    }
}
