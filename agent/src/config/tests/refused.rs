//! Messages of refused configurations, with line and column.

use super::read;

/// Asserts that a text is refused with these lines, without the path of the file.
#[track_caller]
fn refuses(text: &str, expected: &[&str]) {
    let errors = read(text).map(|_| ()).expect_err(text).to_string();
    let lines: Vec<&str> =
        errors.lines().map(|line| line.trim_start_matches("/etc/agent/agent.yml:")).collect();
    assert_eq!(lines, expected, "{text}");
}

#[test]
fn syntax_errors_have_their_position() {
    refuses("a: [1", &["1:4: the text is not YAML: unclosed bracket '['"]);
    refuses("spool: {}\nspool: {}", &["2:1: key spool is set twice; remove one"]);
    refuses("- a", &["1:1: configuration is a list; write a table of settings"]);
    refuses("text", &["1:1: configuration is a single value; write a table of settings"]);
}

#[test]
fn all_errors_are_reported_in_order() {
    refuses(
        "scrape_configs:\n- job_name: a\n  scrape_interval: 5\n  sceme: http\n- scheme: ftp\nglobl: {}\n",
        &[
            "3:20: scrape_interval: \"5\" is not a duration; write whole numbers with the units y, w, d, h, m, s and ms from large to small, such as 1m30s",
            "4:3: unknown key sceme in scrape_configs; did you mean scheme?",
            "5:3: a job of scrape_configs has no name; set job_name",
            "5:11: scheme is \"ftp\"; use http or https",
            "6:1: unknown key globl in configuration; did you mean global?",
        ],
    );
}

#[test]
fn unknown_keys_name_the_nearest_one_or_the_known_ones() {
    refuses("spool: {max_byte: 1GiB}", &["1:9: unknown key max_byte in spool; did you mean max_bytes?"]);
    refuses("operator: {x: 1}", &["1:12: unknown key x in operator; known keys are listen_address"]);
    refuses(
        "scrape_configs: [{job_name: a, honour_labels: true}]",
        &["1:32: unknown key honour_labels in scrape_configs; did you mean honor_labels?"],
    );
    refuses(
        "scrape_configs: [{job_name: a, profiling_config: {pprof_config: {memory: {enable: true}}}}]",
        &["1:75: unknown key enable in pprof_config; did you mean enabled?"],
    );
}

#[test]
fn other_mechanisms_name_file_and_http_discovery() {
    for key in ["consul_sd_configs", "ec2_sd_configs", "dockerswarm_sd_configs", "any_sd_configs"] {
        refuses(
            &format!("scrape_configs:\n- job_name: a\n  {key}: [{{}}]"),
            &[&format!(
                "3:3: {key} is not supported; write the targets to a file and use file_sd_configs, or serve them and use http_sd_configs"
            )],
        );
    }
}

#[test]
fn settings_of_the_agent_are_checked() {
    for (text, expected) in [
        ("servers: []", "1:10: servers has 0 items; list 1 to 16"),
        (
            "servers: [{url: 'ftp://a'}]",
            "1:17: url \"ftp://a\" has another scheme; begin it with http:// or https://",
        ),
        (
            "servers: [{url: 'http://u:hunter2@a'}]",
            "1:17: url contains credentials; set basic_auth or authorization",
        ),
        (
            "servers: [{url: 'http://a', name: ../b}]",
            "1:35: server name \"../b\" is invalid; use up to 100 letters, digits, - _ and ., beginning with a letter or digit",
        ),
        (
            "servers: [{url: 'http://a'}, {url: 'http://a:80'}]",
            "1:30: server name \"a-80\" is used twice; set name",
        ),
        (
            "servers: [{url: 'http://a', token: x, bearer_token: y}]",
            "1:36: token is set beside another authentication; keep one",
        ),
        (
            "servers: [{url: 'http://a', tenant: a b}]",
            "1:37: tenant is \"a b\": tenant name has ' '; allowed are letters and digits of ASCII and !-_.*'():",
        ),
        (
            "servers: [{url: 'http://a', tls_config: {min_version: TLS13}}]",
            "1:41: min_version and max_version of servers are not supported, TLS 1.2 and 1.3 are used; remove them",
        ),
        (
            "servers: [{url: 'ftp://u:hush@a?token=hush'}]",
            "1:17: url \"a\" has another scheme; begin it with http:// or https://",
        ),
        ("spool: {max_bytes: 1MiB}", "1:20: max_bytes is 1MiB; set 16MiB or more"),
        ("spool: {max_bytes: x}", "1:20: max_bytes is \"x\": \"x\" is not a size; write for example 128MiB"),
        ("spool: {min_free: 100%}", "1:19: min_free is \"100%\"; write a percentage from 0% to 99%"),
        (
            "receive: {listen_address: localhost}",
            "1:27: listen_address is \"localhost\": invalid socket address syntax",
        ),
        ("receive: {enabled: maybe}", "1:20: enabled is \"maybe\"; write true or false"),
        ("receive: {enabled: 'true'}", "1:20: enabled is \"true\"; write true or false"),
        (
            "allowed_target_ranges: [10.0.0.0/33]",
            "1:25: \"10.0.0.0/33\" is not a range of addresses; write for example 127.0.0.0/8",
        ),
        (
            "{scrape_self: true, scrape_configs: [{job_name: athanor-agent}]}",
            "1:37: job_name athanor-agent is that of a built-in job; rename the job of scrape_configs",
        ),
        (
            "scrape_config_files: [a.yml]",
            "1:22: scrape_config_files is not supported; move the jobs to scrape_configs",
        ),
    ] {
        refuses(text, &[expected]);
    }
}

#[test]
fn settings_of_jobs_are_checked() {
    for (text, expected) in [
        ("job_name: ''", "1:29: a job of scrape_configs has no name; set job_name"),
        (
            "job_name: a, scrape_interval: 5s, scrape_timeout: 6s",
            "1:69: scrape_timeout is 6s, scrape_interval is 5s; set a timeout up to the interval",
        ),
        ("job_name: a, static_configs: [null]", "1:49: an item of static_configs is empty; remove it"),
        (
            "job_name: a, static_configs: [{targets: ['http://a']}]",
            "1:48: target \"http://a\" is not an address; write host:port",
        ),
        (
            "job_name: a, relabel_configs: [{regex: '(', target_label: b}]",
            "1:58: regex is \"(\": a group is not closed: ) is missing; use RE2 syntax",
        ),
        (
            "job_name: a, relabel_configs: [{action: hashmod, modulus: [8], target_label: b}]",
            "1:77: modulus is a list; write a text",
        ),
        (
            "job_name: a, oauth2: {client_id: a}",
            "1:40: oauth2 is not supported; fetch the token with another program and set authorization.credentials_file",
        ),
        (
            "job_name: a, proxy_url: 'http://p'",
            "1:43: proxy_url is not supported; scrapes and discovery use no proxy; run an agent behind it",
        ),
        (
            "job_name: a, tls_config: {ca_ref: a}",
            "1:53: ca_ref needs a secret manager, which the agent does not have; use ca_file",
        ),
        (
            "job_name: a, tls_config: {max_version: TLS10}",
            "1:58: max_version is \"TLS10\"; use TLS12 or TLS13",
        ),
        (
            "job_name: a, tls_config: {min_version: TLS13, max_version: TLS12}",
            "1:78: max_version is below min_version; remove one",
        ),
        (
            "job_name: a, profiling_config: {pprof_config: {a-b: {path: /x}}}",
            "1:66: kind \"a-b\" has an invalid name; use letters, digits and _",
        ),
        (
            "job_name: a, profiling_config: {pprof_config: {wall: {delta: true}}}",
            "1:72: a kind of its own has no path; set path",
        ),
        (
            "job_name: a, profiling_config: {pprof_config: {memory: {seconds: 1m}}}",
            "1:84: seconds is \"1m\"; write a whole number from 0 to 3600",
        ),
        ("job_name: a, params: {a: b}", "1:44: params.a is a single value; write a list"),
    ] {
        refuses(&format!("scrape_configs: [{{{text}}}]"), &[expected]);
    }
}

#[test]
fn settings_of_discovery_are_checked() {
    for (text, expected) in [
        (
            "job_name: a, docker_sd_configs: [{host: '/run/docker.sock'}]",
            "1:59: host \"/run/docker.sock\" of docker_sd_configs is not valid; use an address like unix:///var/run/docker.sock, tcp://10.0.0.1:2375 or https://10.0.0.1:2376",
        ),
        (
            "job_name: a, kubernetes_sd_configs: [{role: pod, namespaces: {names: [shop, ../x]}}]",
            "1:88: namespace \"../x\" is invalid; use lower-case letters, digits and -",
        ),
        (
            "job_name: a, kubernetes_sd_configs: [{role: ingress}]",
            "1:63: role is \"ingress\"; use pod, endpoints, endpointslice, service, node",
        ),
        (
            "job_name: a, kubernetes_sd_configs: [{role: pod, attach_metadata: {deployment: true}}]",
            "1:98: attach_metadata.deployment is not supported; use node or namespace",
        ),
        (
            "job_name: a, http_sd_configs: [{url: 'http://a', refresh_interval: 0s}]",
            "1:86: refresh_interval is 0; set 1s or more",
        ),
    ] {
        refuses(&format!("scrape_configs: [{{{text}}}]"), &[expected]);
    }
}

#[test]
fn secrets_do_not_appear_in_messages() {
    let text = "scrape_configs: [{job_name: a, basic_auth: {username: u, password: hunter2, password_file: x, pasword: hunter2}, bearer_token: hunter3, authorization: {credentials: [hunter4]}}]";
    let errors = read(text).unwrap_err().to_string();
    assert!(errors.lines().count() >= 3 && !errors.contains("hunter"), "{errors}");
}

#[test]
fn long_and_many_values_are_bounded() {
    let long = "x".repeat(900);
    let errors = read(&format!("{long}: 1\nspool: {{min_free: {long}}}")).unwrap_err();
    assert!(errors.errors.len() == 2 && errors.to_string().len() < 1000, "{}", errors.to_string().len());
    let many: String = (0..500).map(|n| format!("qqq{n}: 1\n")).collect();
    assert_eq!(read(&many).unwrap_err().errors.len(), 100);
    let big = format!("# {}\n", "x".repeat(super::super::MAX_CONFIG_BYTES));
    assert!(read(&big).unwrap_err().to_string().contains("the limit is 4194304; split it"));
    let rules = "{target_label: a},".repeat(501);
    let errors = read(&format!("scrape_configs: [{{job_name: a, relabel_configs: [{rules}]}}]")).unwrap_err();
    assert!(
        errors.to_string().contains("501 rules in relabel_configs, the limit is 500; join some"),
        "{errors}"
    );
}

#[test]
fn nested_text_and_aliases_are_bounded() {
    for text in ["[".repeat(100_000), "a: ".repeat(10_000), "{a: ".repeat(5_000), "- ".repeat(50_000)] {
        assert!(read(&text).is_err());
    }
    let mut bomb = String::from("a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n");
    for n in 1..12 {
        let before = format!("*a{},", n - 1).repeat(10);
        bomb.push_str(&format!("a{n}: &a{n} [{before}]\n"));
    }
    assert!(read(&bomb).is_err());
}

#[test]
fn sampler_refuses_values_out_of_range_with_the_range() {
    refuses(
        "sampler: {frequncy_hz: 19}",
        &["1:11: unknown key frequncy_hz in sampler; did you mean frequency_hz?"],
    );
    refuses("sampler: {enabled: maybe}", &["1:20: enabled is \"maybe\"; write auto, true or false"]);
    for frequency in ["0", "998"] {
        let message = format!("1:25: frequency_hz is {frequency}; set 1 to 997");
        refuses(&format!("sampler: {{frequency_hz: {frequency}}}"), &[&message]);
    }
    refuses("sampler: {window_interval: 1s}", &["1:28: window_interval is 1s; set 2s to 5m"]);
    refuses("sampler: {symbolize: remote}", &["1:22: symbolize is \"remote\"; write local or none"]);
    refuses("sampler: {max_memory_bytes: 1MiB}", &["1:29: max_memory_bytes is 1MiB; set 16MiB to 4GiB"]);
    for percent in ["0", "NaN", "101"] {
        let message = format!("1:28: max_cpu_percent is {percent}; set a number above 0, up to 100");
        refuses(&format!("sampler: {{max_cpu_percent: {percent}}}"), &[&message]);
    }
    refuses(
        "sampler: {environment_variables: ['A=B']}",
        &[
            "1:35: \"A=B\" is no name of an environment variable; write letters, digits and _, such as APP_VERSION",
        ],
    );
    refuses(
        "sampler: {extra_capabilities: [SYS_ADMIN]}",
        &["1:32: extra_capabilities has \"SYS_ADMIN\"; write SYSLOG, DAC_READ_SEARCH or CHECKPOINT_RESTORE"],
    );
    refuses("sampler: {tenant: {labl: a}}", &["1:20: unknown key labl in tenant; did you mean label?"]);
    refuses("sampler: 19", &["1:10: sampler is a single value; write a table of settings"]);
}
