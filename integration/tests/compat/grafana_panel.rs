//! The panel in which Grafana shows flame graphs, in a real browser, shows what our answers say: bars with their names,
//! values and callers, the table, the total.
//!
//! `integration/flamegraph` is a page with the panel (`@grafana/flamegraph`) and with what a data source makes of an answer.
//! It is bundled once and kept in the cache of this user. Without Node, npm or Chromium the test is left out.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use athanor_chassis::Clock;
use athanor_integration::report_skipped;
use athanor_integration::server::TestServer;
use athanor_profile::encoding::hash;
use athanor_proto::querier::v1::{
    DiffRequest, DiffResponse, SelectMergeStacktracesRequest, SelectMergeStacktracesResponse,
};
use prost::Message;
use serde_json::{Value, json};

const SOURCES: [&str; 6] =
    ["package.json", "package-lock.json", "page.js", "frame.js", "no-assistant.js", "scrollbars.js"];
const BROWSERS: [&str; 3] = ["chromium", "chromium-browser", "google-chrome"];
const TYPE: &str = "process_cpu:cpu:nanoseconds:cpu:nanoseconds";
/// Stacks and nanoseconds, one of them with a name that is markup, one that is called as the remainder is.
const BEFORE: &str =
    "main;work;inner 300\nmain;work 50\nmain;<b>\"rest\"</b> 120\nmain;other;deep 90\nmain 30\n";
const AFTER: &str = "main;work;inner 100\nmain;work 50\nmain;new 450\n";

/// Runs a program to its end; what it printed, if it failed.
fn run(folder: &Path, program: &str, arguments: &[&str]) -> Result<Vec<u8>, String> {
    let output = Command::new(program).args(arguments).current_dir(folder).output();
    let output = output.map_err(|error| format!("{program}: {error}"))?;
    match output.status.success() {
        true => Ok(output.stdout),
        false => Err(format!("{program} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr))),
    }
}

/// Where bundles are kept.
#[expect(clippy::disallowed_methods, reason = "where this user keeps what can be made again")]
fn cache() -> Result<PathBuf, String> {
    let named = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let folder = named.or_else(|| Some(Path::new(&std::env::var_os("HOME")?).join(".cache")));
    let folder = folder.ok_or("neither XDG_CACHE_HOME nor HOME is set")?.join("athanor-flamegraph");
    std::fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    Ok(folder)
}

/// The page with the panel in one file, made of these very sources.
fn bundle() -> Result<PathBuf, String> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("flamegraph");
    let sources = SOURCES.map(|name| std::fs::read(here.join(name)).expect(name));
    let cache = cache()?;
    let bundle = cache.join(format!("{:032x}.js", hash::hash_bytes(&sources.concat())));
    if bundle.is_file() {
        return Ok(bundle);
    }
    run(&here, "node", &["--version"])?;
    let workshop = tempfile::tempdir_in(&cache).map_err(|error| error.to_string())?;
    for (name, bytes) in SOURCES.iter().zip(&sources) {
        std::fs::write(workshop.path().join(name), bytes).map_err(|error| error.to_string())?;
    }
    // What the lock names is never another thing later, so what npm has need not be asked for.
    let install = [
        "ci",
        "--silent",
        "--prefer-offline",
        "--ignore-scripts",
        "--legacy-peer-deps",
        "--no-audit",
        "--no-fund",
    ];
    run(workshop.path(), "npm", &install)?;
    run(workshop.path(), "npm", &["run", "--silent", "bundle"])?;
    // Whole or not at all, whoever else makes it.
    std::fs::rename(workshop.path().join("bundle.js"), &bundle).map_err(|error| error.to_string())?;
    Ok(bundle)
}

fn browser() -> Result<&'static str, String> {
    let runs = |name: &&&str| run(Path::new("/"), name, &["--version"]).is_ok();
    let found = BROWSERS.iter().find(runs).copied();
    found.ok_or_else(|| "no Chromium to show flame graphs in".to_owned())
}

/// What a person sees who is shown a graph.
fn seen(browser: &str, bundle: &Path, graph: &Value, is_diff: bool) -> Value {
    let folder = tempfile::tempdir().unwrap();
    std::fs::copy(bundle, folder.path().join("bundle.js")).unwrap();
    let answer =
        json!({ "graph": graph, "unit": "ns", "isDiff": is_diff }).to_string().replace('<', "\\u003c");
    // The table paints the rows that there is room for.
    let page = format!(
        "<!doctype html><meta charset=\"utf-8\"><style>[data-testid=\"topTable\"]{{height:900px!important}}</style>\
         <body><div id=\"panel\" style=\"width:1500px\"></div>\
         <script id=\"answer\" type=\"application/json\">{answer}</script><script src=\"bundle.js\"></script></body>"
    );
    std::fs::write(folder.path().join("index.html"), page).unwrap();
    let profile = format!("--user-data-dir={}", folder.path().join("profile").display());
    let address = format!("file://{}", folder.path().join("index.html").display());
    // Its time runs as fast as the page has something to do. It speaks to nobody.
    let arguments = [
        "120",
        browser,
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--no-first-run",
        "--disable-sync",
        "--disable-background-networking",
        "--disable-component-update",
        "--host-resolver-rules=MAP * ~NOTFOUND",
        "--allow-file-access-from-files",
        "--window-size=1600,900",
        "--virtual-time-budget=60000",
        "--dump-dom",
        &profile,
        &address,
    ];
    let dom = String::from_utf8(run(folder.path(), "timeout", &arguments).unwrap()).unwrap();
    let (_, told) = dom.split_once(r#"<script id="seen" type="application/json">"#).expect("the page tells");
    let seen: Value = serde_json::from_str(told.split("</script>").next().unwrap()).unwrap();
    assert!(seen["error"].is_null(), "{seen}");
    seen
}

/// Totals and self values by path, and by function, of folded stacks.
#[derive(Default)]
struct Model {
    paths: BTreeMap<Vec<String>, i64>,
    functions: BTreeMap<String, (i64, i64)>,
    total: i64,
}

impl Model {
    fn of(folded: &str) -> Self {
        let mut model = Model::default();
        for line in folded.lines() {
            let (stack, value) = line.rsplit_once(' ').unwrap();
            let value: i64 = value.parse().unwrap();
            let frames: Vec<String> =
                ["total"].into_iter().chain(stack.split(';')).map(str::to_owned).collect();
            for end in 1..=frames.len() {
                *model.paths.entry(frames[..end].to_vec()).or_default() += value;
                model.functions.entry(frames[end - 1].clone()).or_default().1 += value;
            }
            model.functions.get_mut(frames.last().unwrap()).unwrap().0 += value;
            model.total += value;
        }
        model
    }
}

/// The paths of bars as they are painted, by what each of them stands on, and what is written upon them.
fn painted(seen: &Value) -> BTreeMap<Vec<String>, String> {
    let number = |bar: &Value, name: &str| bar[name].as_f64().unwrap();
    let bars = seen["bars"].as_array().unwrap();
    let path = |bar: &Value| {
        let (x, end) = (number(bar, "x"), number(bar, "x") + number(bar, "width"));
        let stands_on = |other: &&Value| {
            let (from, to) = (number(other, "x"), number(other, "x") + number(other, "width"));
            number(other, "y") <= number(bar, "y") && from <= x + 1.0 && end <= to + 1.0
        };
        let mut below: Vec<&Value> = bars.iter().filter(stands_on).collect();
        below.sort_by(|a, b| number(a, "y").total_cmp(&number(b, "y")));
        let name = |bar: &&Value| bar["text"].as_str().unwrap().rsplit_once(" (").unwrap().0.to_owned();
        below.iter().map(name).collect::<Vec<_>>()
    };
    let value = |bar: &Value| {
        bar["text"].as_str().unwrap().rsplit_once(" (").unwrap().1.trim_end_matches(')').to_owned()
    };
    bars.iter().map(|bar| (path(bar), value(bar))).collect()
}

/// Rows of the table by their first word: the texts of the other columns.
fn table(seen: &Value) -> BTreeMap<String, Vec<String>> {
    let text = |cell: &Value| cell.as_str().unwrap().to_owned();
    let rows = seen["table"].as_array().unwrap().iter().map(|row| row.as_array().unwrap());
    let rows = rows.map(|row| row.iter().map(text).filter(|text| !text.is_empty()).collect::<Vec<_>>());
    rows.map(|mut row| (row.remove(0), row)).collect()
}

/// A server with profiles of two services.
fn filled() -> (TestServer, i64) {
    let server = TestServer::start(|_| {});
    let now = Clock::system().wall().millis() / 1000;
    for (service, folded) in [("before", BEFORE), ("after", AFTER)] {
        let path = format!("/ingest?name={service}.cpu&sampleRate=1000000000&from={}&until={now}", now - 10);
        let taken = server.post(&path, &[], folded.as_bytes());
        assert_eq!(taken.status, 200, "{}", taken.text());
    }
    (server, now * 1000)
}

fn request(service: &str, now: i64, max_nodes: Option<i64>) -> SelectMergeStacktracesRequest {
    SelectMergeStacktracesRequest {
        profile_type_id: TYPE.to_owned(),
        label_selector: format!("{{service_name=\"{service}\"}}"),
        start: now - 60_000,
        end: now + 60_000,
        max_nodes,
        ..SelectMergeStacktracesRequest::default()
    }
}

/// Asks as the data source does: in protobuf, over Connect.
fn ask<A: Message + Default>(server: &TestServer, method: &str, request: &impl Message) -> A {
    let path = format!("/querier.v1.QuerierService/{method}");
    let answer = server.post(&path, &[("content-type", "application/proto")], &request.encode_to_vec());
    assert_eq!(answer.status, 200, "{}", String::from_utf8_lossy(&answer.body));
    A::decode(&answer.body[..]).unwrap()
}

#[test]
fn the_panel_shows_what_was_answered() {
    let (browser, bundle) = match browser().and_then(|browser| Ok((browser, bundle()?))) {
        Ok(found) => found,
        Err(why) => return report_skipped("no panel of Grafana in a browser", &why),
    };
    let (server, now) = filled();

    let whole = request("before", now, None);
    let answer: SelectMergeStacktracesResponse = ask(&server, "SelectMergeStacktraces", &whole);
    let shown = seen(browser, &bundle, &json!(answer.flamegraph), false);
    let model = Model::of(BEFORE);
    let expected: BTreeMap<_, _> =
        model.paths.iter().map(|(path, value)| (path.clone(), format!("{value} ns"))).collect();
    assert_eq!(painted(&shown), expected);
    let row = |(name, (self_value, total)): (&String, &(i64, i64))| {
        (name.clone(), vec![format!("{self_value} ns"), format!("{total} ns")])
    };
    let mut expected: BTreeMap<_, _> = model.functions.iter().map(row).collect();
    expected.insert("Symbol".to_owned(), vec!["Self".to_owned(), "Total".to_owned()]);
    assert_eq!(table(&shown), expected);
    let total = format!("{0} ns | {0} samples (Time)", model.total);
    assert!(shown["text"].as_str().unwrap().contains(&total), "{}", shown["text"]);
    // Five rows of bars, half as wide as the page.
    assert!(shown["pixels"].as_u64().unwrap() > 20_000, "{}", shown["pixels"]);

    // What is cut off is shown as one, and the total stays.
    let answer: SelectMergeStacktracesResponse =
        ask(&server, "SelectMergeStacktraces", &request("before", now, Some(2)));
    let shown = seen(browser, &bundle, &json!(answer.flamegraph), false);
    let of = |names: &[&str], value: i64| {
        let path: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        (path, format!("{value} ns"))
    };
    let cut = [
        of(&["total"], 590),
        of(&["total", "main"], 590),
        of(&["total", "main", "work"], 350),
        of(&["total", "main", "work", "other"], 300),
        of(&["total", "main", "other"], 210),
    ];
    assert_eq!(painted(&shown), BTreeMap::from(cut));

    let sides =
        DiffRequest { left: Some(whole), right: Some(request("after", now, None)), ..DiffRequest::default() };
    let answer: DiffResponse = ask(&server, "Diff", &sides);
    let shown = seen(browser, &bundle, &json!(answer.flamegraph), true);
    let rows = table(&shown);
    let columns = |name: &str| rows[name].iter().map(String::as_str).collect::<Vec<_>>();
    assert_eq!(columns("Symbol"), ["Baseline", "Comparison", "Diff"]);
    // Of 590 and of 600.
    assert_eq!(columns("inner"), ["50.9%", "16.7%", "-67.2%"]);
    assert_eq!(columns("new"), ["0%", "75%", "new"]);
    assert_eq!(columns("deep"), ["15.3%", "0%", "removed"]);
    assert_eq!(columns("main"), ["100%", "100%", "0%"]);
    let either = Model::of(&[BEFORE, AFTER].concat());
    assert!(painted(&shown).keys().eq(either.paths.keys()), "{:?}", painted(&shown));
}
