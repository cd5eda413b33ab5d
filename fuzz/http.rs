//! How the server reads calls and answers them; all of the server would be slow to build with a fuzzer's instruments.

#[path = "../server/src/http"]
#[allow(dead_code, unused_imports, missing_docs)]
mod part {
    pub mod body;
    pub mod decoded_size;
    pub mod encoding;
    pub mod json;
    pub mod pace;
    pub mod partial_header;
    pub mod request_budget;
    pub mod result_headers;
    pub mod tenant_header;
    pub mod unary;
    pub mod url_escaping;

    pub use request_budget::RequestBudget;

    /// Stands for connections, of which a fuzz target has none.
    pub mod connection {
        use athanor_chassis::requests::result_budget::ResultReservation;
        use axum::body::Body;
        use axum::http::Response;

        /// Keeps no memory: nothing is sent.
        pub fn keep_budget(_: &mut Response<Body>, _: impl FnOnce(usize) -> Option<ResultReservation>) {}
    }
}

#[allow(unused_imports)]
pub use part::*;
