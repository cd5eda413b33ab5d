//! `GET /pyroscope/label-values`: the values of a label as a list of texts, for older clients.

use athanor_chassis::Status;
use athanor_profile::series::METRIC_NAME;
use athanor_proto::types::v1::LabelValuesRequest;

use super::{Parameters, Rendered};
use crate::check::invalid;
use crate::{Querier, Reader};

/// The label by which a series says its type.
const PROFILE_TYPE: &str = "__profile_type__";
/// What a text takes in JSON, beside its letters.
const TEXT: usize = 64;

impl Querier {
    /// The values of `label`, from `from` or an hour before to `until` or now, and of what `query` selects. Values of `__name__`
    /// are profile types, as older clients expect. `query` is what follows `?` in the URL.
    pub async fn values(&self, reader: &Reader, query: &str) -> Result<Rendered, Status> {
        let mut parameters = Parameters::parse(query)?;
        let name = parameters.first("label").unwrap_or_default().to_owned();
        if name.is_empty() {
            return Err(invalid("request names no label; set label"));
        }
        let hour_before = format!("{}-1h", parameters.first("until").unwrap_or("now"));
        parameters.set_default("from", &hour_before);
        let (start, end, _) = self.times_of(&parameters, ["from", "until"])?;
        let selector = parameters.first("query").filter(|text| !text.is_empty()).map(str::to_owned);
        let name = if name == METRIC_NAME { PROFILE_TYPE.to_owned() } else { name };
        let matchers = selector.into_iter().collect();
        let request = LabelValuesRequest { name, matchers, start, end, ..LabelValuesRequest::default() };
        let values = self.label_values(reader, request).await?.names;
        self.make_room(reader, values.iter().map(|value: &String| TEXT + 2 * value.len()).sum())?;
        let json = move || serde_json::to_vec(&values).expect("texts serialise to JSON");
        Ok(Rendered::json(self.shape(reader, json).await?))
    }
}
