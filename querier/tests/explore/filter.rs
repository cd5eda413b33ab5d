//! Filters and orders of the table of functions.

use athanor_proto::athanor::v1::function_filter::Pattern;
use athanor_proto::athanor::v1::*;
use athanor_querier::QuerierConfig;
use proptest::prelude::*;

use crate::laws::rows;
use crate::{PERIOD, ask, both, name, querier_with, query, upload};

proptest! {
    #![proptest_config(crate::property_config(64))]

    #[test]
    fn matches_of_filter_count_each_stack_once(
        uploads in prop::collection::vec(upload(), 0..10), first in 0..4u8, second in 0..4u8, grouped in any::<bool>(),
        reverse in any::<bool>(),
    ) {
        let querier = querier_with(QuerierConfig::default(), &uploads, &[]);
        let pattern = match first == second {
            true => Pattern::Substring(first.to_string()),
            false => Pattern::Regex(format!("^f[{first}{second}]$")),
        };
        let group_by = if grouped { vec!["pod".to_owned()] } else { Vec::new() };
        let whole = FunctionsRequest { query: query(1, 30), group_by, ..FunctionsRequest::default() };
        let filter = Some(FunctionFilter { pattern: Some(pattern) });
        let request = FunctionsRequest { filter, reverse, ..whole.clone() };
        let table = ask(querier.functions(&both(), request)).unwrap();
        let whole = ask(querier.functions(&both(), whole)).unwrap();
        let is_match = |function: u8| function == first || function == second;
        let rows = rows(&uploads, 1, 30);
        let has_match = rows.iter().filter(|row| row.1.iter().any(|frame| is_match(frame.0)));
        prop_assert_eq!(table.matched_total, has_match.map(|row| row.2).sum::<i64>());
        let ends = rows.iter().filter(|row| row.1.last().is_some_and(|frame| is_match(frame.0)));
        prop_assert_eq!(table.matched_self, ends.map(|row| row.2).sum::<i64>());
        prop_assert_eq!((table.total, table.period), (whole.total, if uploads.is_empty() { 0 } else { PERIOD }));
        prop_assert_eq!(whole.matched_total, whole.total);
        let names = [name(first), name(second)];
        let mut expected: Vec<FunctionRow> =
            whole.rows.into_iter().filter(|row| names.contains(&row.name)).collect();
        if reverse {
            expected.reverse();
        }
        prop_assert_eq!(table.count, expected.len() as u64);
        prop_assert!(expected.iter().all(|row| row.file == "a.rs" && row.binary.is_empty()));
        prop_assert_eq!(table.rows, expected);
    }
}

#[test]
fn filter_that_is_no_expression_is_rejected() {
    let querier = querier_with(QuerierConfig::default(), &[], &[]);
    let message = |pattern| {
        let filter = Some(FunctionFilter { pattern: Some(pattern) });
        let request = FunctionsRequest { query: query(1, 2), filter, ..FunctionsRequest::default() };
        ask(querier.functions(&both(), request)).unwrap_err().message
    };
    assert!(
        message(Pattern::Regex("a(".to_owned()))
            .starts_with("filter: regular expression \"a(\" at character 2: ")
    );
    assert!(message(Pattern::Substring("a".repeat(1 << 17))).contains("the limit is 65536"));
}
