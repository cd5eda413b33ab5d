//! `athanor push`.

use std::collections::BTreeMap;
use std::fs;
use std::time::{Duration, Instant};

use athanor_profile::formats::pprof;
use athanor_proto::push::v1::{PushRequest, PushResponse, RawProfileSeries};
use serde_json::Value;
use tempfile::TempDir;

use crate::fake::{Answer, Seen, Server};
use crate::{athanor, encoded, profile, run, said};

const METHOD: &str = "push.v1.PusherService/Push";

fn stored() -> Answer {
    Answer::of(&PushResponse {})
}

fn labels(series: &RawProfileSeries) -> BTreeMap<&str, &str> {
    series.labels.iter().map(|pair| (pair.name.as_str(), pair.value.as_str())).collect()
}

/// Whether a request has a profile with this function in it.
fn has(request: &Seen, function: &str) -> bool {
    let request: PushRequest = request.read();
    let samples = request.series.iter().flat_map(|series| &series.samples);
    let contains = |raw: Vec<u8>| String::from_utf8_lossy(&raw).contains(function);
    samples.map(|sample| pprof::inflate(&sample.raw_profile, 1 << 20).unwrap()).any(contains)
}

/// Files `0.pb`, `1.pb` and so on; the functions of each are named after it.
fn files(count: usize) -> (TempDir, Vec<String>) {
    let folder = tempfile::tempdir().unwrap();
    let names = (0..count).map(|i| {
        let path = folder.path().join(format!("{i}.pb"));
        fs::write(&path, encoded(&[(&format!("main;function_{i}_"), 1)])).unwrap();
        path.to_str().unwrap().to_owned()
    });
    let names = names.collect();
    (folder, names)
}

fn push<'a>(files: &'a [String], more: &[&'a str]) -> Vec<&'a str> {
    let mut args = vec!["push", "--service", "shop"];
    args.extend(more);
    args.extend(files.iter().map(String::as_str));
    args
}

#[test]
fn a_profile_arrives_with_its_labels() {
    let server = Server::start(|_, _| stored());
    let (folder, mut names) = files(1);
    let text = folder.path().join("folded.txt");
    fs::write(&text, "a;b 3\n").unwrap();
    names.push(text.to_str().unwrap().to_owned());
    let args = push(&names, &["--label", "zone=eu-1", "--tenant", "team-a", "--url", &server.url]);
    let (code, out, err) = said(&athanor(&args, &[("ATHANOR_USER", "me:pass")]));
    assert_eq!((code, err.as_str()), (0, ""), "{out}");
    assert!(out.contains("2 of 2 profiles stored for shop"), "{out}");
    let [request] = &server.seen()[..] else { panic!("one request") };
    assert_eq!(request.method, METHOD);
    assert_eq!(request.header("content-type"), Some("application/proto"));
    assert_eq!(request.header("content-encoding"), Some("gzip"));
    assert_eq!(request.header("connect-protocol-version"), Some("1"));
    assert_eq!(request.header("x-scope-orgid"), Some("team-a"));
    assert_eq!(request.header("authorization"), Some("Basic bWU6cGFzcw=="));
    let sent: PushRequest = request.read();
    let expected = [("__name__", "process_cpu"), ("service_name", "shop"), ("zone", "eu-1")];
    assert_eq!(labels(&sent.series[0]), BTreeMap::from(expected));
    assert_eq!(labels(&sent.series[1]), BTreeMap::from(expected));
    let raw = &sent.series[0].samples[0].raw_profile;
    assert!(raw.starts_with(&[0x1f, 0x8b]));
    assert_eq!(pprof::inflate(raw, 1 << 20).unwrap(), fs::read(&names[0]).unwrap());
    let id = sent.series[0].samples[0].id.clone();
    assert_eq!(id.len(), 32, "what has no time has an id");
    let mut timed = profile(&[("main", 1)]);
    timed.header.time_nanos = 1;
    fs::write(&names[1], pprof::encode(&timed)).unwrap();
    run(&push(&names, &["--metric", "made_up"]), &server.url);
    let sent: PushRequest = server.seen()[1].read();
    assert_eq!(labels(&sent.series[0])["__name__"], "made_up");
    assert_eq!((&sent.series[0].samples[0].id, sent.series[1].samples[0].id.as_str()), (&id, ""));
}

#[test]
fn many_files_go_in_batches() {
    let server = Server::start(|_, _| stored());
    let (_folder, names) = files(150);
    let (code, out, err) = run(&push(&names, &["--json"]), &server.url);
    assert_eq!((code, err.as_str()), (0, ""));
    let said: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((said["files"].as_i64(), said["stored"].as_i64()), (Some(150), Some(150)));
    let mut sizes: Vec<usize> =
        server.seen().iter().map(|request| request.read::<PushRequest>().series.len()).collect();
    sizes.sort_unstable();
    assert_eq!(sizes, [22, 64, 64]);
    for i in 0..150 {
        let times = server.seen().iter().filter(|request| has(request, &format!("function_{i}_"))).count();
        assert_eq!(times, 1, "{i}");
    }
}

#[test]
fn what_fails_for_now_is_sent_again_when_the_server_says() {
    let server = Server::start(|_, before| match before {
        0 => Answer::error(503, "unavailable", "starting"),
        1 => Answer::error(429, "resource_exhausted", "slow down").with("retry-after", "1"),
        _ => stored(),
    });
    let (_folder, names) = files(1);
    #[expect(clippy::disallowed_methods, reason = "the pause is of a real process")]
    let began = Instant::now();
    let (code, out, err) = run(&push(&names, &[]), &server.url);
    assert_eq!(code, 0, "{err}");
    assert!(began.elapsed() >= Duration::from_secs(1));
    assert!(
        out.contains("1 of 1 profiles stored") && err.contains("unavailable: starting; retrying"),
        "{err}"
    );
    assert_eq!(server.seen().len(), 3);
    let bodies: Vec<_> = server.seen().into_iter().map(|request| request.body).collect();
    assert!(bodies.iter().all(|body| *body == bodies[0]), "the same again, so that it counts once");
}

#[test]
fn a_server_that_stays_full_is_left() {
    let server = Server::start(|_, _| Answer::error(429, "resource_exhausted", "over the rate"));
    let (_folder, names) = files(3);
    let (code, out, err) = run(&push(&names, &["--retries", "1"]), &server.url);
    assert_eq!((code, out.as_str()), (75, ""));
    assert!(err.contains("over the rate; 3 of 3 files may not be stored, retry the push"), "{err}");
    assert_eq!(server.seen().len(), 2);
    let server =
        Server::start(|_, _| Answer::error(429, "resource_exhausted", "later").with("retry-after", "900"));
    let (code, _, err) = run(&push(&names, &[]), &server.url);
    assert!(code == 75 && err.contains("retry after 15m"), "{err}");
    assert_eq!(server.seen().len(), 1);
}

#[test]
fn each_refused_file_is_named_with_the_reason() {
    let server = Server::start(|request, _| match has(request, "function_3_") {
        true => Answer::error(400, "invalid_argument", "profile is too old"),
        false => stored(),
    });
    let (folder, mut names) = files(6);
    let words = folder.path().join("words");
    fs::write(&words, "no profile\n").unwrap();
    names.push(words.to_str().unwrap().to_owned());
    let (code, out, err) = run(&push(&names, &["--json"]), &server.url);
    assert_eq!(code, 65);
    let said: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(said["stored"].as_i64(), Some(5));
    let refused = said["rejected"].as_array().unwrap();
    assert_eq!(refused.len(), 2, "{said}");
    assert_eq!(refused[0]["file"].as_str(), Some(names[3].as_str()));
    assert!(
        refused[0]["message"].as_str().unwrap().contains("invalid_argument: profile is too old"),
        "{said}"
    );
    assert_eq!(refused[1]["file"].as_str(), Some(names[6].as_str()));
    assert!(
        err.contains(&format!("{}: {}: invalid_argument: profile is too old", names[3], server.url)),
        "{err}"
    );
    assert!(err.contains("2 of 7 files were rejected, the others are stored"), "{err}");
    for i in [0, 1, 2, 4, 5] {
        let alone = |request: &&Seen| has(request, &format!("function_{i}_")) && !has(request, "function_3_");
        assert_eq!(server.seen().iter().filter(alone).count(), 1, "{i} is stored");
    }
}

#[test]
fn who_may_not_is_told_at_once_and_no_secret_is_shown() {
    let server = Server::start(|_, _| Answer::error(401, "unauthenticated", "no such user"));
    let (_folder, names) = files(3);
    let args = push(&names, &["--url", &server.url]);
    let (code, _, err) = said(&athanor(&args, &[("ATHANOR_TOKEN", "hunter2")]));
    assert_eq!((code, server.seen().len()), (77, 1), "{err}");
    assert_eq!(server.seen()[0].header("authorization"), Some("Bearer hunter2"));
    assert!(err.contains("unauthenticated: no such user") && !err.contains("hunter2"), "{err}");
    let both = said(&athanor(&args, &[("ATHANOR_TOKEN", "hunter2"), ("ATHANOR_USER", "me:secret")]));
    assert!(both.0 == 65 && !both.2.contains("hunter2") && !both.2.contains("secret"), "{}", both.2);
    let help = said(&athanor(&["push", "--help"], &[("ATHANOR_TOKEN", "hunter2")])).1;
    assert!(help.contains("ATHANOR_TOKEN") && !help.contains("hunter2"), "{help}");
}

#[test]
fn files_that_are_no_profiles_need_no_server() {
    let (folder, _) = files(0);
    let path = folder.path().join("missing");
    let (code, _, err) = run(&["push", "--service", "shop", path.to_str().unwrap()], "http://127.0.0.1:1");
    assert!(code == 66 && err.contains("missing: No such file"), "{err}");
    assert_eq!(run(&["push", path.to_str().unwrap()], "http://127.0.0.1:1").0, 64);
}
