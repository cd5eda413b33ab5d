//! Cgroups of processes: paths by process and by id, and the containers and units that paths name.
//!
//! Three layouts exist. In v2 there is one hierarchy, and a sample has the id of its cgroup there. In v1 each
//! controller has a hierarchy, and samples have no useful id. The hybrid layout has both, and the v2 hierarchy may
//! have nothing but its root. So ids count in v2 only, and else `/proc/PID/cgroup` does.

mod index;
mod membership;
mod names;

pub use index::CgroupIndex;
pub use membership::CgroupMembership;
pub use names::{CgroupNames, is_container_id};
