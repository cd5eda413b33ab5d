//! `GET /pyroscope/label-values`: label values as a JSON list, for older clients.

use athanor_chassis::Status;
use athanor_profile::store_interface::series::METRIC_NAME_LABEL;
use athanor_proto::types::v1::LabelValuesRequest;

use super::{RenderedResponse, UrlParameters};
use crate::validate::invalid_argument;
use crate::{Querier, QueryContext};

/// Label that contains the profile type of a series.
const PROFILE_TYPE_LABEL: &str = "__profile_type__";
/// Memory of a text in JSON, beside its characters.
const JSON_TEXT_OVERHEAD_BYTES: usize = 64;

impl Querier {
    /// Returns the values of `label` for `query`, from `from` (default: one hour before `until`) to `until`
    /// (default: now). Values of `__name__` are profile types, as older clients expect. The argument is the
    /// query string of the URL.
    pub async fn render_label_values(
        &self,
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
        let (start, end, _) = self.parse_times(&parameters, ["from", "until"])?;
        let selector = parameters.first("query").filter(|text| !text.is_empty()).map(str::to_owned);
        let name = if name == METRIC_NAME_LABEL { PROFILE_TYPE_LABEL.to_owned() } else { name };
        let matchers = selector.into_iter().collect();
        let request = LabelValuesRequest { name, matchers, start, end, ..LabelValuesRequest::default() };
        let values = self.label_values(reader, request).await?.names;
        self.reserve_memory(
            reader,
            values.iter().map(|value: &String| JSON_TEXT_OVERHEAD_BYTES + 2 * value.len()).sum(),
        )?;
        let json = move || serde_json::to_vec(&values).expect("texts serialise to JSON");
        Ok(RenderedResponse::json(self.render_on_pool(reader, json).await?))
    }
}
