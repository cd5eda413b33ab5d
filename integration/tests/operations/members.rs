//! Servers of one cluster: they see each other, and refuse who is not one of them.

use std::path::Path;

use athanor_chassis::{Clock, ErrorCode, ErrorCodeExt, LimitOverrides};
use athanor_cluster::members::{ClusterMember, MemberState};
use athanor_server::{ClusterConfig, NodeDeps, ServerConfig, ServerNode, StartError};
use serde_json::Value;
use tempfile::TempDir;
use tokio::runtime::Runtime;

use athanor_integration::server::{RESPONSE_DEADLINE, TestServer, send_request};

pub const ID: &str = "5f0c6e1d9a7b4c3e8f2a1b0c9d8e7f60";
pub const SECRET: &str = "a secret of some length\n";
const FOREIGN: &str = "0000000000000000000000000000000f";

/// The settings of a node, with a secret in that folder.
pub fn settings(folder: &Path, name: &str, seeds: &[&TestServer]) -> ClusterConfig {
    let secret = folder.join("secret");
    std::fs::write(&secret, SECRET).unwrap();
    ClusterConfig {
        id: Some(ID.to_owned()),
        node_name: Some(name.to_owned()),
        availability_zone: format!("zone of {name}"),
        secret_file: Some(secret),
        internal_listen_address: Some("127.0.0.1:0".to_owned()),
        gossip_listen_address: Some("127.0.0.1:0".to_owned()),
        advertise_address: None,
        seed_nodes: seeds
            .iter()
            .map(|seed| seed.node.roles().cluster_handle().unwrap().gossip().to_string())
            .collect(),
        replication_factor: 1,
        ..ClusterConfig::default()
    }
}

/// A member that has the bucket of the last of its seeds. The bucket says who founded the catalogue: had each its own,
/// whoever sees the others before it looks there would wait for their note.
fn member(name: &str, seeds: &[&TestServer]) -> TestServer {
    TestServer::start(|config| {
        config.cluster = settings(&config.data_dir.clone(), name, seeds);
        config.metastore.voters = 1;
        config.storage.local = seeds.last().map(|seed| seed.folder.path().join("bucket"));
    })
}

/// Waits until a server sees so many others ready, besides itself.
pub fn sees(server: &TestServer, count: usize) {
    let mut members = server.node.roles().cluster_handle().unwrap().membership().members.clone();
    let clock = Clock::system();
    let ready = members.wait_until(|members| {
        let ready = |member: &&ClusterMember| member.is_alive() && member.state == MemberState::Ready;
        members.values().filter(ready).count() == count
    });
    let seen = server.runtime.block_on(clock.timeout(2 * RESPONSE_DEADLINE, ready));
    assert!(seen.is_ok(), "{count} members within {RESPONSE_DEADLINE:?}");
}

fn listed(server: &TestServer) -> Value {
    let answer = server.get("/members", &[("accept", "application/json")]);
    assert_eq!((answer.status, answer.header("content-type")), (200, "application/json"));
    serde_json::from_slice(&answer.body).unwrap()
}

fn names(told: &Value, key: &str) -> Vec<String> {
    let members = told["members"].as_array().unwrap().iter();
    let mut names: Vec<_> =
        members.filter(|m| m["alive"] == true).map(|m| m[key].as_str().unwrap().to_owned()).collect();
    names.sort();
    names
}

#[test]
fn servers_of_a_cluster_see_each_other_and_miss_who_left() {
    let a = member("a", &[]);
    let b = member("b", &[&a]);
    let c = member("c", &[&a]);
    for server in [&a, &b, &c] {
        sees(server, 3);
        let told = listed(server);
        assert_eq!(told["cluster"], ID);
        assert_eq!(names(&told, "name"), ["a", "b", "c"]);
        assert_eq!(names(&told, "state"), ["ready"; 3]);
    }
    let page = a.get("/members", &[]);
    assert_eq!(page.header("content-type"), "text/html; charset=utf-8");
    assert!(page.text().contains("zone of b"), "{}", page.text());
    assert_eq!(names(&serde_json::from_slice(&a.get("/members.json", &[]).body).unwrap(), "name").len(), 3);

    c.runtime.block_on(c.node.stop()).unwrap();
    sees(&a, 2);
    sees(&b, 2);
    assert_eq!(names(&listed(&a), "name"), ["a", "b"]);
    for server in [b, a] {
        server.runtime.block_on(server.node.stop()).unwrap();
    }
}

#[test]
fn each_port_is_for_its_own() {
    let server = member("a", &[]);
    let call = "/athanor.internal.v1.RaftService/Stream";
    let public = server.post(call, &[("content-type", "application/grpc")], b"");
    assert_eq!(public.status, 404, "nothing for nodes is on the port for clients");
    let internal = server.node.roles().cluster_handle().unwrap().address();
    for path in [call, "/querier.v1.QuerierService/Series", "/push.v1.PusherService/Push", "/config"] {
        let answer = send_request(internal, &format!("POST {path}"), &[("x-scope-orgid", "anybody")], b"");
        assert_eq!(answer.header("grpc-status"), "16", "a tenant's name opens nothing");
        assert!(answer.header("grpc-message").contains("public%20port"), "{:?}", answer.headers);
    }
    let alone = TestServer::start(|_| {});
    assert!(alone.node.roles().cluster_handle().is_none());
    assert_eq!((alone.get("/members", &[]).status, alone.get("/members.json", &[]).status), (404, 404));
}

/// Why a server does not start on a folder.
fn refused(folder: &TempDir, cluster: ClusterConfig) -> StartError {
    let mut config =
        ServerConfig { http_listen_address: "127.0.0.1:0".to_owned(), cluster, ..ServerConfig::default() };
    config.data_dir = folder.path().to_owned();
    config.metastore.voters = 1;
    config.wal.min_free_bytes = athanor_chassis::ByteSize::bytes(0);
    let system = NodeDeps::local(&config).unwrap();
    let overrides = LimitOverrides::new(config.limits.clone());
    let starting = ServerNode::start(&config, system, overrides, "".into());
    Runtime::new().unwrap().block_on(starting).map(drop).unwrap_err()
}

#[test]
fn what_is_of_another_cluster_or_no_secret_is_refused_in_words() {
    let server = member("a", &[]);
    let TestServer { node, runtime, folder, .. } = server;
    runtime.block_on(node.stop()).unwrap();
    drop(runtime);
    let whole = settings(folder.path(), "a", &[]);
    let foreign = refused(&folder, ClusterConfig { id: Some(FOREIGN.to_owned()), ..whole.clone() });
    assert_eq!(foreign.code(), ErrorCode::Conflict);
    let said = foreign.to_string();
    assert!(said.contains(ID) && said.contains(FOREIGN) && said.contains("--data"), "{said}");

    std::fs::write(folder.path().join("secret"), "short").unwrap();
    let short = refused(&folder, whole.clone());
    assert_eq!(short.code(), ErrorCode::Invalid);
    assert!(format!("{short}").contains("cluster.secret_file"), "{short}");
    std::fs::remove_file(folder.path().join("secret")).unwrap();
    assert_eq!(refused(&folder, whole).code(), ErrorCode::NotFound);
}

#[test]
fn a_server_of_another_cluster_stays_a_stranger() {
    let a = member("a", &[]);
    let stranger = TestServer::start(|config| {
        let settings = settings(&config.data_dir.clone(), "stranger", &[&a]);
        config.cluster = ClusterConfig { id: Some(FOREIGN.to_owned()), ..settings };
        config.metastore.voters = 1;
    });
    let b = member("b", &[&stranger, &a]);
    sees(&b, 2);
    sees(&a, 2);
    // Those of the cluster have heard of each other meanwhile, by way of the same addresses.
    for server in [&a, &b] {
        assert_eq!(names(&listed(server), "name"), ["a", "b"]);
    }
    assert_eq!(names(&listed(&stranger), "name"), ["stranger"]);
}
