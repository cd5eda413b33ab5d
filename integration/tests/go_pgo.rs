//! The Go compiler builds with what is answered for it, and inlines what the profile says is hot.

use std::path::Path;
use std::process::{Command, Output};
use std::sync::Arc;

use athanor_chassis::{Clock, Compute, Limits, Overrides, Status, TenantId, Timestamp};
use athanor_integration::leave_out;
use athanor_profile::source::MemorySource;
use athanor_profile::symbols::{Function, Line, NONE};
use athanor_profile::{Labels, Profile, Source, ValueType};
use athanor_proto::querier::v1::SelectMergeProfileRequest;
use athanor_proto::types::v1::{GoPgo, StackTraceSelector};
use athanor_querier::{Config, Deps, Plan, Querier, Reader, Sources, Times};
use athanor_query::Ask;
use prost::Message;

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

/// `main` calls `weigh` where it does, and nothing else takes time.
fn profile(program: &str) -> Profile {
    let mut profile = Profile::default();
    profile.header.types = vec![ValueType::new("cpu", "nanoseconds")];
    profile.header.period_type = Some(ValueType::new("cpu", "nanoseconds"));
    profile.header.time_nanos = 5_000_000;
    let mut at = |name: &str, begins: &str, at: i64| {
        let symbols = &mut profile.dictionary.symbols;
        let (name, filename) = (symbols.strings.intern(name), symbols.strings.intern("main.go"));
        let start_line = line_of(program, begins);
        let function = symbols.function(Function { name, system_name: name, filename, start_line });
        symbols.location(NONE, 0, false, &[Line { function, line: at, column: 0 }])
    };
    let main = at("main.main", "func main", line_of(program, "= weigh"));
    let leaves = [1, 2].map(|after| at("main.weigh", "func weigh", line_of(program, "func weigh") + after));
    let outer = at("runtime.main", "func main", 3);
    for leaf in leaves {
        let path = [leaf, main, outer];
        let stack = profile.dictionary.stacks.intern(&profile.dictionary.symbols, &path);
        profile.samples.push(stack, 0, &[1_000_000_000]);
    }
    profile
}

struct One(Arc<dyn Source>);

#[async_trait::async_trait]
impl Sources for One {
    async fn plan(&self, _: &TenantId, _: &Ask) -> Result<Plan, Status> {
        Ok(Plan { sources: vec![Arc::clone(&self.0)], ..Plan::default() })
    }
    async fn times(&self, _: &TenantId) -> Result<Times, Status> {
        Ok(Times::default())
    }
}

/// The profile as it is answered for the compiler.
fn answered(profile: &Profile) -> Vec<u8> {
    let mut source = MemorySource::default();
    source.add(&Labels::new([("__name__".to_owned(), "process_cpu".to_owned())]), profile, 1);
    let (clock, _hand) = Clock::manual(Timestamp::EPOCH);
    let overrides = Overrides::new(Limits::default());
    let deps =
        Deps { sources: Arc::new(One(Arc::new(source))), overrides, clock, compute: Compute::inline() };
    let go_pgo = Some(GoPgo { keep_locations: 5, aggregate_callees: true });
    let request = SelectMergeProfileRequest {
        profile_type_id: "process_cpu:cpu:nanoseconds:cpu:nanoseconds".to_owned(),
        label_selector: "{}".to_owned(),
        start: 1,
        end: 10,
        stack_trace_selector: Some(StackTraceSelector { go_pgo, ..StackTraceSelector::default() }),
        ..SelectMergeProfileRequest::default()
    };
    let querier = Querier::new(Config::default(), deps);
    let reader = Reader::of(TenantId::anonymous());
    let answer = futures::executor::block_on(querier.select_merge_profile(&reader, request));
    let answer = answer.expect("an answer");
    assert_eq!(answer.sample.len(), 1, "both leaves are one without their lines");
    answer.encode_to_vec()
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
fn go_builds_with_what_is_answered_for_it() {
    if Command::new("go").arg("version").output().is_err() {
        leave_out("no go to build with");
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let program = program();
    std::fs::write(folder.path().join("main.go"), &program).expect("it is written");
    std::fs::write(folder.path().join("go.mod"), "module program\n\ngo 1.21\n").expect("it is written");
    std::fs::write(folder.path().join("cpu.pprof"), answered(&profile(&program))).expect("it is written");
    for (pgo, is_inlined) in [("-pgo=off", false), ("-pgo=cpu.pprof", true)] {
        let built = build(folder.path(), pgo);
        let said = String::from_utf8_lossy(&built.stderr);
        assert!(built.status.success(), "{pgo}: {said}");
        assert_eq!(said.contains("inlining call to weigh"), is_inlined, "{pgo}: {said}");
    }
}
