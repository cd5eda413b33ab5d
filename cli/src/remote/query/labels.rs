//! Command `query labels`: lists label names, or the values of one label.

use athanor_chassis::config::nearest_name;
use athanor_chassis::{ErrorCode, Status};
use athanor_client::ApiClient;
use athanor_proto::types::v1::{
    LabelNamesRequest, LabelNamesResponse, LabelValuesRequest, LabelValuesResponse,
};
use athanor_query::Selector;
use serde_json::json;

use super::MillisTimeRange;
use crate::args::QueryLabelsArgs;
use crate::output::{ConsoleOutput, harmless};
use crate::remote::connection;

/// Lists the names of labels, or the values of the given label.
pub(super) async fn run(args: &QueryLabelsArgs, output: &ConsoleOutput) -> Result<(), Status> {
    let client = connection::client(&args.remote)?;
    let range = MillisTimeRange::of(&args.times, client.clock())?;
    let Some(name) = &args.name else {
        let names = names(&client, &args.selector, range).await?;
        return output.print_json_or_text(|| json!({ "labels": names }), || lines(&names));
    };
    let MillisTimeRange { start, end } = range;
    let request = LabelValuesRequest {
        name: name.clone(),
        matchers: matchers(&args.selector),
        start,
        end,
        ..LabelValuesRequest::default()
    };
    let answer: LabelValuesResponse =
        client.request("querier.v1.QuerierService/LabelValues", &request).await?;
    let mut values = answer.names;
    values.sort_unstable();
    if values.is_empty() {
        let known = names(&client, &args.selector, range).await?;
        let near = nearest_name(name, known.iter().map(String::as_str));
        let hint = near.map(|near| format!("; did you mean {}?", harmless(near))).unwrap_or_default();
        let message = format!("no series of {} has the label {name:?} {range}{hint}", args.selector);
        return Err(Status::new(ErrorCode::NotFound, message));
    }
    output.print_json_or_text(|| json!({ "label": name, "values": values }), || lines(&values))
}

async fn names(
    client: &ApiClient,
    selector: &Selector,
    range: MillisTimeRange,
) -> Result<Vec<String>, Status> {
    let MillisTimeRange { start, end } = range;
    let request =
        LabelNamesRequest { matchers: matchers(selector), start, end, ..LabelNamesRequest::default() };
    let answer: LabelNamesResponse = client.request("querier.v1.QuerierService/LabelNames", &request).await?;
    let mut names = answer.names;
    names.sort_unstable();
    Ok(names)
}

/// Returns the matchers, or an empty list if the selector matches everything: servers process that case from
/// an index.
fn matchers(selector: &Selector) -> Vec<String> {
    if selector.matchers().is_empty() { Vec::new() } else { vec![selector.to_string()] }
}

fn lines(texts: &[String]) -> String {
    texts.iter().map(|text| format!("{}\n", harmless(text))).collect()
}
