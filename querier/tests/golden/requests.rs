//! Described requests made messages.

use athanor_proto::querier::v1::*;
use athanor_proto::types::v1::*;
use serde_json::Value;

/// A request as it was written: fields in camel or snake case, times relative to the base.
pub struct Fields<'a> {
    pub value: &'a Value,
    pub base: i64,
}

/// What a server that decodes JSON would refuse.
#[derive(Debug)]
pub struct Undecodable;

type Field<T> = Result<T, Undecodable>;

impl Fields<'_> {
    fn get(&self, names: &[&str]) -> &Value {
        names.iter().map(|name| &self.value[*name]).find(|value| !value.is_null()).unwrap_or(&Value::Null)
    }
    fn text(&self, names: &[&str]) -> String {
        self.get(names).as_str().unwrap_or_default().to_owned()
    }
    fn texts(&self, names: &[&str]) -> Vec<String> {
        let all = self.get(names).as_array().into_iter().flatten();
        all.map(|text| text.as_str().expect("a text").to_owned()).collect()
    }
    fn time(&self, name: &str) -> Field<i64> {
        match &self.value[name] {
            Value::Null => Ok(0),
            Value::String(text) => match text.strip_prefix('@') {
                Some(seconds) => {
                    let seconds: f64 = seconds.parse().map_err(|_| Undecodable)?;
                    Ok(self.base + (seconds * 1e3).round() as i64)
                }
                None => text.parse().map_err(|_| Undecodable),
            },
            other => other.as_i64().ok_or(Undecodable),
        }
    }
    fn number(&self, names: &[&str]) -> Field<Option<i64>> {
        match self.get(names) {
            Value::Null => Ok(None),
            Value::String(text) => text.parse().map(Some).map_err(|_| Undecodable),
            other => other.as_i64().map(Some).ok_or(Undecodable),
        }
    }
    /// An enum by number or by the end of its name.
    fn one_of(&self, names: &[&str], values: &[&str]) -> Option<i32> {
        match self.get(names) {
            Value::String(text) => values.iter().position(|value| text.ends_with(value)).map(|at| at as i32),
            other => other.as_i64().map(|number| number as i32),
        }
    }
    fn stacks(&self) -> Option<StackTraceSelector> {
        let value = self.get(&["stackTraceSelector", "stack_trace_selector"]);
        let sites = [&value["callSite"], &value["call_site"]];
        let names = sites.into_iter().filter_map(Value::as_array).flatten();
        let call_site =
            names.map(|site| Location { name: site["name"].as_str().unwrap_or_default().to_owned() });
        let go_pgo = &value["goPgo"];
        (!value.is_null()).then(|| StackTraceSelector {
            call_site: call_site.collect(),
            go_pgo: (!go_pgo.is_null()).then(|| GoPgo {
                keep_locations: go_pgo["keepLocations"].as_u64().unwrap_or_default() as u32,
                aggregate_callees: go_pgo["aggregateCallees"].as_bool().unwrap_or_default(),
            }),
            frame_filter: None,
        })
    }
    fn type_id(&self) -> String {
        self.text(&["profileTypeID", "profile_typeID"])
    }
    fn selector(&self) -> String {
        self.text(&["labelSelector", "label_selector"])
    }
    fn exemplars(&self) -> i32 {
        self.one_of(&["exemplarType"], &["_UNSPECIFIED", "_NONE", "_INDIVIDUAL", "_SPAN"]).unwrap_or_default()
    }
    fn step(&self) -> f64 {
        self.value["step"].as_f64().unwrap_or_default()
    }

    pub fn types(&self) -> Field<ProfileTypesRequest> {
        Ok(ProfileTypesRequest { start: self.time("start")?, end: self.time("end")? })
    }
    pub fn names(&self) -> Field<LabelNamesRequest> {
        let (start, end) = (self.time("start")?, self.time("end")?);
        Ok(LabelNamesRequest { matchers: self.texts(&["matchers"]), start, end, ..Default::default() })
    }
    pub fn values(&self) -> Field<LabelValuesRequest> {
        let (start, end) = (self.time("start")?, self.time("end")?);
        let (name, matchers) = (self.text(&["name"]), self.texts(&["matchers"]));
        Ok(LabelValuesRequest { name, matchers, start, end, ..LabelValuesRequest::default() })
    }
    pub fn series(&self) -> Field<SeriesRequest> {
        let (start, end) = (self.time("start")?, self.time("end")?);
        let label_names = self.texts(&["labelNames", "label_names"]);
        Ok(SeriesRequest { matchers: self.texts(&["matchers"]), label_names, start, end })
    }
    pub fn stacktraces(&self) -> Field<SelectMergeStacktracesRequest> {
        let formats = ["_UNSPECIFIED", "_FLAMEGRAPH", "_TREE", "_DOT", "_PPROF"];
        Ok(SelectMergeStacktracesRequest {
            profile_type_id: self.type_id(),
            label_selector: self.selector(),
            start: self.time("start")?,
            end: self.time("end")?,
            max_nodes: self.number(&["maxNodes", "max_nodes"])?,
            format: self.one_of(&["format"], &formats).unwrap_or_default(),
            stack_trace_selector: self.stacks(),
            profile_id_selector: self.texts(&["profileIdSelector"]),
            r#async: None,
            trace_id_selector: self.texts(&["traceIdSelector"]),
            span_selector: self.texts(&["spanSelector"]),
            ..SelectMergeStacktracesRequest::default()
        })
    }
    pub fn span_profile(&self) -> Field<SelectMergeSpanProfileRequest> {
        let of = self.stacktraces()?;
        Ok(SelectMergeSpanProfileRequest {
            profile_type_id: of.profile_type_id,
            label_selector: of.label_selector,
            span_selector: of.span_selector,
            start: of.start,
            end: of.end,
            max_nodes: of.max_nodes,
            format: of.format,
        })
    }
    pub fn profile(&self) -> Field<SelectMergeProfileRequest> {
        let of = self.stacktraces()?;
        Ok(SelectMergeProfileRequest {
            profile_type_id: of.profile_type_id,
            label_selector: of.label_selector,
            start: of.start,
            end: of.end,
            max_nodes: of.max_nodes,
            stack_trace_selector: of.stack_trace_selector,
            profile_id_selector: of.profile_id_selector,
            trace_id_selector: of.trace_id_selector,
        })
    }
    pub fn points(&self) -> Field<SelectSeriesRequest> {
        Ok(SelectSeriesRequest {
            profile_type_id: self.type_id(),
            label_selector: self.selector(),
            start: self.time("start")?,
            end: self.time("end")?,
            group_by: self.texts(&["groupBy", "group_by"]),
            step: self.step(),
            aggregation: self.one_of(&["aggregation"], &["_SUM", "_AVERAGE"]),
            stack_trace_selector: self.stacks(),
            limit: self.number(&["limit"])?,
            exemplar_type: self.exemplars(),
        })
    }
    pub fn heatmap(&self) -> Field<SelectHeatmapRequest> {
        Ok(SelectHeatmapRequest {
            profile_type_id: self.type_id(),
            label_selector: self.selector(),
            start: self.time("start")?,
            end: self.time("end")?,
            step: self.step(),
            group_by: self.texts(&["groupBy"]),
            query_type: self
                .one_of(&["queryType"], &["_UNSPECIFIED", "_INDIVIDUAL", "_SPAN"])
                .unwrap_or_default(),
            exemplar_type: self.exemplars(),
            limit: self.number(&["limit"])?,
            ..SelectHeatmapRequest::default()
        })
    }
    pub fn query(&self) -> Field<AnalyzeQueryRequest> {
        Ok(AnalyzeQueryRequest {
            start: self.time("start")?,
            end: self.time("end")?,
            query: self.text(&["query"]),
        })
    }
    pub fn diff(&self) -> Field<DiffRequest> {
        let side = |name: &str| {
            let value = &self.value[name];
            let fields = Fields { value, base: self.base };
            (!value.is_null()).then(|| fields.stacktraces()).transpose()
        };
        Ok(DiffRequest { left: side("left")?, right: side("right")?, ..DiffRequest::default() })
    }
}

/// The part of a URL behind `?`; `{ms:30}` and the like are times.
pub fn query(query: &Value, base: i64) -> String {
    let mut parts = Vec::new();
    for (name, value) in query.as_object().into_iter().flatten() {
        let values = value.as_array().cloned().unwrap_or_else(|| vec![value.clone()]);
        for value in values {
            let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            let escaped: String = times(&text, base).bytes().map(|byte| format!("%{byte:02x}")).collect();
            parts.push(format!("{name}={escaped}"));
        }
    }
    parts.join("&")
}

fn times(text: &str, base: i64) -> String {
    for (unit, scale) in [("{s:", 1), ("{ms:", 1_000), ("{us:", 1_000_000), ("{ns:", 1_000_000_000i64)] {
        if let Some(seconds) = text.strip_prefix(unit).and_then(|rest| rest.strip_suffix('}')) {
            let seconds: i64 = seconds.parse().expect("seconds");
            return ((base / 1_000 + seconds) * scale).to_string();
        }
    }
    text.to_owned()
}
