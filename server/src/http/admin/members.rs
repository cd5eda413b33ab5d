//! Member list of the cluster, as a page and as JSON.

use std::fmt::Write;
use std::sync::Arc;

use athanor_chassis::units::format_approximate_duration;
use athanor_cluster::members::ClusterMember;
use axum::body::Body;
use axum::http::Request;
use axum::http::header::ACCEPT;
use serde_json::{Value, json};

use crate::http::api::legacy_api::not_found;
use crate::http::api::web_page::{PAGE_CONTENT_TYPE, PAGE_STYLE, escape_html};
use crate::http::routes::state::{HandlerFuture, HttpState, text};
use crate::membership::cluster_handle::MembershipView;

/// `GET /members`: returns a page, or JSON if the client accepts it.
pub fn members(hall: Arc<HttpState>, request: Request<Body>) -> HandlerFuture {
    let accepted = request.headers().get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
    let wants_json = accepted.into_iter().any(|value| value.contains("application/json"));
    respond(hall, wants_json)
}

/// `GET /members.json`.
pub fn members_json(hall: Arc<HttpState>, _: Request<Body>) -> HandlerFuture {
    respond(hall, true)
}

fn respond(hall: Arc<HttpState>, wants_json: bool) -> HandlerFuture {
    Box::pin(async move {
        match &hall.services.overview.company {
            None => not_found(),
            Some(company) if wants_json => text("application/json", members_json_body(company).to_string()),
            Some(company) => text(PAGE_CONTENT_TYPE, members_page(company)),
        }
    })
}

fn members_json_body(company: &MembershipView) -> Value {
    let now = company.clock.monotonic();
    let row = |member: &ClusterMember| {
        // Node ids are strings, because many JSON parsers do not represent such large integers exactly.
        json!({
            "node": format!("{:016x}", member.node),
            "name": member.name,
            "zone": member.zone,
            "roles": member.roles,
            "internal_address": member.internal,
            "boot": member.boot,
            "state": member.state,
            "alive": member.is_alive(),
            "missing_for_seconds": member.missing_for(now).as_secs(),
        })
    };
    json!({
        "cluster": format!("{:032x}", company.me.cluster),
        "node": format!("{:016x}", company.me.node),
        "members": company.members.current().values().map(row).collect::<Vec<_>>(),
    })
}

fn members_page(company: &MembershipView) -> String {
    let now = company.clock.monotonic();
    let mut page = format!(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>Members</title><style>{PAGE_STYLE}\
         table{{border-collapse:collapse}}td,th{{text-align:left;padding:.2em .8em .2em 0}}</style>\
         <h1>Members of cluster <code>{:032x}</code></h1>\
         <table><tr><th>Name<th>Zone<th>State<th>Roles<th>Address<th>Boot<th>Node",
        company.me.cluster
    );
    for member in company.members.current().values() {
        let roles: Vec<_> = member.roles.iter().map(|role| role.name()).collect();
        let state = match member.missing_since {
            None => member.state.name().to_owned(),
            Some(_) => format!("missing for {}", format_approximate_duration(member.missing_for(now))),
        };
        let here = if member.node == company.me.node { " (this node)" } else { "" };
        // Writing to a string does not fail.
        let _ = write!(
            page,
            "<tr><td>{}{here}<td>{}<td>{state}<td>{}<td>{}<td>{}<td><code>{:016x}</code>",
            escape_html(&member.name),
            escape_html(&member.zone),
            roles.join(", "),
            member.internal,
            member.boot,
            member.node
        );
    }
    page.push_str("</table><p class=\"t\">Also available as <a href=\"members.json\">JSON</a>.</p></html>");
    page
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::time::Duration;

    use athanor_chassis::{Clock, Timestamp};
    use athanor_cluster::handshake::NodeIdentity;
    use athanor_cluster::members::{ClusterMembers, MemberState, RoleName};

    use super::*;

    #[test]
    fn member_list_is_rendered_as_page_and_json() {
        let (clock, hand) = Clock::manual(Timestamp::UNIX_EPOCH);
        hand.advance(Duration::from_secs(90));
        let member = |node, name: &str, missing_since| ClusterMember {
            node,
            name: name.to_owned(),
            zone: "<z>".to_owned(),
            roles: BTreeSet::from([RoleName::Querier]),
            internal: ([10, 0, 0, 5], 9095).into(),
            boot: 3,
            state: MemberState::Ready,
            missing_since,
        };
        let gone = Some(Duration::from_secs(30));
        let members = ClusterMembers::from_static([member(1, "a&b", None), member(2, "two", gone)]);
        let company = MembershipView { me: NodeIdentity { cluster: 7, node: 1, boot: 3 }, members, clock };
        let shown = members_page(&company);
        for part in [
            "a&amp;b (this node)",
            "&lt;z&gt;",
            "missing for 1 minute",
            "10.0.0.5:9095",
            "<td>ready<td>querier",
        ] {
            assert!(shown.contains(part), "{part} in {shown}");
        }
        let body = members_json_body(&company);
        assert_eq!(body["members"][0]["alive"], true);
        assert_eq!(body["members"][1]["missing_for_seconds"], 60);
        assert_eq!(body["members"][1]["node"], "0000000000000002");
        assert_eq!(body["members"][1]["roles"], json!(["querier"]));
    }
}
