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
    pub mod pace;
    pub mod partial;
    pub mod recorded;
    pub mod unary;
    pub mod weight;

    pub use door::Door;

    /// Stands for connections, of which a fuzz target has none.
    pub mod connection {
        use athanor_chassis::room::Taken;
        use axum::body::Body;
        use axum::http::Response;

        /// Keeps no memory: nothing is sent.
        pub fn keep_budget(_: &mut Response<Body>, _: impl FnOnce(usize) -> Option<Taken>) {}
    }
}

#[allow(unused_imports)]
pub use part::*;
