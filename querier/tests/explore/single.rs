//! Single cases: whose profiles are seen, what is refused, what is noise.

use athanor_chassis::{ByteSize, ErrorCode, Status};
use athanor_proto::athanor::v1::*;
use athanor_querier::{QuerierConfig, QueryContext};

use crate::{PERIOD, UNNAMED_FUNCTION, Upload, ask, both, querier_with, query};

fn busy() -> Vec<Upload> {
    let rows = (0..4u8).map(|at| (vec![(0, 1), (at, 2)], 1_000 + i64::from(at))).collect::<Vec<_>>();
    vec![
        Upload { pod: 1, second: 5, rows: rows.clone(), source: 0, tenant: false },
        Upload { pod: 1, second: 15, rows, source: 1, tenant: true },
    ]
}

#[test]
fn tenants_see_what_is_theirs() {
    let querier = querier_with(QuerierConfig::default(), &busy(), &[]);
    let total = |tenants: &str| {
        let request = FunctionsRequest { query: query(1, 30), ..FunctionsRequest::default() };
        ask(querier.functions(&QueryContext::parse(tenants).unwrap(), request)).unwrap().total
    };
    assert_eq!((total("a"), total("b"), total("a|b"), total("c")), (4_006, 4_006, 8_012, 0));
}

#[test]
fn an_answer_says_what_it_lacks() {
    let querier = querier_with(QuerierConfig::default(), &busy(), &["block 7 cannot be read"]);
    let reader = || QueryContext::parse("a").unwrap();
    let query = || query(1, 30);
    let warnings = [
        ask(querier.functions(&reader(), FunctionsRequest { query: query(), ..Default::default() }))
            .unwrap()
            .warnings,
        ask(querier.sandwich(
            &reader(),
            SandwichRequest { query: query(), function: Some("f0".into()), ..Default::default() },
        ))
        .unwrap()
        .warnings,
        ask(querier
            .lines(&reader(), LinesRequest { query: query(), function: Some("f0".into()), page: None }))
        .unwrap()
        .warnings,
        ask(querier.subtree(&reader(), SubtreeRequest { query: query(), ..Default::default() }))
            .unwrap()
            .warnings,
        ask(querier
            .changes(&reader(), ChangesRequest { left: query(), right: query(), ..Default::default() }))
        .unwrap()
        .warnings,
        ask(querier.profiles(&reader(), ProfilesRequest { query: query(), ..Default::default() }))
            .unwrap()
            .warnings,
    ];
    assert!(warnings.iter().all(|texts| *texts == ["block 7 cannot be read"]), "{warnings:?}");
}

#[test]
fn no_answer_takes_more_room_than_there_is() {
    let answer = ByteSize::bytes(64);
    let querier =
        querier_with(QuerierConfig { max_result_bytes: answer, ..QuerierConfig::default() }, &busy(), &[]);
    let code = |result: Result<(), Status>| result.unwrap_err().code;
    let reader = both();
    let query = || query(1, 30);
    let functions = FunctionsRequest { query: query(), ..FunctionsRequest::default() };
    assert_eq!(code(ask(querier.functions(&reader, functions)).map(drop)), ErrorCode::Invalid);
    let profiles = ProfilesRequest { query: query(), ..ProfilesRequest::default() };
    assert_eq!(code(ask(querier.profiles(&reader, profiles)).map(drop)), ErrorCode::Invalid);
}

#[test]
fn what_makes_no_sense_is_refused() {
    let querier = querier_with(QuerierConfig::default(), &busy(), &[]);
    let reader = both();
    let message = |result: Result<(), Status>| {
        let status = result.unwrap_err();
        assert_eq!(status.code, ErrorCode::Invalid);
        status.message
    };
    let nobody = LinesRequest { query: query(1, 2), ..LinesRequest::default() };
    assert_eq!(
        message(ask(querier.lines(&reader, nobody)).map(drop)),
        "request names no function; set function"
    );
    let nobody = SandwichRequest { query: query(1, 2), ..SandwichRequest::default() };
    assert!(message(ask(querier.sandwich(&reader, nobody)).map(drop)).contains("names no function"));
    let unknown = FunctionsRequest { query: query(1, 2), order: 5, ..FunctionsRequest::default() };
    assert_eq!(message(ask(querier.functions(&reader, unknown)).map(drop)), "order is 5, not known");
    let unknown = ProfilesRequest { query: query(1, 2), order: -1, ..ProfilesRequest::default() };
    assert_eq!(message(ask(querier.profiles(&reader, unknown)).map(drop)), "order is -1, not known");
    let valid = || ChangesRequest { left: query(1, 2), right: query(1, 2), ..ChangesRequest::default() };
    for (unknown, expected) in [
        (ChangesRequest { level: 2, ..valid() }, "level is 2, not known"),
        (ChangesRequest { order: 3, ..valid() }, "order is 3, not known"),
        (ChangesRequest { measure: 7, ..valid() }, "measure is 7, not known"),
    ] {
        assert_eq!(message(ask(querier.changes(&reader, unknown)).map(drop)), expected);
    }
    let nothing = FunctionsRequest::default();
    assert_eq!(
        message(ask(querier.functions(&reader, nothing)).map(drop)),
        "request has no query; set query"
    );
    let far = Some(Page { offset: 100_000, limit: 1 });
    let far = ProfilesRequest { query: query(1, 2), page: far, ..ProfilesRequest::default() };
    assert!(message(ask(querier.profiles(&reader, far)).map(drop)).contains("the limit is 100000"));
    let mut other = query(1, 2);
    other.iter_mut().for_each(|query| query.profile_type = "a:b:c:d:e".to_owned());
    let unlike = ChangesRequest { left: query(1, 2), right: other, ..ChangesRequest::default() };
    assert!(message(ask(querier.changes(&reader, unlike)).map(drop)).contains("compare the same type"));
}

#[test]
fn great_change_is_more_than_sampling_noise_and_small_one_is_not() {
    let at = |second, values: [i64; 3]| Upload {
        pod: 1,
        second,
        rows: values.iter().zip(1u8..).map(|(value, at)| (vec![(0, 1), (at, 2)], value * PERIOD)).collect(),
        source: 0,
        tenant: false,
    };
    let uploads = [at(5, [10_000, 5_000, 20]), at(15, [9_910, 4_910, 200])];
    let querier = querier_with(QuerierConfig::default(), &uploads, &[]);
    let request = ChangesRequest {
        left: query(1, 10),
        right: query(11, 20),
        order: ChangeOrder::SamplingNoise as i32,
        ..ChangesRequest::default()
    };
    let answer = ask(querier.changes(&both(), request.clone())).unwrap();
    assert_eq!((answer.untested.as_str(), answer.left.unwrap().period), ("", PERIOD));
    let verdicts: Vec<(&str, Verdict)> =
        answer.rows.iter().map(|row| (row.function.as_str(), row.verdict())).collect();
    let expected = [
        ("f3", Verdict::MoreThanSamplingNoise),
        ("f2", Verdict::SamplingNoise),
        ("f1", Verdict::SamplingNoise),
    ];
    assert_eq!(verdicts, expected);
    let filtered = ChangesRequest { only_more_than_sampling_noise: true, ..request.clone() };
    assert_eq!(ask(querier.changes(&both(), filtered)).unwrap().rows.len(), 1);
    let again = ChangesRequest { left: query(1, 10), right: query(1, 10), ..request };
    assert!(ask(querier.changes(&both(), again)).unwrap().rows.is_empty());
}

#[test]
fn function_with_an_empty_name_opens() {
    let rows = vec![(vec![(0, 1), (UNNAMED_FUNCTION, 2), (1, 3)], 40), (vec![(UNNAMED_FUNCTION, 4)], 60)];
    let uploads = [Upload { pod: 1, second: 5, rows, source: 0, tenant: false }];
    let querier = querier_with(QuerierConfig::default(), &uploads, &[]);
    let function = || Some(String::new());
    let request = FunctionsRequest { query: query(1, 30), ..FunctionsRequest::default() };
    let functions = ask(querier.functions(&both(), request)).unwrap();
    let row = functions.rows.iter().find(|row| row.name.is_empty()).unwrap();
    assert_eq!((row.self_, row.total), (60, 100));
    let request = SandwichRequest { query: query(1, 30), function: function(), ..Default::default() };
    let sandwich = ask(querier.sandwich(&both(), request)).unwrap();
    assert_eq!((sandwich.self_, sandwich.total), (60, 100));
    let names = |tree: Option<Tree>| {
        let Tree { names, nodes } = tree.unwrap();
        nodes.iter().map(|node| names[node.name as usize].clone()).collect::<Vec<_>>()
    };
    assert_eq!(names(sandwich.callers), ["", "", "f0"]);
    assert_eq!(names(sandwich.callees), ["", "", "f1"]);
    let request = LinesRequest { query: query(1, 30), function: function(), page: None };
    let lines = ask(querier.lines(&both(), request)).unwrap();
    let rows: Vec<(i64, i64)> = lines.rows.iter().map(|row| (row.line, row.total)).collect();
    assert_eq!((lines.self_, lines.total, rows), (60, 100, vec![(2, 40), (4, 60)]));
}

/// The test knows sampling noise only: pods and runs of one program differ by more.
#[test]
fn api_and_its_docs_never_call_a_change_significant() {
    let texts = [
        include_str!("../../../proto/protos/athanor/v1/explore.proto"),
        include_str!("../../../docs/users/analysis.md"),
    ];
    for text in texts {
        assert!(!text.to_lowercase().contains("significan"));
        assert!(text.contains("VERDICT_MORE_THAN_SAMPLING_NOISE"));
    }
}
