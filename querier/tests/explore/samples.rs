//! Streams of samples: equal to the tables of the same query, in pages and as a whole.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use athanor_arrow_format::{SampleReader, SampleRow};
use athanor_chassis::{
    Clock, ComputePool, ErrorCode, LimitOverrides, Status, TenantId, TenantLimits, Timestamp,
};
use athanor_proto::athanor::v1::*;
use athanor_querier::{
    DataSources, DataTimeRange, DedupHints, Querier, QuerierConfig, QuerierDeps, QueryContext, QueryPlan,
};
use athanor_query::{ProfileQuery, QueryKind};
use proptest::prelude::*;

use crate::laws::{Row, rows};
use crate::{Upload, Uploads, ask, both, name, querier_with, query, upload};

/// Rows of a stream, with the functions of each stack, leaf first.
type NamedRows = Vec<(SampleRow, Vec<String>)>;

/// Rows of a response, and what else its stream states.
struct ReadStream {
    rows: NamedRows,
    cursor: String,
    warnings: Vec<String>,
    unit: String,
}

fn request(from: i64, to: i64) -> SamplesRequest {
    SamplesRequest { query: query(from, to), ..SamplesRequest::default() }
}

fn read(querier: &Querier, reader: &QueryContext, request: SamplesRequest) -> Result<ReadStream, Status> {
    let bytes = ask(async {
        let mut stream = querier.samples(reader, request).await?;
        let mut bytes = Vec::new();
        while let Some(chunk) = stream.next_bytes().await? {
            bytes.extend_from_slice(&chunk);
        }
        Ok::<_, Status>(bytes)
    })?;
    let mut reader = SampleReader::new(bytes.as_slice()).expect("a schema");
    let mut rows = Vec::new();
    while let Some(row) = reader.next() {
        let row = row.expect("a row");
        let mut names = reader.dictionary().frame_names(row.stack);
        names.reverse();
        rows.push((SampleRow { stack: 0, ..row }, names));
    }
    let unit = reader.metadata().unit.clone();
    Ok(ReadStream { rows, cursor: reader.cursor().to_owned(), warnings: reader.warnings().to_vec(), unit })
}

fn refusal(querier: &Querier, request: SamplesRequest) -> Status {
    read(querier, &both(), request).err().expect("a refusal")
}

/// Sums by stack of the model, functions only.
fn sums_of_model(rows: &[Row]) -> BTreeMap<Vec<String>, i64> {
    let mut sums = BTreeMap::new();
    for (_, frames, value) in rows {
        let names = frames.iter().rev().map(|frame| name(frame.0)).collect();
        *sums.entry(names).or_default() += value;
    }
    sums.retain(|_, sum| *sum != 0);
    sums
}

fn sums_of_rows(rows: &NamedRows) -> BTreeMap<Vec<String>, i64> {
    let mut sums = BTreeMap::new();
    for (row, names) in rows {
        *sums.entry(names.clone()).or_default() += row.value;
    }
    sums.retain(|_, sum| *sum != 0);
    sums
}

fn busy() -> Vec<Upload> {
    let upload = |second, tenant| {
        let rows = (0..4u8).map(|function| (vec![(0, 1), (function, 2)], 10 + i64::from(function)));
        Upload { pod: 1, second, rows: rows.collect(), source: second as usize % 3, tenant }
    };
    (1..20).map(|second| upload(second, second % 2 == 0)).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn samples_are_those_of_the_model_in_order_of_time(
        uploads in prop::collection::vec(upload(), 0..10), from in 1..20i64, to in 20..30i64,
    ) {
        let querier = querier_with(QuerierConfig::default(), &uploads, &[]);
        let expected = sums_of_model(&rows(&uploads, from, to));
        match read(&querier, &both(), request(from, to)) {
            Ok(found) => {
                let times: Vec<i64> = found.rows.iter().map(|(row, _)| row.time).collect();
                prop_assert!(times.is_sorted());
                prop_assert_eq!(sums_of_rows(&found.rows), expected);
                prop_assert_eq!(found.unit, "nanoseconds");
            }
            Err(status) => {
                prop_assert_eq!(status.code, ErrorCode::NotFound);
                prop_assert!(expected.is_empty());
            }
        }
    }

    #[test]
    fn pages_by_cursor_equal_one_stream(
        uploads in prop::collection::vec(upload(), 1..10), limit in 1..9u64,
    ) {
        let querier = querier_with(QuerierConfig::default(), &uploads, &[]);
        let Ok(mut whole) = read(&querier, &both(), request(1, 30)) else { return Ok(()) };
        let mut paged = Vec::new();
        let mut cursor = String::new();
        loop {
            let page = SamplesRequest { limit: Some(limit), cursor: cursor.clone(), ..request(1, 30) };
            let page = read(&querier, &both(), page).unwrap();
            prop_assert!(page.rows.len() as u64 <= limit);
            let is_last = (page.rows.len() as u64) < limit;
            paged.extend(page.rows);
            if is_last {
                break;
            }
            cursor = page.cursor;
        }
        prop_assert_eq!(paged.len(), whole.rows.len());
        paged.sort();
        whole.rows.sort();
        prop_assert_eq!(paged, whole.rows);
    }
}

#[test]
fn tenant_reads_only_its_own_samples() {
    let querier = querier_with(QuerierConfig::default(), &busy(), &[]);
    let count = |tenants: &str| {
        let reader = QueryContext::parse(tenants).unwrap();
        read(&querier, &reader, request(1, 30)).map(|found| found.rows.len())
    };
    assert_eq!((count("a"), count("b"), count("a|b")), (Ok(40), Ok(36), Ok(76)));
    assert_eq!(count("c").unwrap_err().code, ErrorCode::NotFound);
}

#[test]
fn partial_stream_states_its_warnings() {
    let querier = querier_with(QuerierConfig::default(), &busy(), &["block 7 cannot be read"]);
    let reader = QueryContext::parse("a").unwrap();
    let found = read(&querier, &reader, request(1, 30)).unwrap();
    assert_eq!(found.warnings, ["block 7 cannot be read"]);
    assert_eq!(reader.warnings(), ["block 7 cannot be read"]);
}

#[test]
fn columns_are_those_of_the_request() {
    let querier = querier_with(QuerierConfig::default(), &busy(), &[]);
    let columns = ["value", "stack"].map(str::to_owned).to_vec();
    let found = read(&querier, &both(), SamplesRequest { columns, ..request(1, 30) }).unwrap();
    assert_eq!(found.rows.len(), 76);
    assert!(found.cursor.is_empty() && found.rows.iter().all(|(row, _)| row.time == 0));
}

#[test]
fn bad_input_is_refused_with_the_name_of_the_parameter() {
    let querier = querier_with(QuerierConfig::default(), &busy(), &[]);
    let message = |request| refusal(&querier, request).message;
    for limit in [0, 1 << 63, u64::MAX] {
        let refused = message(SamplesRequest { limit: Some(limit), ..request(1, 30) });
        assert!(refused.contains(&format!("limit is {limit}, it must be from 1")), "{refused}");
    }
    let columns = vec!["stacks".to_owned()];
    let refused = message(SamplesRequest { columns, ..request(1, 30) });
    assert!(refused.contains("columns has \"stacks\"") && refused.contains("profile_id"), "{refused}");
    let mut other_type = request(1, 30);
    other_type.query.as_mut().unwrap().profile_type = "memory:a:b:c:d".to_owned();
    assert!(message(other_type).contains("query.profile_type"));
    assert!(message(SamplesRequest::default()).contains("set query"));
}

#[test]
fn cursor_of_another_query_or_tenant_is_refused() {
    let querier = querier_with(QuerierConfig::default(), &busy(), &[]);
    let page = SamplesRequest { limit: Some(3), ..request(1, 30) };
    let cursor = read(&querier, &both(), page).unwrap().cursor;
    let of_other_query = refusal(&querier, SamplesRequest { cursor: cursor.clone(), ..request(1, 29) });
    assert!(of_other_query.message.contains("another query or tenant"), "{}", of_other_query.message);
    let tenant = QueryContext::parse("a").unwrap();
    let of_other_tenant = SamplesRequest { cursor: cursor.clone(), ..request(1, 30) };
    let of_other_tenant = read(&querier, &tenant, of_other_tenant).err().unwrap();
    assert!(of_other_tenant.message.contains("another query or tenant"));
    let damaged = refusal(&querier, SamplesRequest { cursor: format!("{cursor}x"), ..request(1, 30) });
    assert!(damaged.message.contains("no cursor of this server"), "{}", damaged.message);
}

#[test]
fn selector_without_profiles_gives_an_empty_stream() {
    let querier = querier_with(QuerierConfig::default(), &busy(), &[]);
    let mut none = request(1, 30);
    none.query.as_mut().unwrap().selector = "{pod=\"p9\"}".to_owned();
    assert_eq!(read(&querier, &both(), none).unwrap().rows.len(), 0);
}

#[test]
fn expired_cursor_says_how_to_start_over() {
    let sources = Arc::new(Uploads { uploads: busy(), warnings: Vec::new() });
    let (clock, hand) = Clock::manual(Timestamp::UNIX_EPOCH);
    let overrides = LimitOverrides::new(TenantLimits::default());
    let deps = QuerierDeps { sources, overrides, clock, compute: ComputePool::inline() };
    let querier = Querier::new(QuerierConfig::default(), deps);
    let first = read(&querier, &both(), SamplesRequest { limit: Some(3), ..request(1, 30) }).unwrap();
    let next = SamplesRequest { cursor: first.cursor, ..request(1, 30) };
    hand.advance(Duration::from_hours(24));
    assert_eq!(read(&querier, &both(), next.clone()).unwrap().rows.len(), 73);
    hand.advance(Duration::from_secs(1));
    let refused = refusal(&querier, next);
    assert_eq!(refused.code, ErrorCode::Invalid);
    assert!(
        refused.message.contains("expired after 1d; send no cursor to start over"),
        "{}",
        refused.message
    );
}

#[test]
fn range_beyond_the_limit_names_its_parameters() {
    let limits = TenantLimits { max_query_length: Some(Duration::from_secs(10)), ..TenantLimits::default() };
    let sources = Arc::new(Uploads { uploads: busy(), warnings: Vec::new() });
    let (clock, _hand) = Clock::manual(Timestamp::UNIX_EPOCH);
    let deps = QuerierDeps {
        sources,
        overrides: LimitOverrides::new(limits),
        clock,
        compute: ComputePool::inline(),
    };
    let querier = Querier::new(QuerierConfig::default(), deps);
    let refused = refusal(&querier, request(1, 30)).message;
    assert!(refused.contains("query.start and query.end: time range is 29s long"), "{refused}");
    assert!(refused.contains("limits.max_query_length"), "{refused}");
    assert!(!read(&querier, &both(), request(1, 11)).unwrap().rows.is_empty());
}

/// Data whose samples can be planned only before a time.
struct StuckUploads {
    uploads: Uploads,
    first_stuck: i64,
}

#[async_trait::async_trait]
impl DataSources for StuckUploads {
    async fn plan(
        &self,
        tenant: &TenantId,
        query: &ProfileQuery,
        hints: &DedupHints,
    ) -> Result<QueryPlan, Status> {
        let is_slice = matches!(query.what, QueryKind::Samples(_));
        if is_slice && query.selection.time.from >= self.first_stuck {
            std::future::pending::<()>().await;
        }
        self.uploads.plan(tenant, query, hints).await
    }

    async fn data_time_range(&self, tenant: &TenantId) -> Result<DataTimeRange, Status> {
        self.uploads.data_time_range(tenant).await
    }
}

#[test]
fn dropped_stream_frees_its_permit_with_its_memory() {
    let uploads: Vec<Upload> = (0..20).flat_map(|_| busy()).collect();
    let uploads = Uploads { uploads, warnings: Vec::new() };
    let sources = Arc::new(StuckUploads { uploads, first_stuck: 5 * 1_000_000_000 });
    let (clock, _hand) = Clock::manual(Timestamp::UNIX_EPOCH);
    let overrides = LimitOverrides::new(TenantLimits::default());
    let deps = QuerierDeps { sources, overrides, clock, compute: ComputePool::inline() };
    let querier = Querier::new(QuerierConfig::default(), deps);
    let state = || (querier.stats().turns.running, querier.response_budget().stats().taken > 0);
    ask(async {
        let mut stream = querier.samples(&both(), request(1, 30)).await.unwrap();
        assert_eq!(state(), (0, true));
        loop {
            let mut next = Box::pin(stream.next_bytes());
            match futures::poll!(next.as_mut()) {
                Poll::Ready(bytes) => {
                    assert!(bytes.unwrap().is_some(), "the stream ended before the stuck slice")
                }
                Poll::Pending => break assert_eq!(state(), (1, true)),
            }
        }
        drop(stream);
        assert_eq!(state(), (0, false));
    });
}
