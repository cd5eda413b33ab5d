//! Masks the secrets of a configuration for pages.

use serde_json::{Map, Value};

const SECRET_MASK: &str = "******";
/// Parts of the names of settings whose values are secret.
const SECRET_NAME_PARTS: [&str; 5] = ["password", "secret", "token", "credential", "api_key"];
/// Ends of names of settings that name the place of a secret.
const PLACE_SUFFIXES: [&str; 2] = ["_file", "_ref"];
/// Settings whose values may all be secret.
const SECRET_SECTIONS: [&str; 3] = ["http_headers", "proxy_connect_header", "key"];

/// Returns a YAML document with masked secrets. Masks the values of settings that are named like a secret, all
/// HTTP headers, and the credentials and queries of URLs. Comments are lost.
pub fn mask_secrets(yaml: &str) -> String {
    let read: Result<Value, _> = serde_saphyr::from_str(yaml);
    let Ok(mut value) = read else {
        return "# the configuration cannot be shown, because its secrets cannot be found\n".to_owned();
    };
    if value.is_null() {
        return String::new();
    }
    mask_value(&mut value);
    serde_saphyr::to_string(&value).unwrap_or_default()
}

fn mask_value(value: &mut Value) {
    match value {
        Value::Object(fields) => mask_fields(fields),
        Value::Array(items) => items.iter_mut().for_each(mask_value),
        Value::String(text) => {
            if let Some(masked) = mask_url(text) {
                *text = masked;
            }
        }
        _ => {}
    }
}

fn mask_fields(fields: &mut Map<String, Value>) {
    for (name, value) in fields {
        if is_secret(name) { mask_all(value) } else { mask_value(value) }
    }
}

fn is_secret(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    let is_place = PLACE_SUFFIXES.iter().any(|suffix| name.ends_with(suffix));
    let is_named_secret = SECRET_NAME_PARTS.iter().any(|part| name.contains(part));
    SECRET_SECTIONS.contains(&name.as_str()) || is_named_secret && !is_place
}

/// Masks all texts and numbers below a value, and keeps its structure.
fn mask_all(value: &mut Value) {
    match value {
        Value::Object(fields) => fields.iter_mut().for_each(|(_, value)| mask_all(value)),
        Value::Array(items) => items.iter_mut().for_each(mask_all),
        Value::Null => {}
        secret => *secret = Value::String(SECRET_MASK.to_owned()),
    }
}

/// Returns a URL with masked credentials and query. None if the text is not a URL or has none of them.
fn mask_url(text: &str) -> Option<String> {
    let (scheme, rest) = text.split_once("://")?;
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    let credentials = if host.len() == authority.len() { String::new() } else { format!("{SECRET_MASK}@") };
    let (path, query) = path.split_once('?').map_or((path, ""), |(path, query)| (path, query));
    let query = if query.is_empty() { String::new() } else { format!("?{SECRET_MASK}") };
    if credentials.is_empty() && query.is_empty() {
        return None;
    }
    Some(format!("{scheme}://{credentials}{host}{path}{query}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_masked_and_everything_else_is_shown() {
        let yaml = "\
servers:
- url: https://user:hidden1@profiles.example/x?token=hidden2
  token: hidden3
  password_file: /run/password
  user: {name: shown1, password: hidden4}
scrape_configs:
- job_name: shown2
  bearer_token: 424242
  authorization: {credentials: hidden5, type: shown3}
  tls_config: {key: hidden6, key_file: /run/key}
  http_headers: {X-Key: {values: [hidden7], secrets: [hidden8]}}
  params: {access_token: [hidden9], debug: ['1']}
";
        let masked = mask_secrets(yaml);
        for hidden in ["hidden", "424242", "user:"] {
            let count = masked.matches(hidden).count();
            assert_eq!(count, usize::from(hidden == "user:"), "{hidden}: {masked}");
        }
        let shown =
            ["shown1", "shown2", "shown3", "/run/password", "/run/key", "profiles.example/x", "X-Key"];
        for shown in shown {
            assert!(masked.contains(shown), "{shown}: {masked}");
        }
        assert_eq!(masked.matches(SECRET_MASK).count(), 10, "{masked}");
    }

    #[test]
    fn text_that_is_not_yaml_is_not_shown() {
        assert!(!mask_secrets("password: [hidden").contains("hidden"));
        assert_eq!(mask_secrets(""), "");
    }
}
