use super::super::test_run::{DiscoveryRun, target_texts};
use super::super::{DiscoverySettings, StandardDiscovererFactory};
use super::*;
use crate::http_client::stand_in::{Reply, StandIn};
use crate::scrape_target::HttpClientSettings;

const CONTAINERS: &str = r#"[
  {"Id": "c1", "Names": ["/shop", "/alias"], "Labels": {"com.docker/x-y": "v", "none": ""},
   "Ports": [{"IP": "0.0.0.0", "PrivatePort": 80, "PublicPort": 8080, "Type": "tcp"},
             {"PrivatePort": 81, "Type": "tcp"}, {"PrivatePort": 53, "Type": "udp"}],
   "HostConfig": {"NetworkMode": "backend"},
   "NetworkSettings": {"Networks": {
     "backend": {"NetworkID": "n1", "IPAddress": "172.18.0.2"}, "a-none": null,
     "front": {"NetworkID": "n2", "IPAddress": "fd01::2"}}}},
  {"Id": "c2", "Names": ["/host"], "Ports": [], "Labels": null, "HostConfig": {"NetworkMode": "host"},
   "NetworkSettings": {"Networks": {"host": {"NetworkID": "n3", "IPAddress": ""}}}},
  {"Id": "c3", "Names": ["/sidecar"], "Ports": null, "HostConfig": {"NetworkMode": "container:c1"},
   "NetworkSettings": {"Networks": {}}},
  {"Id": "c4", "Names": [], "NetworkSettings": {"Networks": {"x": {"IPAddress": "10.0.0.1"}}}},
  {"Id": "c5", "Names": ["/circle"], "HostConfig": {"NetworkMode": "container:c5"}}
]"#;
const NETWORKS: &str = r#"[
  {"Id": "n1", "Name": "backend", "Scope": "local", "Internal": true, "Labels": {"team/x": "t"}},
  {"Id": "n2", "Name": "front", "Scope": "swarm", "Ingress": true, "Labels": null}
]"#;

fn settings(host: String, match_first_network: bool) -> DockerDiscoverySettings {
    DockerDiscoverySettings {
        host,
        port: 9000,
        host_networking_host: "localhost".to_owned(),
        match_first_network,
        filters: vec![
            ("label".to_owned(), vec!["a=b&c".to_owned()]),
            ("name".to_owned(), vec!["x".to_owned(), "y".to_owned()]),
        ],
        refresh_interval: Duration::from_secs(60),
        http: HttpClientSettings::default(),
    }
}

fn reply(head: &str) -> Reply {
    if head.starts_with("GET /networks ") { Reply::json(NETWORKS) } else { Reply::json(CONTAINERS) }
}

fn start(settings: DockerDiscoverySettings) -> DiscoveryRun {
    DiscoveryRun::start(&DiscoverySettings::Docker(settings), StandardDiscovererFactory::system_dns_servers())
}

/// Labels of the first container in its first network.
const SHOP: &str = "__meta_docker_container_id=\"c1\", \
    __meta_docker_container_label_com_docker_x_y=\"v\", __meta_docker_container_name=\"/shop\", \
    __meta_docker_container_network_mode=\"backend\", __meta_docker_network_id=\"n1\", \
    __meta_docker_network_ingress=\"false\", __meta_docker_network_internal=\"true\", \
    __meta_docker_network_ip=\"172.18.0.2\", __meta_docker_network_label_team_x=\"t\", \
    __meta_docker_network_name=\"backend\", __meta_docker_network_scope=\"local\"";

#[tokio::test]
async fn containers_of_a_socket_have_the_labels_of_prometheus() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("docker.sock");
    let server = StandIn::start_on_socket(&socket, reply);
    let mut run = start(settings(format!("unix://{}", socket.display()), true));
    let texts: Vec<String> = target_texts(&run.next().await)
        .into_iter()
        .map(|(source, labels, is_untrusted)| {
            assert_eq!((source.as_str(), is_untrusted), ("Docker", false));
            labels
        })
        .collect();
    let sidecar = SHOP
        .replace("_id=\"c1\"", "_id=\"c3\"")
        .replace("__meta_docker_container_label_com_docker_x_y=\"v\", ", "")
        .replace("/shop", "/sidecar")
        .replace("mode=\"backend\"", "mode=\"container:c1\"");
    let expected = [
        format!(
            "{{__address__=\"172.18.0.2:80\", {SHOP}, __meta_docker_port_private=\"80\", \
             __meta_docker_port_public=\"8080\", __meta_docker_port_public_ip=\"0.0.0.0\"}}"
        ),
        format!("{{__address__=\"172.18.0.2:81\", {SHOP}, __meta_docker_port_private=\"81\"}}"),
        "{__address__=\"localhost\", __meta_docker_container_id=\"c2\", \
         __meta_docker_container_name=\"/host\", __meta_docker_container_network_mode=\"host\"}"
            .to_owned(),
        format!("{{__address__=\"172.18.0.2:9000\", {sidecar}}}"),
    ];
    assert_eq!(texts, expected);
    let requests = server.requests();
    let filters = "/containers/json?filters=%7B%22label%22%3A%7B%22a%3Db%26c%22%3Atrue%7D%2C%22name%22%3A%7B%22x\
                   %22%3Atrue%2C%22y%22%3Atrue%7D%7D";
    assert!(requests[0].starts_with(&format!("GET {filters} HTTP/1.1\r\n")), "{requests:?}");
    assert_eq!((requests.len(), server.connections()), (2, 1));
    run.stop().await;
}

#[tokio::test]
async fn containers_of_a_tcp_daemon_have_a_target_for_each_network() {
    let server = StandIn::start(reply).await;
    let mut run = start(settings(format!("tcp://{}", server.address), false));
    let update = run.next().await;
    let addresses: Vec<_> = update[0].targets.iter().map(|labels| labels.get(ADDRESS).unwrap()).collect();
    let expected = [
        "172.18.0.2:80",
        "172.18.0.2:81",
        "[fd01::2]:80",
        "[fd01::2]:81",
        "localhost",
        "172.18.0.2:9000",
        "[fd01::2]:9000",
    ];
    assert_eq!(addresses, expected);
}

const ADDRESS: &str = "__address__";

#[tokio::test]
async fn failed_list_of_networks_is_counted_and_sends_no_update() {
    let server = StandIn::start(|head| {
        if head.starts_with("GET /networks ") { Reply::json("{}") } else { Reply::json("null") }
    })
    .await;
    let mut run = start(settings(format!("http://{}", server.address), true));
    while run.stats.errors(DiscoveryKind::Docker) == 0 {
        tokio::task::yield_now().await;
    }
    assert!(run.updates.try_recv().is_err());
}

#[test]
fn hosts_without_a_known_scheme_are_rejected() {
    let net: Arc<dyn athanor_chassis::Net> = Arc::new(athanor_chassis::net::LocalNet::new(Clock::system()));
    let client = HttpClient::new(HttpClientSettings::default(), Arc::clone(&net), Clock::system());
    let policy = AddressPolicy::new(net, Clock::system(), Default::default());
    for host in ["", "/var/run/docker.sock", "unix://relative", "ssh://h", "tcp://"] {
        let settings = settings(host.to_owned(), true);
        let result =
            docker_discoverer(&settings, client.clone(), policy.clone(), Clock::system(), Arc::default());
        assert!(result.is_err(), "{host}");
    }
}
