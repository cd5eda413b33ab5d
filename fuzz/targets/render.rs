//! Any text behind the `?` of a query of older clients: refused with a reason, or answered in the form that it asks
//! for. Names and values that are written as a query string are read as what they were.
#![no_main]

use std::sync::LazyLock;

use athanor_chassis::{ErrorCode, Status, TenantId};
use athanor_querier::{Querier, QuerierConfig, QueryContext, RenderedResponse, parse_parameters};
use libfuzzer_sys::fuzz_target;

#[path = "../now.rs"]
mod now;
#[path = "../querier.rs"]
mod querier;

use now::now;
use querier::querier;

static QUERIER: LazyLock<Querier> = LazyLock::new(|| querier(QuerierConfig::default()));

fn check(answer: Result<RenderedResponse, Status>) {
    match answer {
        Ok(RenderedResponse { content_type, body }) if content_type.starts_with("application/json") => {
            let graph: serde_json::Value = serde_json::from_slice(&body).expect("JSON");
            assert!(graph["flamebearer"]["names"].is_array());
        }
        // A call graph of nothing is nothing.
        Ok(RenderedResponse { body, .. }) => assert!(body.is_empty()),
        Err(status) => {
            assert!(!status.message.is_empty() && status.code != ErrorCode::Internal, "{status:?}");
        }
    }
}

fuzz_target!(|text: &str| {
    let reader = QueryContext::for_tenant(TenantId::anonymous());
    check(now(QUERIER.render(&reader, text)));
    check(now(QUERIER.render_diff(&reader, text)));
    if let Err(status) = now(QUERIER.export(&reader, text)) {
        assert!(!status.message.is_empty() && status.code != ErrorCode::Internal, "{status:?}");
    }
    let Ok(pairs) = parse_parameters(text) else { return };
    let mut writer = form_urlencoded::Serializer::new(String::new());
    let written = writer.extend_pairs(&pairs).finish();
    // Escapes may make it longer than what is read.
    if let Ok(again) = parse_parameters(&written) {
        assert_eq!(again, pairs);
    }
});
