//! `docs/agent.md` and `docs/sampler.md`: their configurations are valid, and they describe each key.

#![allow(clippy::unwrap_used)]

use std::path::Path;

use athanor_agent::config::{AgentConfig, ConfigErrors, Environment, parse};
use athanor_agent_ebpf::layout::{LostReason, StackEnd};
use serde_json::Value;

/// Key that no section has. It is not similar to one, so that the error lists the known keys.
const UNKNOWN_KEY: &str = "zzzzzzzzzzzzzzzz";

fn page() -> String {
    read_page("agent.md")
}

fn read_page(name: &str) -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs").join(name)).unwrap()
}

/// Returns the blocks of YAML.
fn yaml_blocks(page: &str) -> Vec<&str> {
    let blocks = page.split("```yaml\n").skip(1);
    blocks.map(|rest| rest.split_once("\n```").expect("a block ends").0).collect()
}

fn check(text: &str) -> Result<AgentConfig, ConfigErrors> {
    let variables = [("NODE_NAME".to_owned(), "node-1".to_owned())];
    parse(text, Path::new("/etc/athanor/agent.yaml"), &Environment::from_variables(variables))
}

/// Returns the configurations within manifests of Kubernetes.
fn mounted_configurations(manifests: &str) -> Vec<String> {
    let mut configurations = Vec::new();
    for manifest in manifests.split("\n---\n") {
        let manifest: Value = serde_saphyr::from_str(manifest).unwrap();
        assert!(manifest["kind"].is_string() && manifest["metadata"]["name"].is_string(), "{manifest}");
        let files = manifest["data"].as_object().into_iter().flatten();
        let files = files.filter(|(name, _)| name.ends_with(".yaml"));
        configurations.extend(files.map(|(_, text)| text.as_str().unwrap().to_owned()));
    }
    configurations
}

#[test]
fn configurations_of_the_page_are_valid() {
    let page = page();
    let mut configurations = Vec::new();
    for block in yaml_blocks(&page) {
        match block.starts_with("apiVersion:") {
            true => configurations.extend(mounted_configurations(block)),
            false => configurations.push(block.to_owned()),
        }
    }
    assert!(configurations.len() >= 7, "{} configurations", configurations.len());
    for text in &configurations {
        match check(text) {
            Ok(config) => assert!(config.warnings.is_empty(), "{:?} in\n{text}", config.warnings),
            Err(errors) => panic!("{errors}\nin\n{text}"),
        }
    }
}

/// Returns the keys of a section, from the error about an unknown one. `section` contains `KEY` in its place.
fn known_keys(section: &str) -> Vec<String> {
    let text = section.replace("KEY", &format!("{UNKNOWN_KEY}: 1"));
    let refused = check(&text).expect_err(&text).errors;
    let listed = refused.iter().find_map(|error| {
        let (unknown, known) = error.message.split_once("; known keys are ")?;
        unknown.contains(UNKNOWN_KEY).then_some(known)
    });
    let listed = listed.unwrap_or_else(|| panic!("no error lists the keys of {section}: {refused:?}"));
    listed.split(", ").map(str::to_owned).collect()
}

#[test]
fn page_describes_each_key() {
    let page = page();
    let mut missing = Vec::new();
    for section in [
        "{KEY}",
        "global: {KEY}",
        "servers: [{KEY}]",
        "servers: [{tls_config: {KEY}}]",
        "servers: [{basic_auth: {KEY}}]",
        "servers: [{authorization: {KEY}}]",
        "servers: [{http_headers: {X-A: {KEY}}}]",
        "spool: {KEY}",
        "receive: {KEY}",
        "receive: {tenant: {KEY}}",
        "operator: {KEY}",
        "scrape_configs: [{KEY}]",
        "scrape_configs: [{profiling_config: {KEY}}]",
        "scrape_configs: [{profiling_config: {pprof_config: {memory: {KEY}}}}]",
        "scrape_configs: [{static_configs: [{KEY}]}]",
        "scrape_configs: [{file_sd_configs: [{KEY}]}]",
        "scrape_configs: [{http_sd_configs: [{KEY}]}]",
        "scrape_configs: [{dns_sd_configs: [{KEY}]}]",
        "scrape_configs: [{kubernetes_sd_configs: [{KEY}]}]",
        "scrape_configs: [{docker_sd_configs: [{KEY}]}]",
    ] {
        let prefix = if section.contains("tenant: {") { "tenant." } else { "" };
        for key in known_keys(section) {
            if !page.contains(&format!("`{prefix}{key}`")) && !key.ends_with("_ref") {
                missing.push(format!("{key} of {section}"));
            }
        }
    }
    assert!(missing.is_empty(), "docs/agent.md lacks {}", missing.join("; "));
}

#[test]
fn page_of_the_sampler_describes_each_key_and_reason() {
    let page = read_page("sampler.md");
    let keys = known_keys("sampler: {KEY}").into_iter().filter(|key| key != "tenant");
    let tenant = known_keys("sampler: {tenant: {KEY}}").into_iter().map(|key| format!("tenant.{key}"));
    let ends =
        StackEnd::ALL.iter().filter(|end| **end != StackEnd::Complete).map(|end| end.name().to_owned());
    let lost = LostReason::ALL.iter().map(|reason| reason.name().to_owned());
    let names: Vec<String> = keys.chain(tenant).chain(ends).chain(lost).collect();
    let missing: Vec<_> = names.iter().filter(|name| !page.contains(&format!("| `{name}` |"))).collect();
    assert!(missing.is_empty() && names.len() > 20, "docs/sampler.md lacks {missing:?}");
}

#[test]
fn configurations_of_the_page_of_the_sampler_are_valid() {
    let page = read_page("sampler.md");
    let blocks = yaml_blocks(&page).into_iter().filter(|block| block.starts_with("sampler:"));
    let configurations: Vec<AgentConfig> = blocks.map(|block| check(block).expect(block)).collect();
    assert_eq!(configurations.len(), 1);
    assert_eq!(configurations[0].warnings, [""; 0]);
}
