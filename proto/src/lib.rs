//! Wire contracts: the messages that clients and we send each other.
//!
//! ```text
//!  push.v1 ────┐
//!              ├─► types.v1      labels, series, selectors
//!  querier.v1 ─┴─► google.v1     pprof
//!  parca.*, debuginfo.v1alpha1   what agents of Parca and Pyroscope send
//!
//!  athanor.v1 ───► types.v1      what only this server answers
//!  athanor.internal.v1           what nodes of one cluster say to each other, with services of gRPC
//! ```
//!
//! The contracts are the files in `protos/`; the modules here are made from them when the crate is built, and
//! their documentation is the comments there. Names and numbers are those that existing clients have compiled
//! in, so they can only be added to: a field that is gone leaves its number unused for ever. The names count as
//! much as the numbers, because clients also write these messages as JSON.
//!
//! Reading is lenient as the wire demands: a field that is not known is skipped, an enum keeps a number that has
//! no name, a field that is absent is its default. What must be present is for the receiver to say. Text that is
//! not UTF-8 is an error. A field of `bytes` shares the buffer that it was decoded from.
//!
//! [`google::v1::Profile`] is for answers, and for tests. Uploads do not pass through it: they stay bytes in
//! [`push::v1::RawSample`], and the pprof reader, which has limits of its own, reads those.

mod json_numbers;
mod profile_format;
mod sandwich;
mod timestamp;

/// Ours.
pub mod athanor {
    /// What only this server answers.
    #[allow(missing_docs, clippy::all, clippy::too_many_lines, reason = "generated")]
    pub mod v1 {
        include!(concat!(env!("OUT_DIR"), "/athanor.v1.rs"));
        include!(concat!(env!("OUT_DIR"), "/athanor.v1.serde.rs"));
    }
    /// Between nodes.
    pub mod internal {
        /// The only version. Each message names who sends it, see [`Caller`](v1::Caller).
        #[allow(missing_docs, clippy::all, clippy::too_many_lines, reason = "generated")]
        pub mod v1 {
            include!(concat!(env!("OUT_DIR"), "/athanor.internal.v1.rs"));
        }
    }
}

/// Names that Google gave.
pub mod google {
    /// pprof.
    #[allow(missing_docs, clippy::all, clippy::too_many_lines, reason = "generated")]
    pub mod v1 {
        include!(concat!(env!("OUT_DIR"), "/google.v1.rs"));
        include!(concat!(env!("OUT_DIR"), "/google.v1.serde.rs"));
    }
    /// What messages of others are made of.
    pub mod protobuf {
        pub use crate::timestamp::Timestamp;
    }
}

/// Asking for profiles.
pub mod querier {
    /// What dashboards and command lines ask.
    #[allow(missing_docs, clippy::all, clippy::too_many_lines, reason = "generated")]
    pub mod v1 {
        pub use crate::sandwich::{SandwichNode, SandwichTree};
        include!(concat!(env!("OUT_DIR"), "/querier.v1.rs"));
        include!(concat!(env!("OUT_DIR"), "/querier.v1.serde.rs"));
    }
}

/// Sending profiles.
pub mod push {
    /// What agents send.
    #[allow(missing_docs, clippy::all, clippy::too_many_lines, reason = "generated")]
    pub mod v1 {
        include!(concat!(env!("OUT_DIR"), "/push.v1.rs"));
        include!(concat!(env!("OUT_DIR"), "/push.v1.serde.rs"));
    }
}

/// What the others share.
pub mod types {
    /// Labels, series, selectors of stacks.
    #[allow(missing_docs, clippy::all, clippy::too_many_lines, reason = "generated")]
    pub mod v1 {
        include!(concat!(env!("OUT_DIR"), "/types.v1.rs"));
        include!(concat!(env!("OUT_DIR"), "/types.v1.serde.rs"));
    }
}

/// Debug information of binaries.
pub mod debuginfo {
    /// Offering it.
    #[allow(missing_docs, clippy::all, clippy::too_many_lines, reason = "generated")]
    pub mod v1alpha1 {
        include!(concat!(env!("OUT_DIR"), "/debuginfo.v1alpha1.rs"));
        include!(concat!(env!("OUT_DIR"), "/debuginfo.v1alpha1.serde.rs"));
    }
}

/// What Parca's agents and servers send.
pub mod parca {
    /// Profiles.
    pub mod profilestore {
        /// The only version.
        #[allow(missing_docs, clippy::all, clippy::too_many_lines, reason = "generated")]
        pub mod v1alpha1 {
            include!(concat!(env!("OUT_DIR"), "/parca.profilestore.v1alpha1.rs"));
            include!(concat!(env!("OUT_DIR"), "/parca.profilestore.v1alpha1.serde.rs"));
        }
    }
    /// Debug information of binaries.
    pub mod debuginfo {
        /// The only version.
        #[allow(missing_docs, clippy::all, clippy::too_many_lines, reason = "generated")]
        pub mod v1alpha1 {
            include!(concat!(env!("OUT_DIR"), "/parca.debuginfo.v1alpha1.rs"));
            include!(concat!(env!("OUT_DIR"), "/parca.debuginfo.v1alpha1.serde.rs"));
        }
    }
}

/// What gRPC itself defines.
pub mod grpc {
    /// Whether a server takes calls.
    pub mod health {
        /// The only version.
        #[allow(missing_docs, clippy::all, clippy::too_many_lines, reason = "generated")]
        pub mod v1 {
            include!(concat!(env!("OUT_DIR"), "/grpc.health.v1.rs"));
            include!(concat!(env!("OUT_DIR"), "/grpc.health.v1.serde.rs"));
        }
    }
}

/// What people of a tenant have set.
pub mod settings {
    /// Settings of pages, and rules.
    #[allow(missing_docs, clippy::all, clippy::too_many_lines, reason = "generated")]
    pub mod v1 {
        include!(concat!(env!("OUT_DIR"), "/settings.v1.rs"));
        include!(concat!(env!("OUT_DIR"), "/settings.v1.serde.rs"));
    }
}

/// What a server can do.
pub mod capabilities {
    /// The only version.
    #[allow(missing_docs, clippy::all, clippy::too_many_lines, reason = "generated")]
    pub mod v1 {
        include!(concat!(env!("OUT_DIR"), "/capabilities.v1.rs"));
        include!(concat!(env!("OUT_DIR"), "/capabilities.v1.serde.rs"));
    }
}

/// Profiles that people upload by hand.
pub mod adhocprofiles {
    /// The only version.
    #[allow(missing_docs, clippy::all, clippy::too_many_lines, reason = "generated")]
    pub mod v1 {
        include!(concat!(env!("OUT_DIR"), "/adhocprofiles.v1.rs"));
        include!(concat!(env!("OUT_DIR"), "/adhocprofiles.v1.serde.rs"));
    }
}

/// Which calls a server answers.
pub mod version {
    /// The only version.
    #[allow(missing_docs, clippy::all, clippy::too_many_lines, reason = "generated")]
    pub mod v1 {
        include!(concat!(env!("OUT_DIR"), "/version.v1.rs"));
        include!(concat!(env!("OUT_DIR"), "/version.v1.serde.rs"));
    }
}

/// Source code beside profiles.
pub mod vcs {
    /// The only version.
    #[allow(missing_docs, clippy::all, clippy::too_many_lines, reason = "generated")]
    pub mod v1 {
        include!(concat!(env!("OUT_DIR"), "/vcs.v1.rs"));
        include!(concat!(env!("OUT_DIR"), "/vcs.v1.serde.rs"));
    }
}
