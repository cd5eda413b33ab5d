//! Requests to the admin socket of the server on a data folder.

use athanor_chassis::{ErrorCode, Status};
use athanor_server::{read_admin_resource, send_admin_request};
use serde_json::Value;

use crate::args::ServerConfigArgs;
use crate::server::serve::{block_on, load_config};

/// Reads a resource of the server, such as `/shards`.
pub fn read(settings: &ServerConfigArgs, path: &str) -> Result<Value, Status> {
    let data = load_config(settings, None)?.value.data_dir;
    parse(&block_on(async move { read_admin_resource(&data, path).await })?)
}

/// Sends a command to the server, such as `/flush`.
pub fn send(settings: &ServerConfigArgs, path: &str) -> Result<Value, Status> {
    let data = load_config(settings, None)?.value.data_dir;
    parse(&block_on(async move { send_admin_request(&data, path).await })?)
}

fn parse(response: &str) -> Result<Value, Status> {
    serde_json::from_str(response).map_err(|error| {
        Status::new(ErrorCode::Internal, format!("response of the server is not JSON: {error}"))
    })
}
