//! Servers that show each other certificates, and take new ones while they run.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use athanor_chassis::net::LocalNet;
use athanor_chassis::{Clock, Net, Random, TaskGroup};
use athanor_cluster::handshake::{NodeIdentity, PeerHandshake};
use athanor_cluster::members::{ClusterMember, ClusterMembers, MemberState};
use athanor_cluster::peers::{PeerDeps, PeerPool};
use athanor_cluster::secret::ClusterSecrets;
use athanor_cluster::tls::{PemFiles, TlsContext, TlsNet};
use athanor_proto::athanor::internal::v1::ManageLeadershipRequest;
use athanor_server::ClusterTlsConfig;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};

use athanor_integration::server::{RESPONSE_DEADLINE, TestServer};

use crate::members::{ID, SECRET, sees, settings};

/// Of one call.
const LIMIT: Duration = Duration::from_secs(10);
/// Between looks.
const LOOK: Duration = Duration::from_millis(50);
const CERTIFICATE: &str = "node.pem";
const KEY: &str = "node-key.pem";
const AUTHORITIES: &str = "authorities.pem";

/// Who signs certificates.
struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    /// A node's files, where it trusts these.
    fn node(&self, name: &str, trusted: &[&Self]) -> PemFiles {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        let certificate = params.signed_by(&key, &self.0).unwrap().pem().into_bytes();
        let authorities = trusted.iter().map(|authority| authority.0.pem()).collect::<String>().into_bytes();
        PemFiles { certificate, key: key.serialize_pem().into_bytes(), authorities }
    }
}

fn write(folder: &Path, PemFiles { certificate, key, authorities }: &PemFiles) {
    for (name, bytes) in [(CERTIFICATE, certificate), (KEY, key), (AUTHORITIES, authorities)] {
        std::fs::write(folder.join(name), bytes).unwrap();
    }
}

/// A server with these files; without any it speaks in the clear.
fn member(name: &str, target: &str, pems: Option<&PemFiles>, seeds: &[&TestServer]) -> TestServer {
    TestServer::start(|config| {
        let folder = config.data_dir.clone();
        config.target = target.parse().unwrap();
        config.cluster = settings(&folder, name, seeds);
        config.metastore.voters = 1;
        let Some(pems) = pems else { return };
        write(&folder, pems);
        let [cert_file, key_file, ca_file] =
            [CERTIFICATE, KEY, AUTHORITIES].map(|name| Some(folder.join(name)));
        config.cluster.tls = ClusterTlsConfig { cert_file, key_file, ca_file };
    })
}

/// Calls a server as a node that has these files; what was said where that failed.
fn called(pems: Option<&PemFiles>, server: &TestServer) -> Result<(), String> {
    let others = server.node.roles().cluster_handle().unwrap();
    let there = others.membership().me.node;
    let member = ClusterMember {
        node: there,
        name: String::new(),
        zone: String::new(),
        roles: BTreeSet::new(),
        internal: others.address(),
        boot: 1,
        state: MemberState::Ready,
        missing_since: None,
    };
    let calling = async {
        let clock = Clock::system();
        let mut net: Arc<dyn Net> = Arc::new(LocalNet::new(clock.clone()));
        if let Some(pems) = pems {
            net = Arc::new(TlsNet::new(net, TlsContext::load(pems.clone()).unwrap(), clock.clone()));
        }
        let tasks = TaskGroup::new(clock.clone(), 100);
        let (secrets, random) = (ClusterSecrets::parse(SECRET).unwrap(), Random::from_seed(1));
        let deps = PeerDeps { net, secrets, clock: clock.clone(), random, tasks: tasks.clone() };
        let peers = PeerPool::new(deps, ClusterMembers::from_static([member]));
        let me = NodeIdentity { cluster: u128::from_str_radix(ID, 16).unwrap(), node: 7, boot: 1 };
        let header = Some(PeerHandshake::new(me).call_header(there, LIMIT));
        let mut client = peers.ingester(there);
        let request = ManageLeadershipRequest { header, transfer: None };
        let answered =
            clock.timeout(LIMIT, client.manage_leadership(request)).await.map_err(|late| late.to_string());
        tasks.shutdown(Duration::ZERO).await;
        answered?.map(drop).map_err(|status| status.to_string())
    };
    server.runtime.block_on(calling)
}

/// Waits for a state of a server.
fn until(server: &TestServer, what: &str, is_so: impl Fn() -> bool) {
    let clock = Clock::system();
    let begun = clock.monotonic();
    while !is_so() {
        assert!(clock.monotonic() - begun < 2 * RESPONSE_DEADLINE, "not so: {what}");
        server.runtime.block_on(clock.sleep(LOOK));
    }
}

fn is_ready(server: &TestServer) -> bool {
    server.get("/ready", &[]).status == 200
}

#[test]
fn servers_take_new_certificates_while_they_run_and_refuse_those_of_before() {
    let (old, new) = (Authority::new(), Authority::new());
    let keeps = "ingester,distributor,querier";
    let a = member("a", "all", Some(&old.node("a", &[&old])), &[]);
    let b = member("b", keeps, Some(&old.node("b", &[&old])), &[&a]);
    // The catalogue is at the first one alone.
    until(&b, "the second hears the catalogue", || is_ready(&b));
    let [before, after] = [&old, &new].map(|authority| authority.node("somebody", &[&old, &new]));
    for server in [&a, &b] {
        called(Some(&before), server).unwrap();
        called(Some(&after), server).unwrap_err();
    }

    for (server, name) in [(&a, "a"), (&b, "b")] {
        write(server.folder.path(), &new.node(name, &[&new]));
    }
    for server in [&a, &b] {
        until(server, "the new certificate is taken", || called(Some(&after), server).is_ok());
        called(Some(&before), server).unwrap_err();
    }
    // Connections that were open go on, and who comes now speaks to those that have the new ones.
    assert!(is_ready(&a) && is_ready(&b));
    let c = member("c", keeps, Some(&new.node("c", &[&new])), &[&a]);
    until(&c, "the third hears the catalogue", || is_ready(&c));
    for server in [c, b, a] {
        server.runtime.block_on(server.node.stop()).unwrap();
    }
}

#[test]
fn a_server_without_certificates_is_none_of_those_that_have_some() {
    let authority = Authority::new();
    let a = member("a", "all", Some(&authority.node("a", &[&authority])), &[]);
    until(&a, "it serves", || is_ready(&a));
    let bare = member("bare", "ingester,distributor,querier", None, &[&a]);
    // Gossip is in the clear: they know of each other.
    sees(&a, 2);
    called(None, &a).unwrap_err();
    let told = called(Some(&authority.node("somebody", &[&authority])), &bare).unwrap_err();
    assert!(told.contains("set cluster.tls on all nodes, or on none"), "{told}");
    let ready = bare.get("/ready", &[]);
    assert_eq!(ready.status, 503, "{}", ready.text());
}
