//! Operator commands for a cluster: change voters, seal a shard, abandon a shard.

use std::sync::Arc;

use athanor_catalog::{Catalog, CatalogCommand, CommandResult};
use athanor_chassis::{ErrorCode, Status};
use athanor_cluster::NodeId;
use athanor_cluster::members::{ClusterMember, RoleName};
use athanor_metastore::VoterInfo;
use axum::Router;
use axum::body::Body;
use axum::extract::Path;
use axum::http::Response;
use axum::routing::post;
use serde_json::{Value, json};

use super::AdminState;
use crate::http::{json_error, list_shards};

/// Adds the routes of cluster commands.
pub fn routes(router: Router, desk: &Arc<AdminState>) -> Router {
    let with = || Arc::clone(desk);
    let list = with();
    let add = with();
    let remove = with();
    let shards = with();
    let seal = with();
    let abandon = with();
    router
        .route("/metastore", post(move || async move { json_response(voters(&list, None).await) }))
        .route(
            "/metastore/add/{node}",
            post(move |Path(node): Path<String>| async move {
                json_response(voters(&add, Some((&node, true))).await)
            }),
        )
        .route(
            "/metastore/remove/{node}",
            post(move |Path(node): Path<String>| async move {
                json_response(voters(&remove, Some((&node, false))).await)
            }),
        )
        .route("/shards", post(move || async move { json_response(Ok(list_shards(&shards.overview).await)) }))
        .route(
            "/shards/seal/{shard}",
            post(move |Path(shard): Path<u32>| async move {
                json_response(change(&seal, CatalogCommand::RequestSeal { shard }).await)
            }),
        )
        .route(
            "/shards/abandon/{shard}",
            post(move |Path(shard): Path<u32>| async move {
                json_response(change(&abandon, CatalogCommand::AbandonShard { shard }).await)
            }),
        )
}

pub(super) fn json_response(answer: Result<Value, Status>) -> Response<Body> {
    match answer {
        Ok(value) => Response::new(Body::from(value.to_string())),
        Err(status) => json_error(&status),
    }
}

/// Returns the voters, after adding or removing one on request.
async fn voters(desk: &AdminState, changed: Option<(&str, bool)>) -> Result<Value, Status> {
    let client = &desk.overview.client;
    let seats = match changed {
        None => client.voters().await,
        Some((name, true)) => {
            let member = member(desk, name)?;
            if !member.roles.contains(&RoleName::Metastore) {
                let message = format!("{name} is no metastore: its target does not say so");
                return Err(Status::new(ErrorCode::Invalid, message));
            }
            client.add_voter(VoterInfo { node: member.node, address: member.internal.to_string() }).await
        }
        Some((name, false)) => client.remove_voter(node(desk, name)?).await,
    };
    let seats = seats.map_err(|error| Status::from_error(&error))?;
    let one = |seat: &VoterInfo| {
        let name = member_of(desk, seat.node).map(|member| member.name);
        json!({ "node": format!("{:016x}", seat.node), "name": name, "address": seat.address })
    };
    Ok(json!({ "voters": seats.iter().map(one).collect::<Vec<_>>() }))
}

fn member_of(desk: &AdminState, node: NodeId) -> Option<ClusterMember> {
    desk.overview.company.as_ref()?.members.current().get(&node).cloned()
}

/// Finds a member by its name or its hexadecimal id.
fn member(desk: &AdminState, name: &str) -> Result<ClusterMember, Status> {
    let alone =
        || Status::new(ErrorCode::Invalid, "this server is alone; a cluster has voters to add and remove");
    let members = desk.overview.company.as_ref().ok_or_else(alone)?.members.current();
    let number = u64::from_str_radix(name, 16).ok();
    let found: Vec<&ClusterMember> =
        members.values().filter(|member| member.name == name || Some(member.node) == number).collect();
    match found[..] {
        [member] => Ok(member.clone()),
        [] => {
            let known: Vec<&str> = members.values().map(|member| member.name.as_str()).take(20).collect();
            Err(Status::new(
                ErrorCode::NotFound,
                format!("no node is called {name}; there are {}", known.join(", ")),
            ))
        }
        _ => Err(Status::new(
            ErrorCode::Invalid,
            format!("{} nodes are called {name}; name one by its number", found.len()),
        )),
    }
}

/// Returns the id of a node. The id of a node that is gone for good may be given as a number.
fn node(desk: &AdminState, name: &str) -> Result<NodeId, Status> {
    match member(desk, name) {
        Ok(member) => Ok(member.node),
        Err(status) => u64::from_str_radix(name, 16).map_err(|_| status),
    }
}

async fn change(desk: &AdminState, command: CatalogCommand) -> Result<Value, Status> {
    match desk.overview.client.propose(command).await.map_err(|error| Status::from_error(&error))? {
        CommandResult::Refused(refused) => Err(Status::new(ErrorCode::Conflict, refused.to_string())),
        CommandResult::Changed(count) => Ok(json!({ "changed": count })),
        CommandResult::Shard(_) | CommandResult::Registered(_) | CommandResult::Staged(_) => {
            Ok(json!({ "changed": 1 }))
        }
    }
}
