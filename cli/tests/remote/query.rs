//! `athanor query`.

use std::fs;
use std::net::TcpListener;

use athanor_profile::formats::pprof::{self, gzip};
use athanor_proto::google::v1::Profile;
use athanor_proto::querier::v1::*;
use athanor_proto::types::v1::*;
use prost::Message;
use serde_json::Value;

use crate::fake::{Answer, Seen, Server};
use crate::{encoded, run};

const CPU: &str = "process_cpu:cpu:nanoseconds:cpu:nanoseconds";
const OTHERS: [&str; 2] =
    ["process_cpu:samples:count:cpu:nanoseconds", "memory:inuse_space:bytes:space:bytes"];

fn pair(name: &str, value: &str) -> LabelPair {
    LabelPair { name: name.into(), value: value.into() }
}

fn answer(request: &Seen, _: usize) -> Answer {
    match request.method.strip_prefix("querier.v1.QuerierService/").unwrap() {
        "ProfileTypes" => {
            let types =
                [CPU, OTHERS[0], OTHERS[1]].map(|id| ProfileType { id: id.into(), ..ProfileType::default() });
            Answer::of(&ProfileTypesResponse { profile_types: types.into(), ..Default::default() })
        }
        "Series" => {
            let labels = vec![pair("__profile_type__", CPU)];
            Answer::of(&SeriesResponse { labels_set: vec![Labels { labels }], ..Default::default() })
        }
        "LabelNames" => Answer::of(&LabelNamesResponse {
            names: vec!["service_name".into(), "pod".into()],
            ..Default::default()
        }),
        "LabelValues" => {
            let known = request.read::<LabelValuesRequest>().name == "pod";
            let names = if known { vec!["b".into(), "a\u{1b}".into()] } else { vec![] };
            Answer::of(&LabelValuesResponse { names, ..LabelValuesResponse::default() })
        }
        "SelectMergeProfile" => merged(&request.read()),
        "SelectSeries" => series(),
        other => Answer::error(404, "not_found", other),
    }
}

fn merged(request: &SelectMergeProfileRequest) -> Answer {
    if request.profile_type_id != CPU || request.label_selector.contains("nobody") {
        return Answer::of(&Profile::default());
    }
    let weight = if request.label_selector.contains("new") { 3_000_000_000 } else { 1_000_000_000 };
    let bytes = encoded(&[("main;work", weight), ("main;rest", 500_000_000)]);
    Answer(200, vec![("content-type", "application/proto".into())], gzip(&bytes))
        .with("content-encoding", "gzip")
}

fn series() -> Answer {
    let point = |timestamp, seconds: f64| Point { timestamp, value: seconds * 1e9, ..Point::default() };
    let one = |pod: &str, points| Series { labels: vec![pair("pod", pod)], points };
    let small = one("a", vec![point(1_700_000_000_000, 1.0)]);
    let large = one("b", vec![point(1_700_000_000_000, 2.0), point(1_700_000_060_000, 4.0)]);
    Answer::of(&SelectSeriesResponse { series: vec![small, large], ..Default::default() })
}

fn server() -> Server {
    Server::start(answer)
}

#[test]
fn types_and_labels_are_listed() {
    let server = server();
    let mut all = [CPU, OTHERS[0], OTHERS[1]];
    all.sort_unstable();
    assert_eq!(run(&["query", "types"], &server.url), (0, all.join("\n") + "\n", String::new()));
    let (_, json, _) = run(&["query", "types", "--selector", "{pod=\"a\"}", "--json"], &server.url);
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(
        (json["types"][0]["id"].as_str(), json["types"][0]["unit"].as_str()),
        (Some(CPU), Some("nanoseconds"))
    );
    let asked: SeriesRequest = server.seen()[1].read();
    assert_eq!(
        (asked.matchers, asked.label_names),
        (vec!["{pod=\"a\"}".into()], vec!["__profile_type__".into()])
    );
    assert_eq!(run(&["query", "labels"], &server.url).1, "pod\nservice_name\n");
    assert_eq!(run(&["query", "labels", "pod"], &server.url).1, "a\\u{1b}\nb\n");
    let header = server.seen().last().unwrap().header("accept").map(str::to_owned);
    assert_eq!(header.as_deref(), Some("*/*; allow-utf8-labelnames=true"));
    let (code, _, err) = run(&["query", "labels", "pods"], &server.url);
    assert!(code == 66 && err.contains("did you mean pod?"), "{err}");
}

#[test]
fn gauges_are_averages_over_profiles() {
    let server = Server::start(|request, _| match request.method.as_str() {
        "athanor.v1.ExploreService/Functions" => Answer::of(&athanor_proto::athanor::v1::FunctionsResponse {
            averaged_profiles: 4,
            ..Default::default()
        }),
        _ => Answer(
            200,
            vec![("content-type", "application/proto".into())],
            encoded(&[("main;work", 1_003), ("main;rest", 1)]),
        ),
    });
    let read = |args: &[&str]| -> Value {
        let (code, json, err) = run(&[args, &["--type", OTHERS[1], "--json"]].concat(), &server.url);
        assert_eq!((code, err.as_str()), (0, ""));
        serde_json::from_str(&json).unwrap()
    };
    let top = read(&["query", "top"]);
    let flat = |row: usize| top["rows"][row]["flat"].as_i64();
    assert_eq!((top["total"].as_i64(), top["averaged_profiles"].as_i64()), (Some(251), Some(4)));
    assert_eq!([flat(0), flat(1)], [Some(251), Some(0)]);
    let focus = read(&["query", "top", "--sandwich", "work"]);
    assert_eq!((focus["cum"].as_i64(), focus["total"].as_i64()), (Some(251), Some(251)));
    let (_, text, _) = run(&["query", "top", "--type", OTHERS[1], "--sandwich", "rest"], &server.url);
    // The average is 0, shares are those of sums.
    assert!(text.contains(", 0.10% of ") && text.contains(" 100.00%    main"), "{text}");
    let graph = read(&["query", "flamegraph"]);
    assert_eq!((graph["total"].as_i64(), graph["averaged_profiles"].as_i64()), (Some(251), Some(4)));
    let diff = read(&["query", "diff", "--left", "{a=\"b\"}", "--right", "{a=\"c\"}"]);
    assert_eq!((diff["left_total"].as_i64(), diff["right_total"].as_i64()), (Some(251), Some(251)));
    assert_eq!(diff["averaged_profiles"], serde_json::json!([4, 4]));
    let (_, text, _) = run(&["query", "top", "--type", OTHERS[1]], &server.url);
    assert!(text.contains("Values: averages of 4 profiles"), "{text}");
    let amount = run(&["query", "top", "--type", CPU, "--json"], &server.url).1;
    let amount: Value = serde_json::from_str(&amount).unwrap();
    assert_eq!((amount["total"].as_i64(), amount["averaged_profiles"].as_i64()), (Some(1_004), Some(0)));
}

#[test]
fn top_is_the_table_of_files() {
    let server = server();
    let args = [
        "query",
        "top",
        "--selector",
        "{service_name=\"x\"}",
        "--since",
        "1700000000",
        "--until",
        "1700003600",
    ];
    let (code, out, err) = run(&args, &server.url);
    assert_eq!((code, err.as_str()), (0, ""));
    assert!(out.contains("Type: cpu/nanoseconds") && out.contains("1.5s total"), "{out}");
    assert!(
        out.lines().any(|line| line.trim_start().starts_with("1s  66.67%") && line.ends_with("  work")),
        "{out}"
    );
    let asked: SelectMergeProfileRequest = server.seen()[1].read();
    assert_eq!(
        (asked.profile_type_id.as_str(), asked.label_selector.as_str()),
        (CPU, "{service_name=\"x\"}")
    );
    assert_eq!((asked.start, asked.end), (1_700_000_000_000, 1_700_003_600_000));
    let (_, json, _) = run(&["query", "top", "--type", CPU, "--json"], &server.url);
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(
        (json["total"].as_i64(), json["rows"][0]["name"].as_str()),
        (Some(1_500_000_000), Some("work"))
    );
    let last: SelectMergeProfileRequest = server.seen()[2].read();
    assert_eq!((server.seen().len(), last.end - last.start), (3, 3_600_000), "a full type needs no list");
    let (_, focus, _) = run(&["query", "top", "--type", "cpu", "--sandwich", "work"], &server.url);
    assert!(focus.contains("Called by") && focus.contains("main"), "{focus}");
}

#[test]
fn function_with_an_empty_name_is_shown() {
    let server = Server::start(|_, _| {
        let body = encoded(&[("main;;deep", 1_000_000_000)]);
        Answer(200, vec![("content-type", "application/proto".into())], body)
    });
    let (code, out, err) = run(&["query", "top", "--type", CPU, "--sandwich", ""], &server.url);
    assert!(code == 0 && out.contains("main") && out.contains("deep"), "{out}{err}");
    let unnamed = Server::start(answer);
    let (code, _, err) = run(&["query", "top", "--type", CPU, "--sandwich", ""], &unnamed.url);
    assert!(code == 66 && err.contains("no function \"\" in the profile"), "{err}");
}

#[test]
fn a_type_is_chosen_aloud_or_asked_for() {
    let server = server();
    let (code, _, err) = run(&["query", "top"], &server.url);
    assert_eq!(code, 0);
    assert!(err.contains(&format!("showing {CPU}; --type selects one of 2 other types")), "{err}");
    let (code, _, err) = run(&["query", "top", "--type", "cpuu"], &server.url);
    assert!(code == 66 && err.contains("did you mean cpu?") && err.contains(OTHERS[1]), "{err}");
    let wrong = "process_cpu:cpu:nanosecond:cpu:nanoseconds";
    let (code, _, err) = run(&["query", "top", "--type", wrong], &server.url);
    assert!(code == 66 && err.contains(&format!("did you mean {CPU}?")), "{err}");
    let args = ["query", "top", "--type", CPU, "--selector", "{pod=\"nobody\"}"];
    let (code, _, err) = run(&args, &server.url);
    assert!(code == 66 && err.contains("no profiles of") && err.contains("change --since"), "{err}");
    let several = Server::start(|_, _| {
        let types = OTHERS.map(|id| ProfileType { id: id.into(), ..ProfileType::default() });
        Answer::of(&ProfileTypesResponse { profile_types: types.into(), ..Default::default() })
    });
    let (code, _, err) = run(&["query", "top"], &several.url);
    assert!(code == 65 && err.contains("select one with --type") && err.contains(OTHERS[0]), "{err}");
}

#[test]
fn flame_graphs_are_drawn_and_written() {
    let server = server();
    let (code, out, _) = run(&["query", "flamegraph", "--type", "cpu", "--width", "60"], &server.url);
    assert!(code == 0 && out.contains("main") && out.contains("work"), "{out}");
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (svg, pb) = (path("x.svg"), path("x.pb.gz"));
    assert_eq!(run(&["query", "flamegraph", "--type", "cpu", "-o", &svg], &server.url).0, 0);
    assert!(fs::read_to_string(&svg).unwrap().starts_with('<'));
    assert_eq!(run(&["query", "top", "--type", "cpu", "-o", &pb], &server.url).0, 0);
    let (profile, _) = pprof::decode(&fs::read(&pb).unwrap(), &pprof::DecodeLimits::default()).unwrap();
    assert_eq!(profile.total(0), 1_500_000_000);
    let asked = server.seen().len();
    let (code, _, err) = run(&["query", "top", "-o", "x.unknown"], &server.url);
    assert!(code == 64 && err.contains("add --to pprof") && server.seen().len() == asked, "{err}");
}

#[test]
fn transforms_are_sent_in_the_order_of_the_command_line() {
    let server = Server::start(|request, _| match request.method.as_str() {
        "athanor/export" if request.query.contains("ignore") => Answer(
            200,
            vec![("content-type", "application/octet-stream".into())],
            Profile::default().encode_to_vec(),
        ),
        "athanor/export" => Answer(
            200,
            vec![("content-type", "application/octet-stream".into())],
            encoded(&[("work;deep", 1_000_000_000)]),
        ),
        _ => answer(request, 0),
    });
    let options = ["--hide", "^m", "--show-from", "=work", "--collapse", "recursion", "--hide", "=x"];
    let times = ["--since", "1700000000", "--until", "1700003600"];
    let (code, out, err) =
        run(&[&["query", "top", "--type", CPU][..], &options, &times].concat(), &server.url);
    assert_eq!((code, err.as_str()), (0, ""));
    assert!(out.lines().any(|line| line.ends_with("  deep")), "{out}");
    let pairs = |query: &str| -> Vec<(String, String)> {
        form_urlencoded::parse(query.as_bytes()).into_owned().collect()
    };
    let expected = [
        ("query", &*format!("{CPU}{{}}")),
        ("from", "1700000000000000000"),
        ("until", "1700003600000000000"),
        ("format", "pprof"),
        ("hide", "^m"),
        ("show_from", "=work"),
        ("collapse", "recursion"),
        ("hide", "=x"),
    ];
    let expected = expected.map(|(name, text)| (name.to_owned(), text.to_owned()));
    assert_eq!(pairs(&server.seen()[0].query), expected);
    let (code, _, err) = run(&["query", "flamegraph", "--type", CPU, "--ignore", "work"], &server.url);
    assert!(code == 66 && err.contains("that the transforms keep"), "{err}");
    let requests = server.seen().len();
    let long = format!("={}", "ö".repeat(12_000));
    let (code, _, err) = run(&["query", "top", "--type", CPU, "--focus", &long], &server.url);
    assert!(code != 0 && err.contains("bytes of a URL, the limit is 61440"), "{err}");
    assert_eq!(server.seen().len(), requests);
}

#[test]
fn series_are_shown_the_largest_first() {
    let server = server();
    let times = ["--since", "1700000000", "--until", "1700000120"];
    let args = ["query", "series", "--type", CPU, "--by", "pod", "--step", "1m", "--limit", "5"];
    let args = [&args[..], &["--aggregation", "average"], &times].concat();
    let (code, out, err) = run(&args, &server.url);
    assert_eq!((code, err.as_str()), (0, ""));
    assert!(out.contains("a point every 1m"), "{out}");
    assert!(out.contains("Points: average of its profiles"), "{out}");
    let lines: Vec<&str> = out.lines().skip(4).collect();
    assert!(lines[0].trim_start().starts_with("6s         4s         4s       2"), "{out}");
    assert!(lines[0].ends_with("{pod=\"b\"}") && lines[1].ends_with("{pod=\"a\"}"), "{out}");
    let asked: SelectSeriesRequest = server.seen()[0].read();
    assert_eq!(
        (asked.group_by, asked.step, asked.limit, asked.aggregation),
        (vec!["pod".into()], 60.0, Some(5), Some(1))
    );
    let (_, json, _) = run(&[&args[..], &["--json"]].concat(), &server.url);
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["series"][0]["labels"]["pod"].as_str(), Some("b"));
    assert_eq!(json["series"][0]["points"][1], serde_json::json!([1_700_000_060_000_i64, 4e9]));
}

#[test]
fn two_selections_are_compared() {
    let server = server();
    let sides = ["--left", "{v=\"old\"}", "--right", "{v=\"new\"}"];
    let times = ["--left-since", "1700000000", "--left-until", "1700000060", "--since", "5m"];
    let args = [&["query", "diff", "--type", "cpu"][..], &sides, &times].concat();
    let (code, out, err) = run(&args, &server.url);
    assert_eq!((code, err.as_str()), (0, ""));
    assert!(out.contains("1.5s before, 3.5s after, +2s (+133.33%)"), "{out}");
    let asked: Vec<SelectMergeProfileRequest> = server.seen()[1..].iter().map(Seen::read).collect();
    let left = asked.iter().find(|asked| asked.label_selector.contains("old")).unwrap();
    let right = asked.iter().find(|asked| asked.label_selector.contains("new")).unwrap();
    assert_eq!((left.start, left.end), (1_700_000_000_000, 1_700_000_060_000));
    assert_eq!(right.end - right.start, 300_000);
    let (_, json, _) = run(&[&args[..], &["--json"]].concat(), &server.url);
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(
        (json["rows"][0]["name"].as_str(), json["rows"][0]["delta"].as_i64()),
        (Some("work"), Some(2_000_000_000))
    );
    let (code, _, err) = run(&["query", "diff"], &server.url);
    assert!(code == 65 && err.contains("both sides are equal"), "{err}");
}

#[test]
fn whatever_goes_wrong_is_told_with_a_way_out() {
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let url = format!("http://{closed}");
    let (code, _, err) = run(&["query", "types"], &url);
    assert_eq!(code, 69);
    assert!(err.contains(&url) && err.contains("athanor serve") && err.contains("--url"), "{err}");
    let one = |answer: fn() -> Answer| {
        let server = Server::start(move |_, _| answer());
        let (code, out, err) = run(&["query", "types"], &server.url);
        assert_eq!(out, "");
        (code, err)
    };
    let (code, err) = one(|| Answer::error(400, "invalid_argument", "start is after end"));
    assert!(code == 65 && err.contains("invalid_argument: start is after end"), "{err}");
    let (code, err) = one(|| Answer(200, vec![("content-type", "text/html".into())], b"<html>".to_vec()));
    assert!(code == 65 && err.contains("\"text/html\", not application/proto"), "{err}");
    let (code, err) = one(|| Answer(404, vec![], b"404 page not found".to_vec()));
    assert!(
        code == 66 && err.contains("the server does not implement querier.v1.QuerierService/ProfileTypes"),
        "{err}"
    );
    let (code, err) = one(|| Answer(302, vec![("location", "http://elsewhere.example/".into())], vec![]));
    assert!(code == 65 && err.contains("the server redirects to http://elsewhere.example/"), "{err}");
    let (code, err) = one(|| Answer(200, vec![("content-type", "application/proto".into())], vec![0xff; 9]));
    assert!(code == 65 && err.contains("failed to decode"), "{err}");
    let (code, err) = one(|| Answer::error(503, "unavailable", "starting").with("retry-after", "7"));
    assert!(code == 69 && err.contains("retry after 7s"), "{err}");
    assert_eq!(run(&["query", "types", "--since", "soon"], &url).0, 64);
    assert_eq!(run(&["query", "types", "--selector", "{a=}"], &url).0, 64);
    assert_eq!(run(&["query", "types", "--since", "2024-01-02", "--until", "2024-01-01"], &url).0, 65);
}
