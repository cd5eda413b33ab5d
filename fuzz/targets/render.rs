//! Any text behind the `?` of a query of older clients: refused with a reason, or answered in the form that it asks
//! for. Names and values that are written as a query string are read as what they were.
#![no_main]

use std::future::Future;
use std::pin::pin;
use std::sync::{Arc, LazyLock};
use std::task::{Context, Poll, Waker};

use async_trait::async_trait;
use athanor_chassis::{Clock, Code, Compute, Limits, Overrides, Status, TenantId, Timestamp};
use athanor_querier::{
    Config, Deps, Doubts, Plan, Querier, Reader, Rendered, Sources, Times, parse_parameters,
};
use athanor_query::Ask;
use libfuzzer_sys::fuzz_target;

/// Nothing was ever stored: what is looked at is the asking.
struct Nothing;

#[async_trait]
impl Sources for Nothing {
    async fn plan(&self, _: &TenantId, _: &Ask, _: &Doubts) -> Result<Plan, Status> {
        Ok(Plan::default())
    }

    async fn times(&self, _: &TenantId) -> Result<Times, Status> {
        Ok(Times::default())
    }
}

static QUERIER: LazyLock<Querier> = LazyLock::new(|| {
    let deps = Deps {
        sources: Arc::new(Nothing),
        overrides: Overrides::new(Limits::default()),
        clock: Clock::manual(Timestamp::from_seconds(1_800_000_000)).0,
        compute: Compute::inline(),
    };
    Querier::new(Config::default(), deps)
});

/// Runs what waits for nobody.
fn now<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            return output;
        }
    }
}

fn check(answer: Result<Rendered, Status>) {
    match answer {
        Ok(Rendered { content_type, body }) if content_type.starts_with("application/json") => {
            let graph: serde_json::Value = serde_json::from_slice(&body).expect("JSON");
            assert!(graph["flamebearer"]["names"].is_array());
        }
        // A call graph of nothing is nothing.
        Ok(Rendered { body, .. }) => assert!(body.is_empty()),
        Err(status) => {
            assert!(!status.message.is_empty() && status.code != Code::Internal, "{status:?}");
        }
    }
}

fuzz_target!(|text: &str| {
    let reader = Reader::of(TenantId::anonymous());
    check(now(QUERIER.render(&reader, text)));
    check(now(QUERIER.render_diff(&reader, text)));
    let Ok(pairs) = parse_parameters(text) else { return };
    let mut writer = form_urlencoded::Serializer::new(String::new());
    let written = writer.extend_pairs(&pairs).finish();
    // Escapes may make it longer than what is read.
    if let Ok(again) = parse_parameters(&written) {
        assert_eq!(again, pairs);
    }
});
