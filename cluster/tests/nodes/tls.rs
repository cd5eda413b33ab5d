//! Nodes that show each other certificates.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use athanor_chassis::Clock;
use athanor_chassis::net::LocalNet;
use athanor_cluster::NodeId;
use athanor_cluster::tls::{PemFiles, TlsContext, TlsError, TlsNet};
use bytes::Bytes;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};

use crate::harness::{Town, answer, me, secrets};

const LIMIT: Duration = Duration::from_secs(10);
const GROUP: u32 = 3;

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

/// A node of a town on real sockets, with these files.
fn town(pems: PemFiles) -> (Town, TlsContext) {
    let (tls, clock) = (TlsContext::load(pems).unwrap(), Clock::system());
    let net = TlsNet::new(Arc::new(LocalNet::new(clock.clone())), tls.clone(), clock);
    (Town::new(Arc::new(net)), tls)
}

/// A call from one node to another; what was said where it failed.
async fn called(town: &Town, from: NodeId, to: NodeId, at: SocketAddr) -> Result<(), String> {
    let talk = town.caller(me(from), &secrets(), &[(to, at)]);
    let asked = Bytes::from_static(b"who is there");
    match talk.call(to, GROUP, asked.clone(), LIMIT).await {
        Ok(answered) => {
            assert_eq!(answered, answer(to, &asked));
            Ok(())
        }
        Err(error) => Err(error.to_string()),
    }
}

#[tokio::test]
async fn three_nodes_of_one_authority_talk_and_others_are_refused() {
    let (ours, theirs) = (Authority::new(), Authority::new());
    let mut nodes = Vec::new();
    for node in 1..=3 {
        let (town, _) = town(ours.node(&format!("node-{node}"), &[&ours]));
        let at = town.serve(me(node), &secrets()).await;
        nodes.push((node, town, at));
    }
    for (from, town, _) in &nodes {
        for (to, _, at) in nodes.iter().filter(|(to, ..)| to != from) {
            called(town, *from, *to, *at).await.unwrap();
        }
    }
    let at = nodes[0].2;
    // It believes us, and we do not believe it.
    let (stranger, _) = town(theirs.node("node-4", &[&ours, &theirs]));
    called(&stranger, 4, 1, at).await.unwrap_err();
    // We would believe it, and it does not believe us.
    let (suspicious, _) = town(ours.node("node-5", &[&theirs]));
    let refused = called(&suspicious, 5, 1, at).await.unwrap_err();
    assert!(
        refused.contains("TLS handshake failed") && refused.contains("invalid peer certificate"),
        "{refused}"
    );
    let plain = Town::new(Arc::new(LocalNet::new(Clock::system())));
    called(&plain, 6, 1, at).await.unwrap_err();
    let bare = plain.serve(me(7), &secrets()).await;
    let refused = called(&nodes[0].1, 1, 7, bare).await.unwrap_err();
    assert!(refused.contains("set cluster.tls on all nodes, or on none"), "{refused}");
}

#[tokio::test]
async fn new_files_hold_for_new_connections_and_bad_ones_change_nothing() {
    let (old, new) = (Authority::new(), Authority::new());
    let (server, held) = town(old.node("node-1", &[&old]));
    let at = server.serve(me(1), &secrets()).await;
    let (before, _) = town(old.node("node-2", &[&old]));
    let (after, _) = town(new.node("node-3", &[&new]));
    called(&before, 2, 1, at).await.unwrap();
    called(&after, 3, 1, at).await.unwrap_err();
    let talk = before.caller(me(2), &secrets(), &[(1, at)]);
    let asked = Bytes::from_static(b"still there");
    talk.call(1, GROUP, asked.clone(), LIMIT).await.unwrap();

    let good = new.node("node-1", &[&new]);
    let other = new.node("node-1", &[&new]);
    for (bad, said) in [
        (PemFiles { key: other.key, ..good.clone() }, "the key must match the certificate"),
        (
            PemFiles { certificate: b"nothing".to_vec(), ..good.clone() },
            "cluster.tls.cert_file: no certificate",
        ),
        (PemFiles { authorities: Vec::new(), ..good.clone() }, "cluster.tls.ca_file: no certificate"),
        (PemFiles { key: Vec::new(), ..good.clone() }, "cluster.tls.key_file: "),
    ] {
        let error: TlsError = held.replace(bad).unwrap_err();
        assert!(error.to_string().contains(said), "{error}");
        called(&before, 2, 1, at).await.unwrap();
    }
    assert!(held.replace(good.clone()).unwrap());
    assert!(!held.replace(good).unwrap(), "they say the same");
    called(&after, 3, 1, at).await.unwrap();
    called(&before, 2, 1, at).await.unwrap_err();
    talk.call(1, GROUP, asked, LIMIT).await.expect("what is open stays so");
}

#[test]
fn a_certificate_of_another_time_does_not_take_the_place_of_one_of_now() {
    let ours = Authority::new();
    let good = ours.node("node-1", &[&ours]);
    let tls = TlsContext::load(good.clone()).unwrap();
    for (from, to) in [(2019, 2020), (2990, 2991)] {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec!["node-1".to_owned()]).unwrap();
        params.not_before = rcgen::date_time_ymd(from, 1, 1);
        params.not_after = rcgen::date_time_ymd(to, 1, 1);
        let certificate = params.signed_by(&key, &ours.0).unwrap().pem().into_bytes();
        let pems = PemFiles { certificate, key: key.serialize_pem().into_bytes(), ..good.clone() };
        let refused = tls.replace(pems).unwrap_err().to_string();
        assert!(refused.contains("the certificate must be valid now"), "{refused}");
    }
    assert!(!tls.replace(good).unwrap(), "the one of before is in force");
}
