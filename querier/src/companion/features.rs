//! What this server can do.

mod wire;
