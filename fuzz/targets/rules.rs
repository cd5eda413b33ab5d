//! Any bytes as a rule for metrics: refused with a reason, or kept, and the same when it is read and when it is said again.
//!
//! The first byte says whether they are a request in protobuf, one in JSON, or the text of a rule that is kept already.
#![no_main]

use std::sync::Arc;

use athanor_catalog::{Catalog, CatalogCommand, CommandResult, InMemoryCatalog};
use athanor_chassis::{Clock, ErrorCode, LimitOverrides, Status, TenantId, TenantLimits, Timestamp};
use athanor_proto::settings::v1::{
    DeleteRecordingRuleRequest, GetRecordingRuleRequest, ListRecordingRulesRequest, RecordingRule,
    UpsertRecordingRuleRequest,
};
use athanor_querier::TenantSettings;
use libfuzzer_sys::fuzz_target;
use prost::Message;

#[path = "../now.rs"]
mod now;

use now::now;

const ID: &str = "kept";

struct Rules {
    companion: TenantSettings,
    catalog: Arc<InMemoryCatalog>,
    tenant: TenantId,
}

impl Rules {
    fn upsert(&self, request: &UpsertRecordingRuleRequest) -> Result<RecordingRule, Status> {
        let answer = now(self.companion.upsert_rule(&self.tenant, request.clone()))?;
        Ok(answer.rule.expect("what was kept is told"))
    }

    fn get(&self, id: &str) -> Result<RecordingRule, Status> {
        let answer =
            now(self.companion.get_rule(&self.tenant, GetRecordingRuleRequest { id: id.to_owned() }))?;
        Ok(answer.rule.expect("what is there is told"))
    }

    fn list(&self) -> Result<Vec<RecordingRule>, Status> {
        Ok(now(self.companion.list_rules(&self.tenant, ListRecordingRulesRequest {}))?.rules)
    }

    fn delete(&self, id: &str) {
        let request = DeleteRecordingRuleRequest { id: id.to_owned() };
        now(self.companion.delete_rule(&self.tenant, request)).expect("it was there");
        assert_eq!(self.list().expect("nothing is there"), []);
    }

    /// A request by somebody.
    fn asked(&self, request: UpsertRecordingRuleRequest) {
        let kept = match self.upsert(&request) {
            Ok(kept) => kept,
            Err(status) => {
                // A generation is that of a rule which is not there.
                let conflict = status.code == ErrorCode::Conflict && request.generation != 0;
                assert!(conflict || status.code == ErrorCode::Invalid, "{status:?}");
                assert!(!status.message.is_empty());
                return;
            }
        };
        assert_eq!(
            (kept.generation, &kept.matchers, &kept.group_by),
            (1, &request.matchers, &request.group_by)
        );
        assert_eq!(self.upsert(&request).expect("it was taken"), kept, "the same rule is the same");
        assert_eq!(self.get(&kept.id).expect("it is there"), kept);
        assert_eq!(self.list().expect("it is there"), [kept.clone()]);
        self.delete(&kept.id);
    }

    /// What another version may have kept, or another one's disk.
    fn kept(&self, text: &str) {
        let (name, text) = (format!("rule/{ID}"), Some(text.to_owned()));
        let note = CatalogCommand::PutTenantDocument { tenant: self.tenant.clone(), name, expected: None, text };
        if !matches!(now(self.catalog.propose(note)).expect("it answers"), CommandResult::Changed(_)) {
            return;
        }
        match self.get(ID) {
            Ok(rule) => assert_eq!(self.list().expect("it was read"), [rule]),
            Err(status) => {
                assert_eq!(status.code, ErrorCode::DataLoss, "{status:?}");
                assert_eq!(self.list().expect_err("it was not read").code, ErrorCode::DataLoss);
            }
        }
        self.delete(ID);
    }
}

fuzz_target!(|bytes: &[u8]| {
    let Some((&first, rest)) = bytes.split_first() else { return };
    let catalog = Arc::new(InMemoryCatalog::new(Clock::manual(Timestamp::from_seconds(5)).0));
    let companion =
        TenantSettings::new(Arc::clone(&catalog) as _, LimitOverrides::new(TenantLimits::default()));
    let rules = Rules { companion, catalog, tenant: TenantId::anonymous() };
    match first % 3 {
        0 => {
            let Ok(request) = UpsertRecordingRuleRequest::decode(rest) else { return };
            rules.asked(request);
        }
        1 => {
            let Ok(request) = serde_json::from_slice(rest) else { return };
            rules.asked(request);
        }
        _ => {
            let Ok(text) = std::str::from_utf8(rest) else { return };
            rules.kept(text);
        }
    }
});
