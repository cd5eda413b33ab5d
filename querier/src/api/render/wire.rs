//! `GET /pyroscope/label-values`: label values as a JSON list, for older clients.

use athanor_chassis::Status;
use athanor_profile::store_interface::series::METRIC_NAME_LABEL;
use athanor_proto::types::v1::LabelValuesRequest;

use super::{RenderedResponse, UrlParameters, parse_times};
use crate::QueryContext;
use crate::api::lists::label_values;
use crate::execute::executor::QueryExecutor;
use crate::validate::invalid_argument;

/// Label that contains the profile type of a series.
const PROFILE_TYPE_LABEL: &str = "__profile_type__";
/// Memory of a text in JSON, beside its characters.
const JSON_TEXT_OVERHEAD_BYTES: usize = 64;

pub(crate) async fn render_label_values(
    executor: &QueryExecutor,
    reader: &QueryContext,
    query: &str,
) -> Result<RenderedResponse, Status> {
    let mut parameters = UrlParameters::parse(query)?;
    let name = parameters.first("label").unwrap_or_default().to_owned();
    if name.is_empty() {
        return Err(invalid_argument("request names no label; set label"));
    }
    let hour_before = format!("{}-1h", parameters.first("until").unwrap_or("now"));
    parameters.set_default("from", &hour_before);
    let (start, end, _) = parse_times(executor, &parameters, ["from", "until"])?;
    let selector = parameters.first("query").filter(|text| !text.is_empty()).map(str::to_owned);
    let name = if name == METRIC_NAME_LABEL { PROFILE_TYPE_LABEL.to_owned() } else { name };
    let matchers = selector.into_iter().collect();
    let request = LabelValuesRequest { name, matchers, start, end, ..LabelValuesRequest::default() };
    let values = label_values(executor, reader, request).await?.names;
    executor.reserve_memory(
        reader,
        values.iter().map(|value: &String| JSON_TEXT_OVERHEAD_BYTES + 2 * value.len()).sum(),
    )?;
    let json = move || serde_json::to_vec(&values).expect("texts serialise to JSON");
    Ok(RenderedResponse::json(executor.render_on_pool(reader, json).await?))
}
