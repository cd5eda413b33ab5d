//! Wire contracts: messages between clients and the server, and between nodes of a cluster.
//!
//! ```text
//!  push.v1 ────┐
//!              ├─► types.v1      labels, series, selectors
//!  querier.v1 ─┴─► google.v1     pprof
//!  parca.*, debuginfo.v1alpha1   messages from agents of Parca and Pyroscope
//!
//!  athanor.v1 ───► types.v1      API that only this server has
//!  athanor.internal.v1           messages and gRPC services between nodes of one cluster
//! ```
//!
//! The contracts are the files in `protos/`. The build generates the modules here from them; their
//! documentation is the comments there. Existing clients have compiled the names and numbers in, so the
//! contracts may only grow. The number of a removed field stays unused for ever. Names matter as much as
//! numbers, because clients also write these messages as JSON.
//!
//! Reading is lenient, as protobuf requires. An unknown field is skipped. An enum keeps an unknown number in
//! protobuf. In JSON, an unknown name or number of an enum is the default, and an error in `athanor.v1`. An absent field
//! has its default. The receiver checks required fields. Text that is not UTF-8 is an error. A
//! field of `bytes` shares the buffer that it was decoded from.
//!
//! [`google::v1::Profile`] is for responses and for tests. Uploads do not use it: they stay bytes in
//! [`push::v1::RawSample`]. The pprof reader, which has limits of its own, reads those bytes.

mod json_numbers;
mod profile_format;
mod sandwich;
mod timestamp;

/// Messages that this project defines.
pub mod athanor {
    /// API that only this server has.
    #[allow(missing_docs, clippy::all, clippy::too_many_lines, reason = "generated")]
    pub mod v1 {
        include!(concat!(env!("OUT_DIR"), "/athanor.v1.rs"));
        include!(concat!(env!("OUT_DIR"), "/athanor.v1.serde.rs"));
    }
    /// Messages and services between nodes of a cluster.
    pub mod internal {
        /// Single version of the internal protocol. Each request identifies its sender by a
        /// [`CallHeader`](v1::CallHeader).
        #[allow(missing_docs, clippy::all, clippy::too_many_lines, reason = "generated")]
        pub mod v1 {
            include!(concat!(env!("OUT_DIR"), "/athanor.internal.v1.rs"));
        }
    }
}

/// Messages in Google's namespaces.
pub mod google {
    /// pprof profiles, as responses carry them.
    #[allow(missing_docs, clippy::all, clippy::too_many_lines, reason = "generated")]
    pub mod v1 {
        include!(concat!(env!("OUT_DIR"), "/google.v1.rs"));
        include!(concat!(env!("OUT_DIR"), "/google.v1.serde.rs"));
    }
    /// Well-known types that other messages use.
    pub mod protobuf {
        pub use crate::timestamp::Timestamp;
    }
}

/// Query API of Pyroscope.
pub mod querier {
    /// Requests and responses of dashboards and command lines.
    #[allow(missing_docs, clippy::all, clippy::too_many_lines, reason = "generated")]
    pub mod v1 {
        pub use crate::sandwich::{SandwichNode, SandwichTree};
        include!(concat!(env!("OUT_DIR"), "/querier.v1.rs"));
        include!(concat!(env!("OUT_DIR"), "/querier.v1.serde.rs"));
    }
}

/// Push API of Pyroscope.
pub mod push {
    /// Uploads from agents.
    #[allow(missing_docs, clippy::all, clippy::too_many_lines, reason = "generated")]
    pub mod v1 {
        include!(concat!(env!("OUT_DIR"), "/push.v1.rs"));
        include!(concat!(env!("OUT_DIR"), "/push.v1.serde.rs"));
    }
}

/// Messages that several packages share.
pub mod types {
    /// Labels, series and selectors of stacks.
    #[allow(missing_docs, clippy::all, clippy::too_many_lines, reason = "generated")]
    pub mod v1 {
        include!(concat!(env!("OUT_DIR"), "/types.v1.rs"));
        include!(concat!(env!("OUT_DIR"), "/types.v1.serde.rs"));
    }
}

/// Debug information of binaries, as Pyroscope uploads it.
pub mod debuginfo {
    /// Upload of debug information.
    #[allow(missing_docs, clippy::all, clippy::too_many_lines, reason = "generated")]
    pub mod v1alpha1 {
        include!(concat!(env!("OUT_DIR"), "/debuginfo.v1alpha1.rs"));
        include!(concat!(env!("OUT_DIR"), "/debuginfo.v1alpha1.serde.rs"));
    }
}

/// Packages of Parca's agents and servers.
pub mod parca {
    /// Profile uploads of Parca agents.
    pub mod profilestore {
        /// Single version of the package.
        #[allow(missing_docs, clippy::all, clippy::too_many_lines, reason = "generated")]
        pub mod v1alpha1 {
            include!(concat!(env!("OUT_DIR"), "/parca.profilestore.v1alpha1.rs"));
            include!(concat!(env!("OUT_DIR"), "/parca.profilestore.v1alpha1.serde.rs"));
        }
    }
    /// Debug information of binaries, as Parca uploads it.
    pub mod debuginfo {
        /// Single version of the package.
        #[allow(missing_docs, clippy::all, clippy::too_many_lines, reason = "generated")]
        pub mod v1alpha1 {
            include!(concat!(env!("OUT_DIR"), "/parca.debuginfo.v1alpha1.rs"));
            include!(concat!(env!("OUT_DIR"), "/parca.debuginfo.v1alpha1.serde.rs"));
        }
    }
}

/// Packages that gRPC defines.
pub mod grpc {
    /// Health check of a server.
    pub mod health {
        /// Single version of the package.
        #[allow(missing_docs, clippy::all, clippy::too_many_lines, reason = "generated")]
        pub mod v1 {
            include!(concat!(env!("OUT_DIR"), "/grpc.health.v1.rs"));
            include!(concat!(env!("OUT_DIR"), "/grpc.health.v1.serde.rs"));
        }
    }
}

/// Settings that users of a tenant store.
pub mod settings {
    /// Page settings and recording rules.
    #[allow(missing_docs, clippy::all, clippy::too_many_lines, reason = "generated")]
    pub mod v1 {
        include!(concat!(env!("OUT_DIR"), "/settings.v1.rs"));
        include!(concat!(env!("OUT_DIR"), "/settings.v1.serde.rs"));
    }
}

/// Feature flags of a server.
pub mod capabilities {
    /// Single version of the package.
    #[allow(missing_docs, clippy::all, clippy::too_many_lines, reason = "generated")]
    pub mod v1 {
        include!(concat!(env!("OUT_DIR"), "/capabilities.v1.rs"));
        include!(concat!(env!("OUT_DIR"), "/capabilities.v1.serde.rs"));
    }
}

/// Profiles that users upload by hand.
pub mod adhocprofiles {
    /// Single version of the package.
    #[allow(missing_docs, clippy::all, clippy::too_many_lines, reason = "generated")]
    pub mod v1 {
        include!(concat!(env!("OUT_DIR"), "/adhocprofiles.v1.rs"));
        include!(concat!(env!("OUT_DIR"), "/adhocprofiles.v1.serde.rs"));
    }
}

/// API versions that a server supports.
pub mod version {
    /// Single version of the package.
    #[allow(missing_docs, clippy::all, clippy::too_many_lines, reason = "generated")]
    pub mod v1 {
        include!(concat!(env!("OUT_DIR"), "/version.v1.rs"));
        include!(concat!(env!("OUT_DIR"), "/version.v1.serde.rs"));
    }
}

/// Source code that belongs to profiles.
pub mod vcs {
    /// Single version of the package.
    #[allow(missing_docs, clippy::all, clippy::too_many_lines, reason = "generated")]
    pub mod v1 {
        include!(concat!(env!("OUT_DIR"), "/vcs.v1.rs"));
        include!(concat!(env!("OUT_DIR"), "/vcs.v1.serde.rs"));
    }
}
