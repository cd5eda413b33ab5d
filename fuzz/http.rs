//! How the server reads calls and answers them; all of the server would be slow to build with a fuzzer's instruments.

#[path = "../server/src/http"]
#[allow(dead_code, unused_imports, missing_docs)]
mod part {
    pub mod body;
    pub mod caller;
    pub mod door;
    pub mod encoding;
    pub mod escaping;
    pub mod json;
    pub mod partial;
    pub mod recorded;
    pub mod unary;
    pub mod weight;

    pub use door::Door;
}

#[allow(unused_imports)]
pub use part::*;
