//! Seeds of what the agent reads: streams of watches, configurations, lists of targets, queries and spool files.

use athanor_agent::spool::SpoolFile;
use athanor_agent::spool::file_format::RequestParts;
use athanor_agent::upload::UploadRoute;
use athanor_profile::formats::pprof::encode;
use athanor_profile::generate::arbitrary_profile;

const CONFIGURATIONS: [&str; 5] = [
    r#"global: {scrape_interval: 30s, scrape_timeout: 5s, external_labels: {cluster: eu, version: 1.10}}
servers:
  - {url: "https://a.example/p", tenant: a, token_file: token, tls_config: {ca_file: ca.pem}}
  - {name: b, url: "http://10.0.0.2:4040", basic_auth: {username: u, password: p}}
spool: {folder: spool, max_bytes: 2GiB, min_free: 5%}
receive: {listen_address: "0.0.0.0:4041", sender_labels: no, labels: {host: a}, tenant: {header: false, label: t, fixed: f}}
operator: {listen_address: "[::1]:4042"}
allowed_target_ranges: [127.0.0.0/8, "fe80::/10"]
"#,
    r#"scrape_configs:
  - job_name: api
    scrape_interval: 1m30s
    metrics_path: /metrics
    scheme: https
    body_size_limit: 10MB
    params: {debug: ["0"]}
    http_headers: {X-Team: {values: [a], secrets: [b], files: [c]}}
    authorization: {type: Bearer, credentials_file: token}
    profiling_config:
      path_prefix: /internal
      pprof_config:
        memory: {enabled: false}
        process_cpu: {seconds: 10}
        wall: {path: /debug/wall, delta: true, params: {x: [y]}}
    static_configs: [{targets: ["a:1", "b:2"], labels: {l: v}}]
    relabel_configs:
      - {source_labels: [__address__], target_label: shard, action: hashmod, modulus: 4}
      - {source_labels: [shard], regex: 1, action: keep}
"#,
    r#"scrape_self: false
scrape_annotated_pods: true
scrape_configs:
  - job_name: found
    file_sd_configs: [{files: [t/*.json], refresh_interval: 1m}]
    http_sd_configs: [{url: "http://a/t", bearer_token: b}]
    dns_sd_configs: [{names: [_a._tcp.b], type: SRV}, {names: [b], type: A, port: 1}]
    docker_sd_configs: [{host: "unix:///var/run/docker.sock", filters: [{name: label, values: [a]}]}]
    kubernetes_sd_configs:
      - role: pod
        namespaces: {own_namespace: true, names: [a]}
        selectors: [{role: pod, label: "a in (b)", field: "spec.nodeName=n"}]
        attach_metadata: {node: true}
"#,
    "x: &a [1, 2]\ny: *a\nserver: [{urls: http://a}]\nscrape_configs:\n- {<<: *a, consul_sd_configs: []}\n- ~\n",
    "servers:\n- url: http://u:p@a\n  token: t\n  bearer_token: u\nspool:\n  max_bytes: 1\n  min_free: 100%\n",
];

/// Lists of targets, after the byte that selects JSON (`0`) or YAML (`1`).
const TARGET_LISTS: [&str; 3] = [
    r#"0[{"targets": ["10.0.0.1:80", "[::1]:81"], "labels": {"env": "x", "__meta_a": "é"}}, {"labels": null}]"#,
    "1- targets: ['a:1', 8080]\n  labels: {env: x, flag: true}\n- targets: &t [b]\n- targets: *t\n",
    "1# list\n---\n- labels:\n    text: |\n      two\n      lines\n  targets: []\n",
];
/// Queries of `/ingest`.
const QUERIES: [&str; 3] = [
    "name=app%7Bpod%3Da%7D&from=1795227070&until=1795227075&spyName=gospy",
    "format=pprof&name=app.cpu{x=1,}&from=now-10s&&until=now",
    "name=app&from=x&from=5",
];

/// Saves all of them.
pub fn seeds(save: &impl Fn(&str, &str, &[u8]) -> std::io::Result<()>) -> std::io::Result<()> {
    for (target, texts) in [("target-list", TARGET_LISTS), ("ingest-query", QUERIES)] {
        for (number, text) in texts.iter().enumerate() {
            save(target, &format!("seed-{number}"), text.as_bytes())?;
        }
    }
    watches(save)?;
    spool_files(save)?;
    configurations(save)
}

/// Streams of watches. The first byte determines the resource.
fn watches(save: &impl Fn(&str, &str, &[u8]) -> std::io::Result<()>) -> std::io::Result<()> {
    let objects = [
        r#"{"metadata":{"name":"a","namespace":"b","resourceVersion":"7","labels":{"c":"d"}},"spec":{"nodeName":"n",
            "containers":[{"name":"m","ports":[{"containerPort":1,"name":"p"}]}]},"status":{"podIP":"10.0.0.1"}}"#,
        r#"{"metadata":{"name":"a","resourceVersion":"7"},"status":{"addresses":[{"type":"InternalIP","address":"10.0.0.1"}]}}"#,
        r#"{"metadata":{"name":"a","namespace":"b","resourceVersion":"7"},"spec":{"ports":[{"name":"p","port":1}]}}"#,
        r#"{"metadata":{"name":"a","namespace":"b","resourceVersion":"7"},"subsets":[{"addresses":[{"ip":"10.0.0.1"}],
            "ports":[{"port":1}]}]}"#,
        r#"{"metadata":{"name":"a","namespace":"b","resourceVersion":"7"},"endpoints":[{"addresses":["10.0.0.1"],
            "conditions":{"ready":true},"targetRef":{"kind":"Pod","name":"a","namespace":"b"}}],"ports":[{"port":1}]}"#,
        r#"{"metadata":{"name":"a","resourceVersion":"7","labels":{"c":"d"}}}"#,
    ];
    for (number, object) in objects.iter().enumerate() {
        let object = object.replace('\n', "");
        let mut stream = vec![number as u8];
        for kind in ["ADDED", "MODIFIED", "BOOKMARK", "DELETED"] {
            stream.extend(format!("{{\"type\":\"{kind}\",\"object\":{object}}}\n").into_bytes());
        }
        stream.extend(b"{\"type\":\"ERROR\",\"object\":{\"code\":410,\"reason\":\"Expired\"}}\n");
        save("kubernetes-watch", &format!("seed-{number}"), &stream)?;
    }
    Ok(())
}

/// Configurations of the agent: all sections, aliases, and what is refused.
fn configurations(save: &impl Fn(&str, &str, &[u8]) -> std::io::Result<()>) -> std::io::Result<()> {
    for (number, text) in CONFIGURATIONS.iter().enumerate() {
        save("agent-config", &format!("seed-{number}"), text.as_bytes())?;
    }
    let text = "x".repeat(1 << 10);
    let aliases = vec!["*a"; 200].join(",");
    save("agent-config", "aliases", format!("servers: [{{url: &a {text}, name: [{aliases}]}}]").as_bytes())
}

/// Files of the agent's spool, and each without its checksum, behind the length of its header.
fn spool_files(save: &impl Fn(&str, &str, &[u8]) -> std::io::Result<()>) -> std::io::Result<()> {
    let ingest = UploadRoute::Ingest {
        query: "name=app&from=1".to_owned(),
        content_type: "text/plain".to_owned(),
        content_encoding: "gzip".to_owned(),
    };
    let tenant = "team-a".parse().ok();
    for (number, route) in [UploadRoute::Push, UploadRoute::Otlp, ingest].into_iter().enumerate() {
        let parts = vec![encode(&arbitrary_profile(1)).into(), b"end".to_vec().into()];
        let requests = vec![RequestParts { route, profiles: 3, parts }; number + 1];
        let file = SpoolFile::encode(7, tenant.as_ref(), &requests).expect("small lengths");
        save("spool-file", &format!("seed-{number}"), &file)?;
        let header_bytes = u32::from_le_bytes([file[8], file[9], file[10], file[11]]) as u8;
        save("spool-file", &format!("header-{number}"), &[&[header_bytes][..], &file[16..]].concat())?;
    }
    Ok(())
}
