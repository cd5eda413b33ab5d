//! Operator commands for a cluster: change voters, seal a shard, abandon a shard.

use std::sync::Arc;

use athanor_catalog::{Catalog, CatalogCommand, CommandResult};
use athanor_chassis::{ErrorCode, Status};
use athanor_cluster::NodeId;
use athanor_cluster::members::{ClusterMember, RoleName};
use athanor_http_server::encoding::json_error;
use athanor_metastore::VoterInfo;
use axum::Router;
use axum::body::Body;
use axum::extract::Path;
use axum::http::Response;
use axum::routing::{get, post};
use serde_json::{Value, json};

use super::AdminState;
use crate::http::list_shards;

/// Adds the routes of cluster commands.
pub fn routes(router: Router, state: &Arc<AdminState>) -> Router {
    let share = || Arc::clone(state);
    let listed = share();
    let added = share();
    let removed = share();
    let shards = share();
    let sealed = share();
    let abandoned = share();
    router
        .route("/metastore/voters", get(move || async move { json_response(list_voters(&listed).await) }))
        .route(
            "/metastore/voters/add/{node}",
            post(
                move |Path(node): Path<String>| async move { json_response(add_voter(&added, &node).await) },
            ),
        )
        .route(
            "/metastore/voters/remove/{node}",
            post(move |Path(node): Path<String>| async move {
                json_response(remove_voter(&removed, &node).await)
            }),
        )
        .route("/shards", get(move || async move { json_response(Ok(list_shards(&shards.overview).await)) }))
        .route(
            "/shards/seal/{shard}",
            post(move |Path(shard): Path<u32>| async move {
                json_response(change(&sealed, CatalogCommand::RequestSeal { shard }).await)
            }),
        )
        .route(
            "/shards/abandon/{shard}",
            post(move |Path(shard): Path<u32>| async move {
                json_response(change(&abandoned, CatalogCommand::AbandonShard { shard }).await)
            }),
        )
}

pub(super) fn json_response(result: Result<Value, Status>) -> Response<Body> {
    match result {
        Ok(value) => Response::new(Body::from(value.to_string())),
        Err(status) => json_error(&status),
    }
}

async fn list_voters(state: &AdminState) -> Result<Value, Status> {
    let voters = state.overview.client.voters().await.map_err(|error| Status::from_error(&error))?;
    Ok(voters_json(state, &voters))
}

async fn add_voter(state: &AdminState, name: &str) -> Result<Value, Status> {
    let member = find_member(state, name)?;
    if !member.roles.contains(&RoleName::Metastore) {
        let message = format!("node {name} is not a metastore; add metastore to its target");
        return Err(Status::new(ErrorCode::Invalid, message));
    }
    let voter = VoterInfo { node: member.node, address: member.internal.to_string() };
    let voters = state.overview.client.add_voter(voter).await.map_err(|error| Status::from_error(&error))?;
    Ok(voters_json(state, &voters))
}

async fn remove_voter(state: &AdminState, name: &str) -> Result<Value, Status> {
    let node = find_node(state, name)?;
    let voters =
        state.overview.client.remove_voter(node).await.map_err(|error| Status::from_error(&error))?;
    Ok(voters_json(state, &voters))
}

fn voters_json(state: &AdminState, voters: &[VoterInfo]) -> Value {
    let row = |voter: &VoterInfo| {
        let name = member_by_id(state, voter.node).map(|member| member.name);
        json!({ "node": format!("{:016x}", voter.node), "name": name, "address": voter.address })
    };
    json!({ "voters": voters.iter().map(row).collect::<Vec<_>>() })
}

fn member_by_id(state: &AdminState, node: NodeId) -> Option<ClusterMember> {
    state.overview.company.as_ref()?.members.current().get(&node).cloned()
}

/// Finds a member by its name or its hexadecimal id.
fn find_member(state: &AdminState, name: &str) -> Result<ClusterMember, Status> {
    let alone = || {
        let message = "this server runs in single-node mode; only clusters have voters to add and remove";
        Status::new(ErrorCode::Invalid, message)
    };
    let members = state.overview.company.as_ref().ok_or_else(alone)?.members.current();
    let id = u64::from_str_radix(name, 16).ok();
    let found: Vec<&ClusterMember> =
        members.values().filter(|member| member.name == name || Some(member.node) == id).collect();
    match found[..] {
        [member] => Ok(member.clone()),
        [] => {
            let known: Vec<&str> = members.values().map(|member| member.name.as_str()).take(20).collect();
            Err(Status::new(
                ErrorCode::NotFound,
                format!("no node has the name or id {name}; known nodes: {}", known.join(", ")),
            ))
        }
        _ => Err(Status::new(
            ErrorCode::Invalid,
            format!("{} nodes have the name {name}; use the id of one of them", found.len()),
        )),
    }
}

/// Returns the id of a node. A node that is lost permanently is known by its hexadecimal id only.
fn find_node(state: &AdminState, name: &str) -> Result<NodeId, Status> {
    match find_member(state, name) {
        Ok(member) => Ok(member.node),
        Err(status) => u64::from_str_radix(name, 16).map_err(|_| status),
    }
}

async fn change(state: &AdminState, command: CatalogCommand) -> Result<Value, Status> {
    match state.overview.client.propose(command).await.map_err(|error| Status::from_error(&error))? {
        CommandResult::Refused(refused) => Err(Status::new(ErrorCode::Conflict, refused.to_string())),
        CommandResult::Changed(count) => Ok(json!({ "changed": count })),
        CommandResult::Shard(_)
        | CommandResult::Registered(_)
        | CommandResult::Staged(_)
        | CommandResult::Claimed(_)
        | CommandResult::FailureLimit(_)
        | CommandResult::NotCompared(_) => Ok(json!({ "changed": 1 })),
    }
}
