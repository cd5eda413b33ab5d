use std::net::SocketAddr;

use athanor_chassis::TaskGroup;
use hickory_resolver::config::{ConnectionConfig, NameServerConfig, ProtocolConfig};
use hickory_resolver::proto::op::{Message, MessageType};
use hickory_resolver::proto::rr::Record;
use hickory_resolver::proto::rr::rdata::{A, AAAA, CNAME, MX, NS, SRV};
use tokio::net::UdpSocket;

use super::super::DiscoverySettings;
use super::super::test_run::{DiscoveryRun, target_texts};
use super::*;

const INTERVAL: Duration = Duration::from_secs(30);

/// Zone of a server: records by name and type. Names without records exist if they are here.
type Zone = Arc<Mutex<Vec<(&'static str, Vec<RData>)>>>;

/// DNS server on loopback. A name that starts with `broken` gets a server failure.
struct DnsStandIn {
    address: SocketAddr,
    zone: Zone,
    questions: Arc<Mutex<Vec<String>>>,
    _tasks: TaskGroup,
}

impl DnsStandIn {
    #[expect(clippy::disallowed_methods, reason = "the network of the chassis has no datagrams")]
    async fn start(zone: Vec<(&'static str, Vec<RData>)>) -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let address = socket.local_addr().unwrap();
        let zone: Zone = Arc::new(Mutex::new(zone));
        let questions: Arc<Mutex<Vec<String>>> = Arc::default();
        let served = Arc::clone(&zone);
        let received = Arc::clone(&questions);
        let tasks = TaskGroup::new(Clock::system(), 1);
        let serve = async move {
            let mut buffer = [0; 2048];
            loop {
                let (length, peer) = socket.recv_from(&mut buffer).await.unwrap();
                let request = Message::from_vec(&buffer[..length]).unwrap();
                received.lock().push(request.queries[0].name().to_string());
                let response = respond(&request, &served.lock());
                socket.send_to(&response.to_vec().unwrap(), peer).await.unwrap();
            }
        };
        tasks.spawn("dns", serve).unwrap();
        Self { address, zone, questions, _tasks: tasks }
    }

    fn servers(&self, search: &[&str]) -> DnsServers {
        let mut connection = ConnectionConfig::new(ProtocolConfig::Udp);
        connection.port = self.address.port();
        let server = NameServerConfig::new(self.address.ip(), true, vec![connection]);
        let search = search.iter().map(|domain| Name::from_utf8(domain).unwrap()).collect();
        DnsServers::Fixed(Box::new(ResolverConfig::from_parts(None, search, vec![server])))
    }
}

fn respond(request: &Message, zone: &[(&'static str, Vec<RData>)]) -> Message {
    let query = request.queries[0].clone();
    let name = query.name().to_string();
    let mut response = Message::response(request.metadata.id, request.metadata.op_code);
    response.metadata.message_type = MessageType::Response;
    response.metadata.recursion_available = true;
    response.add_query(query.clone());
    if name.starts_with("broken") {
        response.metadata.response_code = ResponseCode::ServFail;
        return response;
    }
    match zone.iter().find(|(known, _)| *known == name) {
        None => response.metadata.response_code = ResponseCode::NXDomain,
        Some((_, records)) => {
            let matching =
                |data: &&RData| data.record_type() == query.query_type() || matches!(data, RData::CNAME(_));
            for data in records.iter().filter(matching) {
                response.add_answer(Record::from_rdata(query.name().clone(), 60, data.clone()));
            }
        }
    }
    response
}

fn start(server: &DnsStandIn, search: &[&str], record_type: &str, names: &[&str]) -> DiscoveryRun {
    let settings = DnsDiscoverySettings {
        names: names.iter().map(|name| (*name).to_owned()).collect(),
        record_type: record_type.to_owned(),
        port: 4040,
        refresh_interval: INTERVAL,
    };
    DiscoveryRun::start(&DiscoverySettings::Dns(settings), server.servers(search))
}

fn name(text: &str) -> Name {
    Name::from_utf8(text).unwrap()
}

fn zone() -> Vec<(&'static str, Vec<RData>)> {
    let records = vec![
        RData::SRV(SRV::new(1, 2, 6060, name("a.shop.test."))),
        RData::A(A::new(192, 0, 2, 1)),
        RData::AAAA(AAAA("2001:db8::1".parse().unwrap())),
        RData::MX(MX::new(10, name("mail.test."))),
        RData::NS(NS(name("ns.test."))),
    ];
    vec![("shop.test.", records), ("empty.test.", Vec::new())]
}

#[tokio::test]
async fn records_of_each_type_have_the_labels_of_prometheus() {
    let server = DnsStandIn::start(zone()).await;
    let cases = [
        (
            "SRV",
            r#"{__address__="a.shop.test:6060", __meta_dns_name="shop.test", __meta_dns_srv_record_port="6060", __meta_dns_srv_record_target="a.shop.test."}"#,
        ),
        ("A", r#"{__address__="192.0.2.1:4040", __meta_dns_name="shop.test"}"#),
        ("aaaa", r#"{__address__="[2001:db8::1]:4040", __meta_dns_name="shop.test"}"#),
        (
            "MX",
            r#"{__address__="mail.test:4040", __meta_dns_mx_record_target="mail.test.", __meta_dns_name="shop.test"}"#,
        ),
        (
            "NS",
            r#"{__address__="ns.test:4040", __meta_dns_name="shop.test", __meta_dns_ns_record_target="ns.test."}"#,
        ),
    ];
    for (record_type, labels) in cases {
        let mut run = start(&server, &[], record_type, &["shop.test"]);
        let expected = [("shop.test".to_owned(), labels.to_owned(), true)];
        assert_eq!(target_texts(&run.next().await), expected, "{record_type}");
        run.stop().await;
    }
}

#[tokio::test]
async fn alias_in_an_answer_is_no_target() {
    let records = vec![RData::CNAME(CNAME(name("shop.test."))), RData::A(A::new(192, 0, 2, 1))];
    let server = DnsStandIn::start(vec![("alias.test.", records.clone()), ("shop.test.", records)]).await;
    let mut run = start(&server, &[], "A", &["alias.test"]);
    let update = run.next().await;
    assert_eq!(update[0].targets.len(), 1, "{update:?}");
}

#[tokio::test]
async fn name_that_fails_keeps_its_targets_and_one_that_is_gone_loses_them() {
    let records = || vec![RData::A(A::new(192, 0, 2, 1))];
    let server = DnsStandIn::start(vec![("one.test.", records()), ("two.test.", records())]).await;
    let mut run = start(&server, &[], "A", &["one.test.", "two.test.", "broken.test."]);
    let update = run.next().await;
    let sources: Vec<_> = update.iter().map(|group| group.source.as_str()).collect();
    assert_eq!(sources, ["one.test.", "two.test."]);
    assert_eq!(run.stats.errors(DiscoveryKind::Dns), 1);
    server.zone.lock().remove(0);
    run.hand.wait_for_sleepers(1).await;
    run.hand.advance(INTERVAL);
    let update = run.next().await;
    let sources: Vec<_> = update.iter().map(|group| (group.source.as_str(), group.targets.len())).collect();
    assert_eq!(sources, [("one.test.", 0)]);
    assert_eq!(run.stats.errors(DiscoveryKind::Dns), 2);
}

#[tokio::test]
async fn search_list_completes_names_and_the_first_that_exists_decides() {
    let server = DnsStandIn::start(zone()).await;
    let resolver = |search: &[&str]| {
        let DnsServers::Fixed(config) = server.servers(search) else { unreachable!() };
        SearchResolver::new(*config, ResolverOpts::default()).unwrap()
    };
    let found = resolver(&["none.test.", "test."]).look_up("shop", RecordType::A).await.unwrap();
    assert_eq!(found.unwrap().answers().len(), 1);
    assert_eq!(*server.questions.lock(), ["shop.none.test.", "shop.test."]);
    server.questions.lock().clear();
    // The name exists without such records, so no other name is tried.
    let none = resolver(&["other.test."]).look_up("empty.test", RecordType::A).await.unwrap();
    assert!(none.is_none());
    assert_eq!(*server.questions.lock(), ["empty.test."]);
    assert!(resolver(&["test."]).look_up("nowhere", RecordType::A).await.unwrap().is_none());
    let error = resolver(&["test."]).look_up("broken", RecordType::A).await.unwrap_err();
    assert!(error.starts_with("broken"), "{error}");
}

#[tokio::test]
async fn servers_are_read_again_from_their_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("resolv.conf");
    let settings = DnsDiscoverySettings {
        names: vec!["x".to_owned()],
        record_type: "A".to_owned(),
        port: 1,
        refresh_interval: INTERVAL,
    };
    let source = DnsSource {
        settings,
        record_type: RecordType::A,
        servers: DnsServers::ResolvConf(path.clone()),
        cached: Mutex::default(),
    };
    assert!(source.resolver().await.is_err(), "the file is missing");
    std::fs::write(&path, "nameserver 192.0.2.1\nsearch a.test\noptions ndots:3\n").unwrap();
    let first = source.resolver().await.unwrap();
    assert_eq!((first.min_dots, first.search.len()), (3, 1));
    assert!(Arc::ptr_eq(&first, &source.resolver().await.unwrap()));
    std::fs::write(&path, "nameserver 192.0.2.1\n").unwrap();
    assert_eq!(source.resolver().await.unwrap().search, []);
}
