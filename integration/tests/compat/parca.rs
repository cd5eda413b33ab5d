//! A client of Parca, and one of Pyroscope that uploads binaries: profiles are found with their exact totals, and the bytes of
//! files in the bucket are those that were sent, whatever clients do in between.

use std::io;
use std::path::Path;

use athanor_chassis::{ByteSize, Clock};
use athanor_integration::bodies::{grpc_frame, gzip};
use athanor_integration::clients::{copy_files, run_program};
use athanor_integration::report_skipped;
use athanor_integration::server::{RESPONSE_DEADLINE, TestServer};
use athanor_proto::google::v1::{Function, Line, Location, Mapping, Profile, Sample, ValueType};
use athanor_proto::parca::debuginfo::v1alpha1 as debuginfo;
use athanor_proto::parca::debuginfo::v1alpha1::upload_request::Data;
use athanor_proto::parca::profilestore::v1alpha1 as profilestore;
use athanor_server::send_admin_request;
use bytes::Bytes;
use futures::stream::{self, Stream, StreamExt};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message;
use serde_json::{Value, json};

const STORE: &str = "parca.profilestore.v1alpha1.ProfileStoreService";
const DEBUGINFO: &str = "parca.debuginfo.v1alpha1.DebuginfoService";
const BUILD: &str = "0123456789abcdef";

/// Bytes of a body; an error resets the stream.
type Piece = Result<Frame<Bytes>, io::Error>;

/// What a call came to: the message, or the status and what is said of it.
type Answered<M> = Result<M, (u16, String)>;

/// One call on a connection of its own.
#[expect(clippy::disallowed_methods, reason = "a client as others have it")]
async fn sent<M: Message + Default>(
    server: &TestServer,
    path: String,
    tenant: &str,
    body: impl Stream<Item = Piece> + Send + 'static,
) -> Result<Answered<M>, hyper::Error> {
    let stream = tokio::net::TcpStream::connect(server.address).await.unwrap();
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    let request = http::Request::post(format!("http://{}/{path}", server.address))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .header("x-scope-orgid", tenant)
        .body(StreamBody::new(Box::pin(body)))
        .unwrap();
    let (head, body) = sender.send_request(request).await?.into_parts();
    let collected = body.collect().await?;
    let trailers = collected.trailers().cloned().unwrap_or_default();
    let told = |name: &str| {
        let value = trailers.get(name).or_else(|| head.headers.get(name));
        value.map_or("", |value| value.to_str().unwrap()).to_owned()
    };
    let bytes = collected.to_bytes();
    Ok(match told("grpc-status").parse().unwrap() {
        0 => Ok(M::decode(&bytes[5..]).unwrap()),
        status => Err((status, told("grpc-message"))),
    })
}

/// A call with one message.
async fn call<M: Message + Default>(
    server: &TestServer,
    path: &str,
    tenant: &str,
    message: impl Message,
) -> Answered<M> {
    let body = stream::iter([Ok(Frame::data(grpc_frame(&message.encode_to_vec(), false)))]);
    sent(server, path.to_owned(), tenant, body).await.unwrap()
}

/// 10 in `main;work` and 32 in `main`, of a mapping with a build id, at a time.
fn profile(time_nanos: i64) -> Vec<u8> {
    let texts = ["", "samples", "count", "cpu", "nanoseconds", "main", "work", "/bin/app", BUILD];
    let location = |id| Location {
        id,
        mapping_id: 1,
        address: 0x1000 * id,
        line: vec![Line { function_id: id, line: 1, ..Line::default() }],
        ..Location::default()
    };
    let function = |id, name| Function { id, name, filename: 7, ..Function::default() };
    let sample = |location_id: &[u64], value| Sample {
        location_id: location_id.to_vec(),
        value: vec![value],
        label: vec![],
    };
    Profile {
        sample_type: vec![ValueType { r#type: 1, unit: 2 }],
        sample: vec![sample(&[2, 1], 10), sample(&[1], 32)],
        mapping: vec![Mapping { id: 1, filename: 7, build_id: 8, ..Mapping::default() }],
        location: vec![location(1), location(2)],
        function: vec![function(1, 5), function(2, 6)],
        string_table: texts.map(str::to_owned).to_vec(),
        time_nanos,
        duration_nanos: 10_000_000_000,
        period_type: Some(ValueType { r#type: 3, unit: 4 }),
        period: 52_631_578,
        ..Profile::default()
    }
    .encode_to_vec()
}

/// 10 and 32 in code that has no names, at normalized addresses of a library that is mapped elsewhere.
fn profile_without_names(time_nanos: i64) -> Vec<u8> {
    let mut sent = Profile::decode(&profile(time_nanos)[..]).unwrap();
    (sent.mapping[0].memory_start, sent.mapping[0].memory_limit) = (0x55_0000_0000, 0x55_0001_0000);
    sent.location.iter_mut().for_each(|location| location.line.clear());
    sent.function.clear();
    sent.encode_to_vec()
}

/// The names of a flame graph of a service, and the addresses of its merged pprof.
fn names(server: &TestServer, service: &str, addresses: bool) -> (Vec<String>, Vec<u64>) {
    let cpu = "parca_agent:samples:count:cpu:nanoseconds";
    let query = format!("{cpu}%7Bservice_name%3D%22{service}%22%7D");
    let path = format!("/pyroscope/render?query={query}&from=now-1h&until=now%2B1m&addresses={addresses}");
    let graph: Value = serde_json::from_slice(&server.get(&path, &[]).body).unwrap();
    let names = graph["flamebearer"]["names"].as_array().unwrap().iter();
    let names = names.map(|name| name.as_str().unwrap().to_owned()).collect();
    let now = Clock::system().wall().millis();
    let asked = json!({
        "profileTypeID": cpu, "labelSelector": format!("{{service_name=\"{service}\"}}"),
        "start": now - 3_600_000, "end": now + 60_000,
    });
    let headers = [("content-type", "application/json")];
    let path = "/querier.v1.QuerierService/SelectMergeProfile";
    let merged = server.post(path, &headers, asked.to_string().as_bytes());
    let merged: Value = serde_json::from_slice(&merged.body).unwrap();
    let locations = merged["location"].as_array().unwrap().iter();
    let mut addresses: Vec<u64> =
        locations.map(|location| location["address"].as_str().unwrap().parse().unwrap()).collect();
    addresses.sort_unstable();
    (names, addresses)
}

/// A series as an agent labels it.
fn series(labels: &[(&str, &str)], profiles: &[Vec<u8>]) -> profilestore::RawProfileSeries {
    let labels = labels
        .iter()
        .map(|(name, value)| profilestore::Label { name: (*name).to_owned(), value: (*value).to_owned() });
    let info = || profilestore::ExecutableInfo {
        elf_type: 3,
        load_segment: Some(profilestore::LoadSegment { offset: 0x1000, vaddr: 0x1000 }),
    };
    let samples = profiles.iter().map(|profile| profilestore::RawSample {
        raw_profile: profile.clone().into(),
        executable_info: vec![info()],
    });
    let labels = Some(profilestore::LabelSet { labels: labels.collect() });
    profilestore::RawProfileSeries { labels, samples: samples.collect() }
}

/// The total of a type, of what a selector selects.
fn total(server: &TestServer, profile_type: &str, selector: &str) -> u64 {
    let now = Clock::system().wall().millis();
    let asked = json!({
        "profileTypeID": profile_type, "labelSelector": selector, "start": now - 3_600_000, "end": now + 60_000,
    });
    let headers = [("content-type", "application/json")];
    let path = "/querier.v1.QuerierService/SelectMergeStacktraces";
    let answer = server.post(path, &headers, asked.to_string().as_bytes());
    let answer: Value = serde_json::from_slice(&answer.body).unwrap();
    answer["flamegraph"]["total"].as_str().map_or(0, |total| total.parse().unwrap())
}

#[test]
fn profiles_of_an_agent_are_found_with_their_totals() {
    let server = TestServer::start(|_| {});
    let now = Clock::system().wall().nanos();
    let agent = [("__name__", "parca_agent"), ("node", "n1"), ("comm", "app"), ("container", "shop")];
    let write = |series| {
        let request = profilestore::WriteRawRequest { series, normalized: true, ..Default::default() };
        let path = format!("{STORE}/WriteRaw");
        server.runtime.block_on(call::<profilestore::WriteRawResponse>(&server, &path, "anonymous", request))
    };
    let (plain, compressed) = (profile(now - 2_000_000_000), gzip(&profile(now - 1_000_000_000)));
    write(vec![series(&agent, &[plain, compressed])]).unwrap();
    let cpu = "parca_agent:samples:count:cpu:nanoseconds";
    assert_eq!(total(&server, cpu, "{service_name=\"shop\",node=\"n1\",comm=\"app\"}"), 2 * 42);
    assert_eq!(total(&server, &format!("{cpu}:delta"), "{service_name=\"shop\"}"), 2 * 42);

    // Addresses are kept as they were sent, from heads and from blocks.
    let bare = [("__name__", "parca_agent"), ("comm", "bare")];
    write(vec![series(&bare, &[profile_without_names(now)])]).unwrap();
    let binary = format!("app@{}", &BUILD[..8]);
    for is_flushed in [false, true] {
        if is_flushed {
            server.runtime.block_on(send_admin_request(server.folder.path(), "/flush")).unwrap();
        }
        let (by_binary, sent) = names(&server, "bare", false);
        assert_eq!((by_binary, sent), (vec!["total".to_owned(), binary.clone()], vec![0x1000, 0x2000]));
        let (mut by_address, _) = names(&server, "bare", true);
        by_address.sort();
        let expected = [format!("{binary}+0x1000"), format!("{binary}+0x2000"), "total".to_owned()];
        assert_eq!(by_address, expected);
        let folded = |addresses: bool| {
            let query = format!("{cpu}%7Bservice_name%3D%22bare%22%7D&from=now-1h&until=now%2B1m");
            let path = format!("/athanor/export?query={query}&format=folded&addresses={addresses}");
            server.get(&path, &[]).text().to_owned()
        };
        assert!(folded(false).contains(&binary) && !folded(false).contains("+0x"));
        assert!(folded(true).contains(&format!("{binary}+0x1000")), "{}", folded(true));
    }

    // What a gateway would take: JSON, whatever it is said to be.
    let of_gateway = series(&[("__name__", "parca_agent"), ("job", "gateway")], &[profile(now)]);
    let request = profilestore::WriteRawRequest { series: vec![of_gateway], ..Default::default() };
    let json = serde_json::to_vec(&request).unwrap();
    let headers = [("content-type", "application/x-www-form-urlencoded")];
    let answer = server.post("/profiles/writeraw", &headers, &json);
    assert_eq!((answer.status, answer.text()), (200, "{}"));
    assert_eq!(total(&server, cpu, "{service_name=\"gateway\"}"), 42);

    let (status, said) = write(vec![series(&[("job", "x")], &[profile(now)])]).unwrap_err();
    assert!(status == 3 && said.contains("__name__"), "{status} {said}");
    let twice = [("__name__", "a"), ("pod", "1"), ("pod", "2")];
    let (status, said) = write(vec![series(&twice, &[profile(now)])]).unwrap_err();
    assert!(status == 3 && said.contains("pod"), "{status} {said}");
    let (status, _) = write(vec![series(&agent, &[b"no pprof".to_vec()])]).unwrap_err();
    assert_eq!(status, 3);
}

#[test]
fn columns_are_refused_before_they_have_come() {
    let server = TestServer::start(|_| {});
    for method in ["Write", "WriteArrow"] {
        let begun = stream::iter([Ok(Frame::data(grpc_frame(b"\x0a\x01x", false)))]).chain(stream::pending());
        let answer = sent::<profilestore::WriteRawResponse>(&server, format!("{STORE}/{method}"), "t", begun);
        let answer = server.runtime.block_on(answer).unwrap().unwrap_err();
        assert!(answer.0 == 12 && answer.1.contains("WriteRaw"), "{answer:?}");
    }
}

/// A client of debug information.
struct Uploader<'a> {
    server: &'a TestServer,
    tenant: &'a str,
}

impl Uploader<'_> {
    fn ask<M: Message + Default>(&self, method: &str, message: impl Message) -> Answered<M> {
        let path = format!("{DEBUGINFO}/{method}");
        self.server.runtime.block_on(call(self.server, &path, self.tenant, message))
    }

    fn wanted(&self, hash: &str, force: bool) -> (bool, String) {
        let (build_id, hash) = (BUILD.to_owned(), hash.to_owned());
        let asked = debuginfo::ShouldInitiateUploadRequest { build_id, hash, force, ..Default::default() };
        let answer: debuginfo::ShouldInitiateUploadResponse =
            self.ask("ShouldInitiateUpload", asked).unwrap();
        (answer.should_initiate_upload, answer.reason)
    }

    fn initiate(&self, hash: &str, size: i64, force: bool) -> Answered<String> {
        let (build_id, hash) = (BUILD.to_owned(), hash.to_owned());
        let asked = debuginfo::InitiateUploadRequest { build_id, hash, size, force, ..Default::default() };
        let answer: debuginfo::InitiateUploadResponse = self.ask("InitiateUpload", asked)?;
        let instructions = answer.upload_instructions.unwrap();
        assert_eq!((instructions.build_id.as_str(), instructions.upload_strategy), (BUILD, 1));
        Ok(instructions.upload_id)
    }

    /// Sends these chunks; then it goes on as `end` does.
    fn send(
        &self,
        upload_id: &str,
        bytes: &[u8],
        end: impl Stream<Item = Piece> + Send + 'static,
    ) -> Result<Answered<debuginfo::UploadResponse>, hyper::Error> {
        let (build_id, upload_id) = (BUILD.to_owned(), upload_id.to_owned());
        let info = debuginfo::UploadInfo { build_id, upload_id, ..Default::default() };
        let chunks = bytes.chunks(1 << 20).map(|chunk| Data::ChunkData(Bytes::copy_from_slice(chunk)));
        let messages = std::iter::once(Data::Info(info)).chain(chunks);
        let frame = |data| {
            let message = debuginfo::UploadRequest { data: Some(data) };
            Ok(Frame::data(grpc_frame(&message.encode_to_vec(), false)))
        };
        let pieces: Vec<Piece> = messages.map(frame).collect();
        let body = stream::iter(pieces).chain(end);
        let path = format!("{DEBUGINFO}/Upload");
        self.server.runtime.block_on(sent(self.server, path, self.tenant, body))
    }

    fn upload(&self, upload_id: &str, bytes: &[u8]) -> Answered<u64> {
        Ok(self.send(upload_id, bytes, stream::empty()).unwrap()?.size)
    }

    fn finish(&self, upload_id: &str) -> Answered<debuginfo::MarkUploadFinishedResponse> {
        let (build_id, upload_id) = (BUILD.to_owned(), upload_id.to_owned());
        let asked = debuginfo::MarkUploadFinishedRequest { build_id, upload_id, ..Default::default() };
        self.ask("MarkUploadFinished", asked)
    }
}

/// An ELF file, as far as its beginning goes.
fn elf(size: usize, fill: u8) -> Vec<u8> {
    let mut bytes = b"\x7fELF".to_vec();
    bytes.extend((4..size).map(|place| fill.wrapping_add((place % 251) as u8)));
    bytes
}

/// The names below a folder of the bucket, and the bytes of parts, in their order.
fn kept(server: &TestServer, tenant: &str, kind: &str) -> (Vec<String>, Vec<u8>) {
    let folder = server.folder.path().join("bucket/debuginfo").join(tenant).join(BUILD).join(kind);
    let mut names: Vec<String> = entries(&folder);
    names.sort();
    let parts = names.iter().filter(|name| name.split('.').count() == 3);
    // A part may be removed meanwhile: then its bytes are none.
    let read = |name: &String| match std::fs::read(folder.join(name)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        read => read.unwrap(),
    };
    let bytes = parts.flat_map(read).collect();
    (names.iter().map(|name| name.split_once('.').unwrap().1.to_owned()).collect(), bytes)
}

fn entries(folder: &Path) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

#[test]
fn debug_information_is_offered_sent_and_kept() {
    let mut machine = None;
    let server = TestServer::start_on(|_| {}, |system| machine = Some(system.clock.clone()));
    let machine = machine.unwrap();
    let agent = Uploader { server: &server, tenant: "anonymous" };
    assert!(agent.wanted("", false).0);
    let first = agent.initiate("hash", 5, false).unwrap();
    let (wanted, reason) = agent.wanted("", false);
    assert!(!wanted && reason.contains("in-progress"), "{reason}");
    assert_eq!(agent.initiate("hash", 5, false).unwrap_err().0, 9);
    assert_eq!(agent.finish(&first).unwrap_err().0, 9, "nothing was sent");
    // It took too long.
    machine.jump_wall_time(18 * 60 * 1_000_000_000);
    let (wanted, reason) = agent.wanted("", false);
    assert!(wanted && reason.contains("stale"), "{reason}");
    assert_eq!(agent.upload(&first, &elf(9, 0)).unwrap_err().0, 9);
    let bytes = elf((9 << 20) + 77, 3);
    let second = agent.initiate("hash", bytes.len() as i64, false).unwrap();
    let (status, said) = agent.upload(&second, &elf(9, 0)).unwrap_err();
    assert!(status == 3 && said.contains("9437261 were announced"), "{status} {said}");
    assert_eq!(agent.upload(&second, &bytes).unwrap(), bytes.len() as u64);
    agent.finish(&second).unwrap();
    let (names, stored) = kept(&server, "anonymous", "debuginfo");
    assert!(stored == bytes && names.len() == 6, "{names:?}");
    let (wanted, reason) = agent.wanted("", false);
    assert!(!wanted && reason.contains("already exists"), "{reason}");
    // Forced, with what is no binary: then the same again is refused, and another one is not.
    let forced = agent.initiate("bad", 9, true).unwrap();
    agent.upload(&forced, b"#!/bin/sh").unwrap();
    agent.finish(&forced).unwrap();
    assert!(!agent.wanted("bad", false).0);
    assert_eq!(agent.initiate("bad", 5, false).unwrap_err().0, 6);
    let last = agent.initiate("good", 100, false).unwrap();
    agent.upload(&last, &elf(100, 1)).unwrap();
    agent.finish(&last).unwrap();
    let (names, stored) = kept(&server, "anonymous", "debuginfo");
    assert!(stored == elf(100, 1) && names.len() == 4, "{names:?}");
    let metrics = server.get("/metrics", &[]);
    for line in [
        "athanor_symbolizer_debuginfo_uploads_total{stage=\"complete\"} 2",
        "athanor_symbolizer_debuginfo_uploads_total{stage=\"invalid\"} 1",
        "athanor_symbolizer_debuginfo_rejected_total{reason=\"already_exists\"} 1",
    ] {
        assert!(metrics.text().contains(line), "{line}");
    }
}

#[test]
fn an_upload_that_is_cut_off_leaves_nothing_and_may_be_sent_again() {
    let server = TestServer::start(|config| config.limits.debuginfo_max_file_bytes = ByteSize::mib(12));
    let agent = Uploader { server: &server, tenant: "anonymous" };
    let bytes = elf(9 << 20, 1);
    let id = agent.initiate("hash", bytes.len() as i64, false).unwrap();
    let gone = || io::Error::from(io::ErrorKind::ConnectionReset);
    let cut = agent.send(&id, &bytes, stream::iter([Err(gone())]));
    assert!(cut.is_err(), "{cut:?}");
    let within = agent.send(
        &id,
        &elf(5 << 20, 1),
        stream::iter([Ok(Frame::data(grpc_frame(b"x", false).slice(..3)))]),
    );
    assert_eq!(within.unwrap().unwrap_err().0, 3, "the body ends within a message");
    let (status, said) = agent.upload(&id, &elf((12 << 20) + 1, 1)).unwrap_err();
    assert!(status == 8 && said.contains("limits.debuginfo_max_file_bytes"), "{status} {said}");
    assert_eq!(agent.initiate("hash", 12 << 21, true).unwrap_err().0, 3);
    // Nobody waits for the parts to go.
    let clock = Clock::system();
    server.runtime.block_on(async {
        let until = clock.monotonic() + RESPONSE_DEADLINE;
        while kept(&server, "anonymous", "debuginfo").0 != ["started"] {
            assert!(clock.monotonic() < until, "{:?}", kept(&server, "anonymous", "debuginfo").0);
            tokio::task::yield_now().await;
        }
    });
    agent.upload(&id, &bytes).unwrap();
    agent.finish(&id).unwrap();
    assert!(kept(&server, "anonymous", "debuginfo").1 == bytes);
}

#[test]
fn tenants_have_debug_information_of_their_own() {
    let server = TestServer::start(|config| config.multitenancy_enabled = true);
    let [first, second] = ["a", "b"].map(|tenant| Uploader { server: &server, tenant });
    let id = first.initiate("hash", 20, false).unwrap();
    assert!(second.wanted("", false).0);
    assert_eq!(second.upload(&id, &elf(9, 9)).unwrap_err().0, 9);
    assert_eq!(second.finish(&id).unwrap_err().0, 5);
    first.upload(&id, &elf(20, 1)).unwrap();
    first.finish(&id).unwrap();
    assert!(second.wanted("", false).0);
    let own = second.initiate("hash", 30, true).unwrap();
    second.upload(&own, &elf(30, 2)).unwrap();
    second.finish(&own).unwrap();
    assert_eq!(kept(&server, "a", "debuginfo").1, elf(20, 1));
    assert_eq!(kept(&server, "b", "debuginfo").1, elf(30, 2));
    let nobody = Uploader { server: &server, tenant: "" };
    assert_eq!(nobody.upload(&id, &elf(9, 9)).unwrap_err().0, 16);
    let answer = server.post(&format!("/debuginfo.v1alpha1.DebuginfoService/Upload/{BUILD}"), &[], b"x");
    assert_eq!(answer.status, 401);
}

#[test]
fn binaries_in_the_words_of_pyroscope_are_kept_beside() {
    let server = TestServer::start(|_| {});
    let ask = |method: &str, question: Value| {
        let headers = [("content-type", "application/json")];
        let path = format!("/debuginfo.v1alpha1.DebuginfoService/{method}");
        let answer = server.post(&path, &headers, question.to_string().as_bytes());
        (answer.status, serde_json::from_slice::<Value>(&answer.body).unwrap())
    };
    let upload = |id: &str, bytes: &[u8]| {
        let answer = server.post(&format!("/debuginfo.v1alpha1.DebuginfoService/Upload/{id}"), &[], bytes);
        (answer.status, answer.text().to_owned())
    };
    let file = json!({ "file": { "gnuBuildId": BUILD, "name": "app", "otelFileId": "f00d" } });
    let id = json!({ "gnuBuildId": BUILD });
    let (status, said) = upload(BUILD, &elf(9, 0));
    assert!(status == 412 && said.contains("no pending upload"), "{status} {said}");
    assert_eq!(upload("nothex", b"x").0, 400);
    assert_eq!(ask("ShouldInitiateUpload", file.clone()).1["shouldInitiateUpload"], true);
    assert_eq!(ask("ShouldInitiateUpload", file.clone()).1.get("shouldInitiateUpload"), None);
    assert_eq!(ask("UploadFinished", id.clone()).0, 400);
    let bytes = elf((5 << 20) + 3, 5);
    assert_eq!(upload(BUILD, &bytes), (200, String::new()));
    assert_eq!(ask("UploadFinished", id.clone()), (200, json!({})));
    assert_eq!(upload(BUILD, &bytes).0, 412);
    assert!(kept(&server, "anonymous", "executable").1 == bytes);
    let listed = ask("ListDebuginfo", json!({})).1["object"][0].clone();
    assert_eq!(listed["file"], json!({ "gnuBuildId": BUILD, "name": "app", "otelFileId": "f00d" }));
    assert_eq!(
        (&listed["state"], &listed["sizeBytes"]),
        (&json!("STATE_UPLOADED"), &json!(bytes.len().to_string()))
    );
    assert!(listed["finishedAt"].as_str().unwrap().ends_with('Z'), "{listed}");
    // Of another kind is a file of its own.
    let agent = Uploader { server: &server, tenant: "anonymous" };
    assert!(agent.wanted("", false).0);
    let plain = json!({ "build_id": BUILD, "type": "DEBUGINFO_TYPE_EXECUTABLE" }).to_string();
    let plain = server.post("/shouldinitiateupload", &[], plain.as_bytes());
    assert!(plain.status == 200 && plain.text().contains("already exists"), "{}", plain.text());
    assert_eq!(ask("DeleteDebuginfo", id).0, 200);
    assert!(kept(&server, "anonymous", "executable").0.is_empty());
    assert_eq!(ask("ShouldInitiateUpload", file).1["shouldInitiateUpload"], true);
}

/// Parca's own client, unmodified, in an environment that is thrown away.
#[test]
fn the_client_of_parca_is_understood() {
    let environment = tempfile::tempdir().unwrap();
    let folder = environment.path();
    let prepared = || {
        run_program("node", &["--version"], folder)?;
        copy_files("parca", &["package.json", "upload.mjs"], folder)?;
        run_program("npm", &["install", "--silent", "--no-audit", "--no-fund"], folder)?;
        // As it is published it can be read by bundlers only.
        let bundled = ["--bundle", "--platform=node", "--format=cjs"];
        let bundle = [&["upload.mjs", "--outfile=bundle.cjs"][..], &bundled].concat();
        run_program("node_modules/.bin/esbuild", &bundle, folder)
    };
    if let Err(why) = prepared() {
        return report_skipped("no client of Parca", &why);
    }
    let server = TestServer::start(|_| {});
    let binary = elf((6 << 20) + 5, 11);
    std::fs::write(folder.join("profile"), gzip(&profile(Clock::system().wall().nanos()))).unwrap();
    std::fs::write(folder.join("binary"), &binary).unwrap();
    let host = server.address.to_string();
    run_program("node", &["bundle.cjs", &host, "profile", "binary"], folder).unwrap();
    let cpu = "parca_agent:samples:count:cpu:nanoseconds:delta";
    assert_eq!(total(&server, cpu, "{service_name=\"parca-busy\"}"), 42);
    assert!(kept(&server, "anonymous", "debuginfo").1 == binary);
}
