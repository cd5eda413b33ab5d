//! Profiles of Go that count from the start of a process, fetched as scrapers fetch them: what is stored over several
//! processes is, stack by stack, what each had counted when it was asked for the last time.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use athanor_integration::clients::{copy_files, run_program};
use athanor_integration::readers::go;
use athanor_integration::report_skipped;
use athanor_integration::server::{TestServer, send_request};
use athanor_proto::push::v1::{PushRequest, RawProfileSeries, RawSample};
use athanor_proto::types::v1::LabelPair;
use prost::Message;

/// What is fetched, the name of the metric that scrapers give it, and the end of its types' names.
const KINDS: [(&str, &str, &str); 3] = [
    ("mutex", "mutex", "contentions:count"),
    ("block", "block", "contentions:count"),
    ("heap", "memory", "space:bytes"),
];
/// How much the processes work before each time that they are asked. The second one begins with less than the first has done.
const LIVES: [&[usize]; 2] = [&[8, 0, 5, 11], &[2, 3, 30]];

/// Values by stack, of each type of a metric.
type Counts = BTreeMap<String, BTreeMap<String, i64>>;

/// A process that works when it is told to.
struct Program {
    child: Child,
    address: SocketAddr,
}

impl Program {
    fn start(folder: &Path) -> Self {
        let mut command = Command::new(folder.join("counting"));
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        Self { child, address: line.trim().parse().unwrap() }
    }

    fn get(&self, path: &str) -> Vec<u8> {
        let answer = send_request(self.address, &format!("GET {path}"), &[], b"");
        assert_eq!(answer.status, 200, "{path}: {}", String::from_utf8_lossy(&answer.body));
        answer.body
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // It ends with its input.
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

fn push(server: &TestServer, metric: &str, pprof: &[u8]) {
    let pair = |(name, value): (&str, &str)| LabelPair { name: name.into(), value: value.into() };
    let labels = [("__name__", metric), ("service_name", "counting"), ("instance", "one")].map(pair).to_vec();
    let samples = vec![RawSample { raw_profile: pprof.to_vec().into(), ..RawSample::default() }];
    let series = vec![RawProfileSeries { labels, samples, ..RawProfileSeries::default() }];
    let request = PushRequest { series }.encode_to_vec();
    let answer =
        server.post("/push.v1.PusherService/Push", &[("content-type", "application/proto")], &request);
    assert_eq!(answer.status, 200, "{}", String::from_utf8_lossy(&answer.body));
}

/// All that is stored of a type, by stack.
fn stored(server: &TestServer, profile_type: &str) -> BTreeMap<String, i64> {
    let query = format!("{profile_type}%7Bservice_name%3D%22counting%22%7D");
    let answer =
        server.get(&format!("/athanor/export?query={query}&from=now-30m&until=now%2B1m&format=folded"), &[]);
    assert_eq!(answer.status, 200, "{}", answer.text());
    let line = |line: &str| {
        let (stack, value) = line.rsplit_once(' ').unwrap();
        (stack.to_owned(), value.parse().unwrap())
    };
    answer.text().lines().map(line).collect()
}

/// A stack without what Go puts behind functions that take types, which differs from call to call and is not stored.
fn without_types(stack: &str) -> String {
    let Some((before, after)) = stack.split_once("[go.shape.") else { return stack.to_owned() };
    let mut depth = 1;
    let is_end = |letter: char| {
        depth += i32::from(letter == '[') - i32::from(letter == ']');
        depth == 0
    };
    let end = after.find(is_end).unwrap();
    format!("{before}{}", without_types(&after[end + 1..]))
}

/// Adds up what profiles say.
fn add(counts: &mut Counts, metric: &str, said: &Counts, is_wanted: impl Fn(&str) -> bool) {
    for (of, stacks) in said.iter().filter(|(of, _)| is_wanted(of)) {
        for (stack, value) in stacks.iter().filter(|(_, value)| **value != 0) {
            *counts.entry(format!("{metric}:{of}")).or_default().entry(without_types(stack)).or_default() +=
                value;
        }
    }
}

/// What is in use is a level: each profile counts, and none comes to another.
fn is_level(of: &str) -> bool {
    of.starts_with("inuse_")
}

#[test]
fn what_counts_from_the_start_of_a_process_is_stored_once() {
    let environment = tempfile::tempdir().unwrap();
    let folder = environment.path();
    let prepared = copy_files("go-counting", &["main.go", "go.mod"], folder)
        .and_then(|()| run_program("go", &["build", "-o", "counting", "."], folder));
    if let Err(why) = prepared {
        return report_skipped("no client of go-counting", &why);
    }
    let server = TestServer::start(|_| {});
    let mut expected = Counts::new();
    for rounds in LIVES {
        let program = Program::start(folder);
        let mut last = BTreeMap::new();
        for turns in rounds {
            program.get(&format!("/work?turns={turns}"));
            for (path, metric, _) in KINDS {
                let profile = program.get(&format!("/debug/pprof/{path}"));
                push(&server, metric, &profile);
                // Scrapers that hear nothing send again.
                push(&server, metric, &profile);
                let said = go::stacks(&profile);
                add(&mut expected, metric, &said, is_level);
                last.insert(metric, said);
            }
        }
        for (metric, said) in last {
            add(&mut expected, metric, &said, |of| !is_level(of));
        }
    }
    assert_eq!(expected.len(), 8, "{:?}", expected.keys());
    for (kind, function) in [
        ("mutex:delay:nanoseconds", "main.knownHolder"),
        ("block:contentions:count", "main.knownReceiver"),
        ("memory:alloc_space:bytes", "main.knownGreedyFunction"),
        ("memory:inuse_space:bytes", "main.knownGreedyFunction"),
    ] {
        assert!(expected[kind].keys().any(|stack| stack.contains(function)), "{kind}: {:?}", expected[kind]);
    }
    for (kind, stacks) in &expected {
        let (_, _, period) = KINDS.iter().find(|(_, metric, _)| kind.starts_with(metric)).unwrap();
        let stored = stored(&server, &format!("{kind}:{period}"));
        let all: BTreeSet<&String> = stored.keys().chain(stacks.keys()).collect();
        let differ = all.into_iter().map(|stack| (stack, stored.get(stack), stacks.get(stack)));
        let differ: Vec<_> = differ.filter(|(_, stored, counted)| stored != counted).collect();
        assert!(differ.is_empty(), "{kind}: stacks, what is stored, what was counted: {differ:#?}");
    }
}
