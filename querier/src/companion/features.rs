//! Feature flags of this server.

mod wire;
