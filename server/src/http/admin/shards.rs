//! Shard overview, as a page and as JSON: shards with their members and leaders.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;

use athanor_catalog::{RoutingView, ShardEntry};
use athanor_cluster::NodeId;
use athanor_cluster::members::{ClusterMember, RoleName};
use axum::body::Body;
use axum::http::Request;
use axum::http::header::ACCEPT;
use serde_json::{Value, json};

use crate::http::api::web_page::{PAGE_CONTENT_TYPE, PAGE_STYLE, escape_html};
use crate::http::routes::state::{HandlerFuture, HttpState, text};
use crate::membership::cluster_overview::ClusterOverview;

/// `GET /shards`: returns a page, or JSON if the client accepts it.
pub fn shards(hall: Arc<HttpState>, request: Request<Body>) -> HandlerFuture {
    let accepted = request.headers().get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
    let wants_json = accepted.into_iter().any(|value| value.contains("application/json"));
    respond(hall, wants_json)
}

/// `GET /shards.json`.
pub fn shards_json(hall: Arc<HttpState>, _: Request<Body>) -> HandlerFuture {
    respond(hall, true)
}

fn respond(hall: Arc<HttpState>, wants_json: bool) -> HandlerFuture {
    Box::pin(async move {
        let overview = ShardOverview::collect(&hall.services.overview).await;
        match wants_json {
            true => text("application/json", overview.to_json().to_string()),
            false => text(PAGE_CONTENT_TYPE, overview.to_page()),
        }
    })
}

/// Returns the shards as JSON.
pub async fn list_shards(overview: &ClusterOverview) -> Value {
    ShardOverview::collect(overview).await.to_json()
}

/// Shards, leaders and members at one time.
struct ShardOverview {
    view: Arc<RoutingView>,
    leaders: BTreeMap<u32, NodeId>,
    members: Arc<BTreeMap<NodeId, ClusterMember>>,
}

impl ShardOverview {
    /// Queries all ingesters for the shards that they lead.
    async fn collect(overview: &ClusterOverview) -> Self {
        let ClusterOverview { views, ways, company, .. } = overview;
        let members = company.as_ref().map(|company| company.members.current()).unwrap_or_default();
        let is_ingester =
            |member: &&ClusterMember| member.is_alive() && member.roles.contains(&RoleName::Ingester);
        let mut nodes: Vec<NodeId> = members.values().filter(is_ingester).map(|member| member.node).collect();
        if company.is_none() {
            nodes.push(ways.me);
        }
        let requests = nodes.into_iter().map(|node| async move { (node, ways.led_shards(node, None).await) });
        let responses = futures::future::join_all(requests).await.into_iter();
        // A node that does not respond leads no usable shard.
        let led_shards = responses.filter_map(|(node, leads)| Some((node, leads.ok()?)));
        let leaders = led_shards.flat_map(|(node, leads)| leads.into_iter().map(move |shard| (shard, node)));
        Self { view: views.current(), leaders: leaders.collect(), members }
    }

    fn name(&self, node: NodeId) -> String {
        self.members.get(&node).map_or_else(|| format!("{node:016x}"), |member| member.name.clone())
    }

    fn to_json(&self) -> Value {
        let node = |node: NodeId| json!({ "node": format!("{node:016x}"), "name": self.name(node) });
        let row = |shard: &ShardEntry| {
            json!({
                "shard": shard.id,
                "slot": shard.slot,
                "epoch": shard.epoch,
                "phase": shard.phase.to_string(),
                "serving": shard.serves(),
                "watermark": shard.watermark,
                "fenced_table": shard.fenced,
                "phase_since_millis": shard.since.millis(),
                "leader": self.leaders.get(&shard.id).map(|leader| node(*leader)),
                "members": shard.members.iter().map(|member| node(*member)).collect::<Vec<_>>(),
            })
        };
        let versions = self.view.tables.as_ref().map(|tables| {
            let all = tables.tables_between(i64::MIN, i64::MAX).iter();
            all.map(|table| json!({ "version": table.version(), "from": table.from(), "slots": table.slots().len() })).collect::<Vec<_>>()
        });
        json!({
            "revision": self.view.revision,
            "replication_factor": self.view.settings.replication_factor,
            "tables": versions.unwrap_or_default(),
            "voters": self.view.voters.keys().map(|voter| node(*voter)).collect::<Vec<_>>(),
            "shards": self.view.shards.iter().map(row).collect::<Vec<_>>(),
        })
    }

    fn to_page(&self) -> String {
        let mut page = format!(
            "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>Shards</title><style>{PAGE_STYLE}\
             table{{border-collapse:collapse}}td,th{{text-align:left;padding:.2em .8em .2em 0}}</style>\
             <h1>Shards</h1><p class=\"t\">Catalog revision {}, replication factor {}.</p>\
             <table><tr><th>Slot<th>Epoch<th>Shard<th>Phase<th>Leader<th>Members<th>Watermark",
            self.view.revision, self.view.settings.replication_factor
        );
        let mut shards: Vec<&ShardEntry> = self.view.shards.iter().collect();
        shards.sort_unstable_by_key(|shard| (shard.slot, shard.epoch));
        for shard in shards {
            let members: Vec<String> =
                shard.members.iter().map(|member| escape_html(&self.name(*member))).collect();
            let leader = self.leaders.get(&shard.id).map(|leader| escape_html(&self.name(*leader)));
            // Writing to a string does not fail.
            let _ = write!(
                page,
                "<tr><td>{}<td>{}<td>{}<td>{}<td>{}<td>{}<td>{}",
                shard.slot,
                shard.epoch,
                shard.id,
                escape_html(&shard.phase.to_string()),
                leader.as_deref().unwrap_or("none"),
                members.join(", "),
                shard.watermark
            );
        }
        page.push_str(
            "</table><p class=\"t\">Also available as <a href=\"shards.json\">JSON</a>.</p></html>",
        );
        page
    }
}

#[cfg(test)]
mod tests {
    use athanor_catalog::ShardPhase;
    use athanor_chassis::Timestamp;

    use super::*;

    #[test]
    fn leaders_are_rendered_as_page_and_json() {
        let shard = |id, slot| ShardEntry {
            id,
            slot,
            epoch: 1,
            watermark: 7,
            members: [1, 2].into(),
            phase: ShardPhase::Open,
            fenced: 1,
            since: Timestamp::UNIX_EPOCH,
        };
        let view =
            RoutingView { revision: 9, shards: vec![shard(1, 0), shard(2, 1)], ..RoutingView::default() };
        let overview =
            ShardOverview { view: Arc::new(view), leaders: [(2, 1)].into(), members: Arc::default() };
        let body = overview.to_json();
        assert_eq!(body["shards"][0]["leader"], Value::Null);
        assert_eq!(body["shards"][1]["leader"]["node"], "0000000000000001");
        assert_eq!(body["shards"][1]["phase"], "open");
        let page = overview.to_page();
        assert!(page.contains("<td>none<td>") && page.contains("<td>0000000000000001<td>"), "{page}");
    }
}
