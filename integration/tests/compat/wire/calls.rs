//! All calls, each with a question that is answered.

use athanor_proto::adhocprofiles::v1 as adhoc;
use athanor_proto::athanor::v1 as explore;
use athanor_proto::capabilities::v1 as capabilities;
use athanor_proto::debuginfo::v1alpha1 as debuginfo;
use athanor_proto::google::v1 as google;
use athanor_proto::grpc::health::v1 as health;
use athanor_proto::parca::debuginfo::v1alpha1 as parca_debuginfo;
use athanor_proto::parca::profilestore::v1alpha1 as profilestore;
use athanor_proto::push::v1 as push;
use athanor_proto::querier::v1 as querier;
use athanor_proto::settings::v1 as settings;
use athanor_proto::types::v1 as types;
use athanor_proto::vcs::v1 as vcs;
use athanor_proto::version::v1 as version;
use prost::Message;
use serde_json::{Value, json};

use crate::wire::data::{Aviary, BY_HAND, SELECTOR, SPAN, TYPE, Times};

/// One call.
pub struct Call {
    /// Service and method.
    pub path: &'static str,
    /// A question, in the names of the contract.
    pub good: Value,
    /// How it is answered: `ok`, or in which code it is refused as long as nothing is configured.
    pub code: &'static str,
    /// How an empty question is answered.
    pub empty: &'static str,
    /// What is in the good answer, as a JSON pointer.
    pub shows: &'static str,
    /// Whether the same question has the same answer whenever it is asked.
    pub is_steady: bool,
    /// Whether anybody may ask, of no tenant.
    pub is_open: bool,
    /// A question as protobuf.
    pub question: fn(&Value) -> Vec<u8>,
    /// An answer in protobuf as JSON.
    pub answer: fn(&[u8]) -> Value,
}

impl Call {
    fn of<Q, A>(path: &'static str, good: Value, empty: &'static str, shows: &'static str) -> Self
    where
        Q: Message + Default + serde::de::DeserializeOwned,
        A: Message + Default + serde::Serialize,
    {
        Call {
            path,
            good,
            code: "ok",
            empty,
            shows,
            is_steady: true,
            is_open: false,
            question: |question| serde_json::from_value::<Q>(question.clone()).unwrap().encode_to_vec(),
            answer: |bytes| serde_json::to_value(A::decode(bytes).unwrap()).unwrap(),
        }
    }

    fn changing(self) -> Self {
        Call { is_steady: false, ..self }
    }

    fn open(self) -> Self {
        Call { is_open: true, ..self }
    }

    fn refused(self, code: &'static str) -> Self {
        Call { code, ..self }
    }

    pub fn service(&self) -> &'static str {
        self.path.split('/').next().unwrap()
    }
}

/// A good question with a few fields more.
fn with(good: &Value, more: Value) -> Value {
    let mut good = good.clone();
    good.as_object_mut().unwrap().append(&mut more.as_object().unwrap().clone());
    good
}

/// All calls.
pub fn all(aviary: &Aviary) -> Vec<Call> {
    let (queries, explores) = (queries(aviary), explores(aviary.times));
    let files: Vec<Call> = debuginfo_calls().into_iter().chain(parca_calls(aviary.times)).collect();
    [queries, explores, uploads(&aviary.upload), settings(), rules(), files, others()]
        .into_iter()
        .flatten()
        .collect()
}

/// Those of Grafana's clients.
pub fn queries(aviary: &Aviary) -> Vec<Call> {
    let about = aviary.about();
    [lists(aviary.times), graphs(&about), points(&about)].into_iter().flatten().collect()
}

const REFUSED: &str = "invalid_argument";

/// Uploads, and what there is of them.
fn lists(Times { start, end }: Times) -> Vec<Call> {
    use querier::*;
    let times = json!({ "start": start, "end": end });
    let of = |more| with(&times, more);
    let pushed = json!(crate::wire::data::push("matrix", start * 1_000_000));
    vec![
        Call::of::<push::PushRequest, push::PushResponse>("push.v1.PusherService/Push", pushed, REFUSED, ""),
        Call::of::<ProfileTypesRequest, ProfileTypesResponse>(
            "querier.v1.QuerierService/ProfileTypes",
            of(json!({})),
            "ok",
            "/profileTypes/0/ID",
        ),
        Call::of::<types::LabelNamesRequest, types::LabelNamesResponse>(
            "querier.v1.QuerierService/LabelNames",
            of(json!({ "matchers": [SELECTOR] })),
            REFUSED,
            "/names/0",
        ),
        Call::of::<types::LabelValuesRequest, types::LabelValuesResponse>(
            "querier.v1.QuerierService/LabelValues",
            of(json!({ "name": "service_name", "matchers": [SELECTOR] })),
            REFUSED,
            "/names/0",
        ),
        Call::of::<SeriesRequest, SeriesResponse>(
            "querier.v1.QuerierService/Series",
            of(json!({ "label_names": ["service_name"], "matchers": [SELECTOR] })),
            REFUSED,
            "/labelsSet/0/labels/0",
        ),
        Call::of::<types::GetProfileStatsRequest, types::GetProfileStatsResponse>(
            "querier.v1.QuerierService/GetProfileStats",
            json!({}),
            "ok",
            "/newestProfileTime",
        ),
        Call::of::<AnalyzeQueryRequest, AnalyzeQueryResponse>(
            "querier.v1.QuerierService/AnalyzeQuery",
            of(json!({ "query": format!("{TYPE}{SELECTOR}") })),
            "ok",
            "/queryScopes/0",
        ),
    ]
}

fn graphs(about: &Value) -> Vec<Call> {
    use querier::*;
    let in_span = with(about, json!({ "span_selector": [SPAN] }));
    vec![
        Call::of::<SelectMergeStacktracesRequest, SelectMergeStacktracesResponse>(
            "querier.v1.QuerierService/SelectMergeStacktraces",
            with(
                about,
                json!({ "max_nodes": 100, "stack_trace_selector": { "call_site": [{ "name": "func1" }] } }),
            ),
            REFUSED,
            "/flamegraph/levels/2/values/0",
        ),
        Call::of::<SelectMergeSpanProfileRequest, SelectMergeSpanProfileResponse>(
            "querier.v1.QuerierService/SelectMergeSpanProfile",
            in_span,
            REFUSED,
            "/flamegraph/levels/1/values/0",
        ),
        Call::of::<SelectMergeProfileRequest, google::Profile>(
            "querier.v1.QuerierService/SelectMergeProfile",
            about.clone(),
            REFUSED,
            "/sample/1/value/0",
        ),
        Call::of::<DiffRequest, DiffResponse>(
            "querier.v1.QuerierService/Diff",
            json!({ "left": about, "right": about }),
            REFUSED,
            "/flamegraph/levels/2/values/6",
        ),
    ]
}

fn points(about: &Value) -> Vec<Call> {
    use querier::*;
    let points = with(about, json!({ "step": 15, "group_by": ["service_name"] }));
    let heat = with(about, json!({ "step": 15, "query_type": "HEATMAP_QUERY_TYPE_INDIVIDUAL" }));
    vec![
        Call::of::<SelectSeriesRequest, SelectSeriesResponse>(
            "querier.v1.QuerierService/SelectSeries",
            points,
            REFUSED,
            "/series/0/points/0/value",
        ),
        Call::of::<SelectHeatmapRequest, SelectHeatmapResponse>(
            "querier.v1.QuerierService/SelectHeatmap",
            heat,
            REFUSED,
            "/series/0/slots/0/counts/0",
        ),
    ]
}

/// Those that only this server answers.
fn explores(Times { start, end }: Times) -> Vec<Call> {
    use explore::*;
    let query = json!({ "profile_type": TYPE, "selector": SELECTOR, "start": start, "end": end });
    let of = |more| with(&json!({ "query": query }), more);
    vec![
        Call::of::<FunctionsRequest, FunctionsResponse>(
            "athanor.v1.ExploreService/Functions",
            of(json!({ "group_by": ["service_name"], "page": { "limit": 10 } })),
            REFUSED,
            "/rows/1/name",
        ),
        Call::of::<SandwichRequest, SandwichResponse>(
            "athanor.v1.ExploreService/Sandwich",
            of(json!({ "function": "func1", "max_nodes": 10 })),
            REFUSED,
            "/callees/nodes/1",
        ),
        Call::of::<LinesRequest, LinesResponse>(
            "athanor.v1.ExploreService/Lines",
            of(json!({ "function": "func1" })),
            REFUSED,
            "/rows/0/file",
        ),
        Call::of::<GraphRequest, GraphResponse>(
            "athanor.v1.ExploreService/Graph",
            of(json!({ "max_nodes": 10, "invert": true })),
            REFUSED,
            "/names/text",
        ),
        Call::of::<SubtreeRequest, SubtreeResponse>(
            "athanor.v1.ExploreService/Subtree",
            of(json!({ "path": ["func1"] })),
            REFUSED,
            "/tree/nodes/1",
        ),
        Call::of::<ChangesRequest, ChangesResponse>(
            "athanor.v1.ExploreService/Changes",
            json!({ "left": query, "right": query, "only_more_than_sampling_noise": false }),
            REFUSED,
            "/left/total",
        ),
        Call::of::<ProfilesRequest, ProfilesResponse>(
            "athanor.v1.ExploreService/Profiles",
            of(json!({})),
            REFUSED,
            "/rows/0/id",
        ),
    ]
}

/// Profiles that people upload by hand.
fn uploads(id: &str) -> Vec<Call> {
    use adhoc::*;
    vec![
        Call::of::<AdHocProfilesUploadRequest, AdHocProfilesGetResponse>(
            "adhocprofiles.v1.AdHocProfileService/Upload",
            json!({ "name": "again", "profile": BY_HAND, "max_nodes": 10 }),
            REFUSED,
            "/flamebearerProfile",
        )
        .changing(),
        Call::of::<AdHocProfilesGetRequest, AdHocProfilesGetResponse>(
            "adhocprofiles.v1.AdHocProfileService/Get",
            json!({ "id": id, "profile_type": "samples" }),
            REFUSED,
            "/profileTypes/0",
        ),
        Call::of::<AdHocProfilesListRequest, AdHocProfilesListResponse>(
            "adhocprofiles.v1.AdHocProfileService/List",
            json!({}),
            "ok",
            "/profiles/0/uploadedAt",
        ),
        Call::of::<AdHocProfilesDiffRequest, AdHocProfilesDiffResponse>(
            "adhocprofiles.v1.AdHocProfileService/Diff",
            json!({ "left_id": id, "right_id": id }),
            REFUSED,
            "/flamebearerProfile",
        ),
    ]
}

/// What people of a tenant have set.
fn settings() -> Vec<Call> {
    use settings::*;
    vec![
        Call::of::<SetSettingsRequest, SetSettingsResponse>(
            "settings.v1.SettingsService/Set",
            json!({ "setting": { "name": "maxNodes", "value": "100", "modifiedAt": 7 } }),
            REFUSED,
            "/setting/modifiedAt",
        )
        .changing(),
        Call::of::<GetSettingsRequest, GetSettingsResponse>(
            "settings.v1.SettingsService/Get",
            json!({}),
            "ok",
            "/settings/0/name",
        ),
        Call::of::<DeleteSettingsRequest, DeleteSettingsResponse>(
            "settings.v1.SettingsService/Delete",
            json!({ "name": "another" }),
            REFUSED,
            "",
        ),
    ]
}

fn rules() -> Vec<Call> {
    use settings::*;
    let rule = json!({
        "id": "canary",
        "metric_name": "profiles_recorded_canary",
        "matchers": [format!("{{__profile_type__={TYPE:?}}}")],
        "group_by": ["service_name"],
        "external_labels": [{ "name": "a", "value": "b" }],
        "stacktrace_filter": { "function_name": { "function_name": "func1" } },
    });
    vec![
        Call::of::<UpsertRecordingRuleRequest, UpsertRecordingRuleResponse>(
            "settings.v1.RecordingRulesService/UpsertRecordingRule",
            rule,
            REFUSED,
            "/rule/id",
        )
        .changing(),
        Call::of::<GetRecordingRuleRequest, GetRecordingRuleResponse>(
            "settings.v1.RecordingRulesService/GetRecordingRule",
            json!({ "id": "canary" }),
            REFUSED,
            "/rule/metricName",
        ),
        Call::of::<ListRecordingRulesRequest, ListRecordingRulesResponse>(
            "settings.v1.RecordingRulesService/ListRecordingRules",
            json!({}),
            "ok",
            "/rules/0/id",
        ),
        Call::of::<DeleteRecordingRuleRequest, DeleteRecordingRuleResponse>(
            "settings.v1.RecordingRulesService/DeleteRecordingRule",
            json!({ "id": "another" }),
            REFUSED,
            "",
        ),
    ]
}

/// Debug information in Pyroscope's words. Whether it is wanted changes by being asked.
fn debuginfo_calls() -> Vec<Call> {
    use debuginfo::*;
    let id = json!({ "gnu_build_id": "beef" });
    let nobody = json!({ "gnu_build_id": "dead" });
    vec![
        Call::of::<ShouldInitiateUploadRequest, ShouldInitiateUploadResponse>(
            "debuginfo.v1alpha1.DebuginfoService/ShouldInitiateUpload",
            json!({ "file": { "gnu_build_id": "beef", "name": "canary", "type": "TYPE_EXECUTABLE_NO_TEXT" } }),
            REFUSED,
            "/reason",
        )
        .changing(),
        Call::of::<ListDebuginfoRequest, ListDebuginfoResponse>(
            "debuginfo.v1alpha1.DebuginfoService/ListDebuginfo",
            json!({}),
            "ok",
            "",
        ),
        Call::of::<UploadFinishedRequest, UploadFinishedResponse>(
            "debuginfo.v1alpha1.DebuginfoService/UploadFinished",
            nobody,
            REFUSED,
            "",
        )
        .refused("not_found"),
        Call::of::<DeleteDebuginfoRequest, DeleteDebuginfoResponse>(
            "debuginfo.v1alpha1.DebuginfoService/DeleteDebuginfo",
            id,
            REFUSED,
            "",
        ),
    ]
}

/// Profiles and debug information in Parca's words. What begins an upload is asked for a file that is too large, since it is
/// not the same when it is asked again.
fn parca_calls(Times { start, .. }: Times) -> Vec<Call> {
    use parca_debuginfo::*;
    let pushed = crate::wire::data::push("matrix", start * 1_000_000);
    let profile = profilestore::RawSample {
        raw_profile: pushed.series[0].samples[0].raw_profile.clone(),
        ..profilestore::RawSample::default()
    };
    let labels = [("__name__", "deadmans_switch"), ("job", "matrix"), ("node", "cage")];
    let labels = labels.map(|(name, value)| json!({ "name": name, "value": value }));
    let series = json!({ "labels": { "labels": labels }, "samples": [json!(profile)] });
    let id = json!({ "build_id": "feed", "upload_id": "00000000000000000000000000000007" });
    vec![
        Call::of::<profilestore::WriteRawRequest, profilestore::WriteRawResponse>(
            "parca.profilestore.v1alpha1.ProfileStoreService/WriteRaw",
            json!({ "series": [series], "normalized": true }),
            REFUSED,
            "",
        ),
        Call::of::<ShouldInitiateUploadRequest, ShouldInitiateUploadResponse>(
            "parca.debuginfo.v1alpha1.DebuginfoService/ShouldInitiateUpload",
            json!({ "build_id": "feed", "build_id_type": "BUILD_ID_TYPE_GNU", "type": "DEBUGINFO_TYPE_EXECUTABLE" }),
            REFUSED,
            "/reason",
        ),
        Call::of::<InitiateUploadRequest, InitiateUploadResponse>(
            "parca.debuginfo.v1alpha1.DebuginfoService/InitiateUpload",
            json!({ "build_id": "feed", "hash": "canary", "size": "2000000000" }),
            REFUSED,
            "",
        )
        .refused(REFUSED),
        Call::of::<MarkUploadFinishedRequest, MarkUploadFinishedResponse>(
            "parca.debuginfo.v1alpha1.DebuginfoService/MarkUploadFinished",
            id,
            REFUSED,
            "",
        )
        .refused("not_found"),
    ]
}

/// What a server says of itself, and what it is not configured for.
fn others() -> Vec<Call> {
    let question = |path| {
        Call::of::<vcs::Question, vcs::Nothing>(path, json!({}), "unimplemented", "").refused("unimplemented")
    };
    let mut all = vec![
        Call::of::<capabilities::GetFeatureFlagsRequest, capabilities::GetFeatureFlagsResponse>(
            "capabilities.v1.FeatureFlagsService/GetFeatureFlags",
            json!({}),
            "ok",
            "/featureFlags/3/name",
        ),
        Call::of::<version::VersionRequest, version::VersionResponse>(
            "version.v1.Version/Version",
            json!({}),
            "ok",
            "/QuerierAPI",
        ),
        Call::of::<health::HealthCheckRequest, health::HealthCheckResponse>(
            "grpc.health.v1.Health/Check",
            json!({}),
            "ok",
            "/status",
        )
        .open(),
    ];
    all.extend(
        [
            "vcs.v1.VCSService/GithubApp",
            "vcs.v1.VCSService/GithubLogin",
            "vcs.v1.VCSService/GithubRefresh",
            "vcs.v1.VCSService/GetFile",
            "vcs.v1.VCSService/GetCommit",
            "vcs.v1.VCSService/GetCommits",
        ]
        .map(question),
    );
    all
}
