//! `GET /pyroscope/label-values`: the values of a label as a list of texts, for older clients.

use athanor_chassis::Status;
use athanor_profile::series::METRIC_NAME;
use athanor_proto::querier::v1::ProfileTypesRequest;
use athanor_proto::types::v1::LabelValuesRequest;

use super::{Parameters, Rendered};
use crate::check::invalid;
use crate::{Querier, Reader};

/// What a text takes in JSON, beside its letters.
const TEXT: usize = 64;

impl Querier {
    /// The values of `label`, of the last hour or of `from` to `until`, and of what `query` selects. Values of `__name__`
    /// are profile types, as older clients expect. `query` is what follows `?` in the URL.
    pub async fn values(&self, reader: &Reader, query: &str) -> Result<Rendered, Status> {
        let mut parameters = Parameters::parse(query)?;
        let name = parameters.first("label").unwrap_or_default().to_owned();
        if name.is_empty() {
            return Err(invalid("request names no label; set label"));
        }
        parameters.set_default("from", "now-1h");
        let (start, end, _) = self.times_of(&parameters, ["from", "until"])?;
        let selector = parameters.first("query").filter(|text| !text.is_empty()).map(str::to_owned);
        let values = if name == METRIC_NAME && selector.is_none() {
            let types = self.profile_types(reader, ProfileTypesRequest { start, end }).await?.profile_types;
            types.into_iter().map(|one| one.id).collect()
        } else {
            let matchers = selector.into_iter().collect();
            self.label_values(
                reader,
                LabelValuesRequest { name, matchers, start, end, ..LabelValuesRequest::default() },
            )
            .await?
            .names
        };
        self.make_room(reader, values.iter().map(|value: &String| TEXT + 2 * value.len()).sum())?;
        let json = || serde_json::to_vec(&values).expect("texts serialise to JSON");
        Ok(Rendered { content_type: "application/json", body: json() })
    }
}
