//! What people decide about a cluster: who votes in the catalogue, which shard is to be succeeded, which is given up.

use std::sync::Arc;

use athanor_catalog::{Answer, Catalog, Command};
use athanor_chassis::{Code, Status};
use athanor_cluster::NodeId;
use athanor_cluster::members::{Member, RoleName};
use athanor_metastore::Seat;
use axum::Router;
use axum::body::Body;
use axum::extract::Path;
use axum::http::Response;
use axum::routing::post;
use serde_json::{Value, json};

use super::Desk;
use crate::http::{json_error, listed_shards};

/// Adds what is about the cluster.
pub fn routes(router: Router, desk: &Arc<Desk>) -> Router {
    let with = || Arc::clone(desk);
    let (list, add, remove, shards, seal, abandon) = (with(), with(), with(), with(), with(), with());
    router
        .route("/metastore", post(move || async move { answered(voters(&list, None).await) }))
        .route("/metastore/add/{node}", post(move |Path(node): Path<String>| async move {
            answered(voters(&add, Some((&node, true))).await)
        }))
        .route("/metastore/remove/{node}", post(move |Path(node): Path<String>| async move {
            answered(voters(&remove, Some((&node, false))).await)
        }))
        .route("/shards", post(move || async move { answered(Ok(listed_shards(&shards.overview).await)) }))
        .route("/shards/seal/{shard}", post(move |Path(shard): Path<u32>| async move {
            answered(change(&seal, Command::Stop { shard }).await)
        }))
        .route("/shards/abandon/{shard}", post(move |Path(shard): Path<u32>| async move {
            answered(change(&abandon, Command::Abandon { shard }).await)
        }))
}

pub(super) fn answered(answer: Result<Value, Status>) -> Response<Body> {
    match answer {
        Ok(value) => Response::new(Body::from(value.to_string())),
        Err(status) => json_error(&status),
    }
}

/// Who votes, after one was added or removed.
async fn voters(desk: &Desk, changed: Option<(&str, bool)>) -> Result<Value, Status> {
    let client = &desk.overview.client;
    let seats = match changed {
        None => client.voters().await,
        Some((name, true)) => {
            let member = member(desk, name)?;
            if !member.roles.contains(&RoleName::Metastore) {
                let message = format!("{name} is no metastore: its target does not say so");
                return Err(Status::new(Code::Invalid, message));
            }
            client.add_voter(Seat { node: member.node, address: member.internal.to_string() }).await
        }
        Some((name, false)) => client.remove_voter(node(desk, name)?).await,
    };
    let seats = seats.map_err(|error| Status::of(&error))?;
    let one = |seat: &Seat| {
        let name = member_of(desk, seat.node).map(|member| member.name);
        json!({ "node": format!("{:016x}", seat.node), "name": name, "address": seat.address })
    };
    Ok(json!({ "voters": seats.iter().map(one).collect::<Vec<_>>() }))
}

fn member_of(desk: &Desk, node: NodeId) -> Option<Member> {
    desk.overview.company.as_ref()?.members.now().get(&node).cloned()
}

/// A member by its name or its number.
fn member(desk: &Desk, name: &str) -> Result<Member, Status> {
    let alone = || Status::new(Code::Invalid, "this server is alone; a cluster has voters to add and remove");
    let members = desk.overview.company.as_ref().ok_or_else(alone)?.members.now();
    let number = u64::from_str_radix(name, 16).ok();
    let found: Vec<&Member> =
        members.values().filter(|member| member.name == name || Some(member.node) == number).collect();
    match found[..] {
        [member] => Ok(member.clone()),
        [] => {
            let known: Vec<&str> = members.values().map(|member| member.name.as_str()).take(20).collect();
            Err(Status::new(
                Code::NotFound,
                format!("no node is called {name}; there are {}", known.join(", ")),
            ))
        }
        _ => Err(Status::new(
            Code::Invalid,
            format!("{} nodes are called {name}; name one by its number", found.len()),
        )),
    }
}

/// A node that may have gone for good: then only its number is known.
fn node(desk: &Desk, name: &str) -> Result<NodeId, Status> {
    match member(desk, name) {
        Ok(member) => Ok(member.node),
        Err(status) => u64::from_str_radix(name, 16).map_err(|_| status),
    }
}

async fn change(desk: &Desk, command: Command) -> Result<Value, Status> {
    match desk.overview.client.propose(command).await.map_err(|error| Status::of(&error))? {
        Answer::Refused(refused) => Err(Status::new(Code::Conflict, refused.to_string())),
        Answer::Changed(count) => Ok(json!({ "changed": count })),
        Answer::Shard(_) | Answer::Registered(_) | Answer::Staged(_) => Ok(json!({ "changed": 1 })),
    }
}
