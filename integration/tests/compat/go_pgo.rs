//! The Go compiler builds with what a server answers for it, and inlines what the profiles say is hot: uploads that came by
//! HTTP, lie in blocks and are asked for by HTTP.

use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

use athanor_integration::report_skipped;
use athanor_integration::server::{HttpResponse, TestServer};
use athanor_profile::data_model::symbols::{Function, Line, NO_ENTRY};
use athanor_profile::formats::pprof::encode;
use athanor_profile::{Profile, ValueType};
use athanor_proto::google::v1 as google;
use athanor_proto::push::v1::{PushRequest, RawProfileSeries, RawSample};
use athanor_proto::querier::v1::{
    ProfileFormat, SelectMergeProfileRequest, SelectMergeStacktracesRequest, SelectMergeStacktracesResponse,
};
use athanor_proto::types::v1::{GoPgo, LabelPair, StackTraceSelector};
use athanor_server::send_admin_request;
use prost::Message;

const TYPE: &str = "process_cpu:cpu:nanoseconds:cpu:nanoseconds";
const SELECTOR: &str = "{service_name=\"weigher\"}";
/// Of the first upload, Unix milliseconds; one comes each second.
const BEGIN: i64 = 1_900_000_000_000;
/// Uploads of each pod that lie in a block.
const UPLOADS: i64 = 3;
const PODS: [&str; 2] = ["one", "two"];
/// As often all is cut, so that there are that many blocks.
const CUTS: i64 = 2;

/// `weigh` is too large to be inlined unless it is known to be hot.
fn program() -> String {
    let step = "\tif value%3 == 1 {\n\t\tsum += value * 5\n\t} else if sum > 9000 {\n\t\tsum /= 3\n\t}\n";
    format!(
        "package main\n\nfunc weigh(value, sum int) int {{\n{}\treturn sum\n}}\n\nfunc main() {{\n\ttotal := 0\n\tfor round := 0; round < 1000; round++ {{\n\t\ttotal = weigh(round, total)\n\t}}\n\tprintln(total)\n}}\n",
        step.repeat(8)
    )
}

/// The line on which something stands, counted from 1.
fn line_of(program: &str, text: &str) -> i64 {
    program.lines().position(|line| line.contains(text)).expect("it is there") as i64 + 1
}

/// `main` calls `weigh` where it does, and nothing else takes time: so much on one line of it, and as much on the next.
fn profile(program: &str, second: i64, value: i64) -> Profile {
    let mut profile = Profile::default();
    profile.header.types = vec![ValueType::new("cpu", "nanoseconds")];
    profile.header.period_type = Some(ValueType::new("cpu", "nanoseconds"));
    profile.header.time_nanos = (BEGIN + second * 1_000) * 1_000_000;
    let mut at = |name: &str, begins: &str, at: i64| {
        let symbols = &mut profile.dictionary.symbols;
        let (name, filename) = (symbols.strings.intern(name), symbols.strings.intern("main.go"));
        let start_line = line_of(program, begins);
        let function = symbols.intern_function(Function { name, system_name: name, filename, start_line });
        symbols.intern_location(NO_ENTRY, 0, false, &[Line { function, line: at, column: 0 }])
    };
    let main = at("main.main", "func main", line_of(program, "= weigh"));
    let lines = [1, 2].map(|after| line_of(program, "func weigh") + second % 5 + after);
    let leaves = lines.map(|line| at("main.weigh", "func weigh", line));
    let outer = at("runtime.main", "func main", 3);
    for leaf in leaves {
        let path = [leaf, main, outer];
        let stack = profile.dictionary.stacks.intern(&profile.dictionary.symbols, &path);
        profile.samples.push(stack, 0, &[value]);
    }
    profile
}

fn asked<R: Message + Default>(server: &TestServer, path: &str, question: &impl Message) -> R {
    let headers = [("content-type", "application/proto")];
    let HttpResponse { status, body, .. } = server.post(path, &headers, &question.encode_to_vec());
    assert_eq!(status, 200, "{path}: {}", String::from_utf8_lossy(&body));
    R::decode(body.as_slice()).expect("an answer")
}

/// Sends an upload of each pod; what they add up to.
fn push(server: &TestServer, program: &str, second: i64) -> i64 {
    let mut sum = 0;
    let series = PODS.iter().enumerate().map(|(place, pod)| {
        let value = 1_000_000_000 + 7 * second + place as i64;
        sum += 2 * value;
        let labels = [("__name__", "process_cpu"), ("service_name", "weigher"), ("pod", pod)];
        let pair = |(name, value): (&str, &str)| LabelPair { name: name.to_owned(), value: value.to_owned() };
        let raw_profile = encode(&profile(program, second, value)).into();
        RawProfileSeries {
            labels: labels.map(pair).to_vec(),
            samples: vec![RawSample { raw_profile, ..RawSample::default() }],
            ..RawProfileSeries::default()
        }
    });
    let question = PushRequest { series: series.collect() };
    let _: athanor_proto::push::v1::PushResponse = asked(server, "/push.v1.PusherService/Push", &question);
    sum
}

/// A server on which all of it lies in blocks, and what it adds up to.
fn stored(program: &str) -> (TestServer, i64) {
    let server = TestServer::start(|config| {
        config.limits.reject_older_than = Duration::ZERO;
        config.limits.reject_newer_than = Duration::ZERO;
    });
    let mut sum = 0;
    for cut in 0..CUTS {
        sum += (0..UPLOADS).map(|upload| push(&server, program, cut * UPLOADS + upload)).sum::<i64>();
        server.runtime.block_on(send_admin_request(server.folder.path(), "/flush")).expect("heads are cut");
    }
    let roles = server.node.roles();
    assert!(!roles.ingester.as_ref().expect("it keeps profiles").has_unflushed());
    let blocks = server.runtime.block_on(roles.catalog.blocks()).expect("a list");
    assert_eq!(blocks.len() as i64, CUTS);
    (server, sum)
}

/// What the server answers for the compiler, asked in either way: once with all that is stored.
fn answered(server: &TestServer, sum: i64) -> google::Profile {
    let go_pgo = Some(GoPgo { keep_locations: 2, aggregate_callees: true });
    let selector = Some(StackTraceSelector { go_pgo, ..StackTraceSelector::default() });
    let (start, end) = (BEGIN, BEGIN + CUTS * UPLOADS * 1_000);
    let merged: google::Profile = asked(
        server,
        "/querier.v1.QuerierService/SelectMergeProfile",
        &SelectMergeProfileRequest {
            profile_type_id: TYPE.to_owned(),
            label_selector: SELECTOR.to_owned(),
            start,
            end,
            stack_trace_selector: selector.clone(),
            ..SelectMergeProfileRequest::default()
        },
    );
    let in_format: SelectMergeStacktracesResponse = asked(
        server,
        "/querier.v1.QuerierService/SelectMergeStacktraces",
        &SelectMergeStacktracesRequest {
            profile_type_id: TYPE.to_owned(),
            label_selector: SELECTOR.to_owned(),
            start,
            end,
            format: ProfileFormat::Pprof as i32,
            stack_trace_selector: selector,
            ..SelectMergeStacktracesRequest::default()
        },
    );
    assert_eq!(in_format.pprof.and_then(|pprof| pprof.profile).as_ref(), Some(&merged));
    assert_eq!(merged.sample.len(), 1, "all leaves are one without their lines");
    assert_eq!(merged.sample[0].value, [sum]);
    assert_eq!(merged.sample[0].location_id.len(), 2, "no more is kept");
    merged
}

fn build(folder: &Path, pgo: &str) -> Output {
    let build = Command::new("go")
        .args(["build", pgo, "-gcflags=-m", "-o", "program", "."])
        .env("GOCACHE", folder.join("cache"))
        .env("GOFLAGS", "")
        .current_dir(folder)
        .output();
    build.expect("go runs")
}

#[test]
fn go_builds_with_what_a_server_answers_for_it() {
    if Command::new("go").arg("version").output().is_err() {
        report_skipped("no Go to build with", "");
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let program = program();
    std::fs::write(folder.path().join("main.go"), &program).expect("it is written");
    std::fs::write(folder.path().join("go.mod"), "module program\n\ngo 1.21\n").expect("it is written");
    let (server, sum) = stored(&program);
    let profile = answered(&server, sum).encode_to_vec();
    std::fs::write(folder.path().join("cpu.pprof"), profile).expect("it is written");
    for (pgo, is_inlined) in [("-pgo=off", false), ("-pgo=cpu.pprof", true)] {
        let built = build(folder.path(), pgo);
        let said = String::from_utf8_lossy(&built.stderr);
        assert!(built.status.success(), "{pgo}: {said}");
        assert_eq!(said.contains("inlining call to weigh"), is_inlined, "{pgo}: {said}");
    }
}
