//! Recording rules on the wire.

use athanor_catalog::TenantDocuments;
use athanor_chassis::{ErrorCode, Status, TenantId};
use athanor_proto::settings::v1::{
    DeleteRecordingRuleRequest, DeleteRecordingRuleResponse, GetRecordingRuleRequest,
    GetRecordingRuleResponse, ListRecordingRulesRequest, ListRecordingRulesResponse, MetricType,
    RecordingRule, StacktraceFilter, StacktraceFilterFunctionName, UpsertRecordingRuleRequest,
    UpsertRecordingRuleResponse,
};
use athanor_proto::types::v1::LabelPair;

use super::{MAX_RULES_PER_TENANT, RULE_KEY_PREFIX, StoredRecordingRule, candidate_ids, rule_key};
use crate::companion::TenantSettings;

impl TenantSettings {
    /// Returns one recording rule.
    pub async fn get_rule(
        &self,
        tenant: &TenantId,
        request: GetRecordingRuleRequest,
    ) -> Result<GetRecordingRuleResponse, Status> {
        let notes = self.notes(tenant).await?;
        let note = notes.get(&rule_key(&request.id)?).ok_or_else(|| unknown_rule_error(&request.id))?;
        Ok(GetRecordingRuleResponse { rule: Some(wire(&request.id, read(&note.text)?)) })
    }

    /// Returns all recording rules, sorted by id.
    pub async fn list_rules(
        &self,
        tenant: &TenantId,
        _: ListRecordingRulesRequest,
    ) -> Result<ListRecordingRulesResponse, Status> {
        let notes = self.notes(tenant).await?;
        let rules = notes.iter().filter_map(|(name, note)| Some((name.strip_prefix(RULE_KEY_PREFIX)?, note)));
        let rules = rules.map(|(id, note)| Ok(wire(id, read(&note.text)?)));
        Ok(ListRecordingRulesResponse { rules: rules.collect::<Result<_, Status>>()? })
    }

    /// Adds a rule, or changes one if its generation is still the expected one.
    pub async fn upsert_rule(
        &self,
        tenant: &TenantId,
        request: UpsertRecordingRuleRequest,
    ) -> Result<UpsertRecordingRuleResponse, Status> {
        let asked = request.id.clone();
        let expected = request.generation;
        let rule = rule(request).validate()?;
        let changed = self.update_document(tenant, |notes| {
            let id = if asked.is_empty() { new_id(&rule, notes)? } else { asked.clone() };
            let key = rule_key(&id)?;
            let text = notes.get(&key).map(|note| note.text.as_str());
            let known = text.map(read).transpose()?;
            let generation = known.as_ref().map_or(0, |known| known.generation);
            let same = StoredRecordingRule { generation, ..rule.clone() };
            // A retry of the same request succeeds without a change.
            if known.as_ref() == Some(&same) {
                return Ok((key, text.map(str::to_owned)));
            }
            if expected != 0 && expected != generation {
                let message =
                    format!("rule {id} has generation {generation}, not {expected}; read the rule and retry");
                return Err(Status::new(ErrorCode::Conflict, message));
            }
            let count = notes.keys().filter(|name| name.starts_with(RULE_KEY_PREFIX)).count();
            if known.is_none() && count >= MAX_RULES_PER_TENANT {
                return Err(too_many(count));
            }
            let rule = StoredRecordingRule { generation: generation.saturating_add(1), ..same };
            let text = serde_json::to_string(&rule).expect("lists and texts serialise to JSON");
            Ok((key, Some(text)))
        });
        let (key, notes) = changed.await?;
        let id = key.strip_prefix(RULE_KEY_PREFIX).unwrap_or_default();
        let note = notes.get(&key).ok_or_else(|| unknown_rule_error(id))?;
        Ok(UpsertRecordingRuleResponse { rule: Some(wire(id, read(&note.text)?)) })
    }

    /// Deletes a recording rule.
    pub async fn delete_rule(
        &self,
        tenant: &TenantId,
        request: DeleteRecordingRuleRequest,
    ) -> Result<DeleteRecordingRuleResponse, Status> {
        let key = rule_key(&request.id)?;
        self.update_document(tenant, |_| Ok((key.clone(), None))).await?;
        Ok(DeleteRecordingRuleResponse {})
    }
}

fn unknown_rule_error(id: &str) -> Status {
    Status::new(ErrorCode::NotFound, format!("no rule {id}; list the existing rules"))
}

/// Returns the id under which the rule is already stored, or else a free one.
fn new_id(rule: &StoredRecordingRule, notes: &TenantDocuments) -> Result<String, Status> {
    let note = |id: &String| notes.get(&format!("{RULE_KEY_PREFIX}{id}"));
    let is_it = |id: &String| {
        let known = note(id).and_then(|note| read(&note.text).ok());
        known.is_some_and(|known| {
            known == StoredRecordingRule { generation: known.generation, ..rule.clone() }
        })
    };
    let known = candidate_ids(rule).find(is_it);
    let free = || candidate_ids(rule).find(|id| note(id).is_none());
    // If no id is free, the tenant has more rules than its limit.
    known.or_else(free).ok_or_else(|| too_many(notes.len()))
}

fn too_many(count: usize) -> Status {
    let message = format!("there are {count} rules, the limit is {MAX_RULES_PER_TENANT}; delete one");
    Status::new(ErrorCode::Exhausted, message)
}

fn read(text: &str) -> Result<StoredRecordingRule, Status> {
    serde_json::from_str(text).map_err(|error| {
        Status::new(ErrorCode::DataLoss, format!("stored rule is unreadable: {error}; delete the rule"))
    })
}

fn rule(request: UpsertRecordingRuleRequest) -> StoredRecordingRule {
    let filter = request.stacktrace_filter.and_then(|filter| filter.function_name);
    let labels = request.external_labels.into_iter();
    StoredRecordingRule {
        metric_name: request.metric_name,
        matchers: request.matchers,
        group_by: request.group_by,
        external_labels: labels.map(|label| (label.name, label.value)).collect(),
        function: filter.map(|filter| filter.function_name),
        ..StoredRecordingRule::default()
    }
}

fn wire(id: &str, rule: StoredRecordingRule) -> RecordingRule {
    let labels = rule.external_labels.into_iter();
    let metric_type = MetricType::Total as i32;
    let filter =
        rule.function.map(|function_name| StacktraceFilterFunctionName { function_name, metric_type });
    RecordingRule {
        id: id.to_owned(),
        metric_name: rule.metric_name,
        profile_type: rule.profile_type,
        matchers: rule.matchers,
        group_by: rule.group_by,
        external_labels: labels.map(|(name, value)| LabelPair { name, value }).collect(),
        generation: rule.generation,
        stacktrace_filter: filter.map(|filter| StacktraceFilter { function_name: Some(filter) }),
        provisioned: false,
    }
}
