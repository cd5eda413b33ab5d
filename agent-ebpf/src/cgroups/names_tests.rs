//! Paths as runtimes make them.

use proptest::prelude::*;

use super::*;

/// Container of a case.
const ID: &str = "3f2a9c0d1e4b5a69788796a5b4c3d2e1f00112233445566778899aabbccddeef";
/// Container around it, or of its pod.
const OUTER: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
const UID: &str = "2f9a1c3e-8b7d-4a65-9c1e-0d2b4f6a8c10";
const UID_IN_SLICE: &str = "2f9a1c3e_8b7d_4a65_9c1e_0d2b4f6a8c10";
const STATIC_UID: &str = "8f9c2a7be1d04356a1b2c3d4e5f60718";

fn fill(path: &str) -> String {
    path.replace("$ID", ID)
        .replace("$OUTER", OUTER)
        .replace("$UID_", UID_IN_SLICE)
        .replace("$UID", UID)
        .replace("$STATIC", STATIC_UID)
}

/// Expected container: runtime and pod.
type Expected = Option<(ContainerRuntime, Option<&'static str>)>;

fn check(path: &str, expected: Expected) {
    let path = fill(path);
    let container = CgroupNames::from_path(&path).container;
    let expected = expected.map(|(runtime, pod_uid)| ContainerFacts {
        id: ID.into(),
        runtime,
        pod_uid: pod_uid.map(Arc::from),
    });
    assert_eq!(container, expected, "{path}");
}

#[test]
fn docker_paths_name_container() {
    let docker = Some((ContainerRuntime::Docker, None));
    for path in [
        "/docker/$ID",
        "/moby/$ID",
        "/system.slice/docker-$ID.scope",
        "/user.slice/user-1000.slice/user@1000.service/user.slice/docker-$ID.scope",
        "/system.slice/docker-$ID.scope/init.scope",
        "/system.slice/docker-$ID.scope/system.slice/nginx.service",
        "/../../system.slice/docker-$ID.scope",
        // Docker in Docker
        "/docker/$OUTER/docker/$ID",
        "/system.slice/docker-$OUTER.scope/docker/$ID",
    ] {
        check(path, docker);
    }
    let pod = Some((ContainerRuntime::Docker, Some(UID)));
    check("/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod$UID_.slice/docker-$ID.scope", pod);
    check("/kubepods.slice/kubepods-pod$UID_.slice/docker-$ID.scope", pod);
}

#[test]
fn containerd_paths_name_container_and_pod() {
    let pod = Some((ContainerRuntime::Containerd, Some(UID)));
    for path in [
        "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod$UID_.slice/cri-containerd-$ID.scope",
        "/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod$UID_.slice/cri-containerd-$ID.scope",
        "/kubepods.slice/kubepods-pod$UID_.slice/cri-containerd-$ID.scope",
        "/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod$UID_.slice/cri-containerd-$ID.scope",
        "/system.slice/containerd.service/kubepods-burstable-pod$UID_.slice:cri-containerd:$ID",
        "/kubepods-besteffort-pod$UID_.slice:cri-containerd:$ID",
        // kind: the node is a container
        "/docker/$OUTER/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-burstable.slice/\
         kubelet-kubepods-burstable-pod$UID_.slice/cri-containerd-$ID.scope",
        "/system.slice/docker-$OUTER.scope/kubelet.slice/kubelet-kubepods-pod$UID_.slice/cri-containerd-$ID.scope",
        // seen from another cgroup namespace
        "/../../kubepods-pod$UID_.slice/cri-containerd-$ID.scope",
    ] {
        check(path, pod);
    }
    let plain = Some((ContainerRuntime::Containerd, None));
    check("/system.slice/nerdctl-$ID.scope", plain);
    check("/k8s.io/$ID", plain);
    let static_pod = Some((ContainerRuntime::Containerd, Some(STATIC_UID)));
    check(
        "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod$STATIC.slice/cri-containerd-$ID.scope",
        static_pod,
    );
}

#[test]
fn cgroupfs_paths_name_container_and_pod_without_runtime() {
    let pod = Some((ContainerRuntime::Unknown, Some(UID)));
    for path in [
        "/kubepods/burstable/pod$UID/$ID",
        "/kubepods/besteffort/pod$UID/$ID",
        "/kubepods/pod$UID/$ID",
        "/docker/$OUTER/kubelet/kubepods/burstable/pod$UID/$ID",
        "/kubepods/burstable/pod$UID/$ID/system.slice/a.service",
    ] {
        check(path, pod);
    }
    check("/kubepods/burstable/pod$STATIC/$ID", Some((ContainerRuntime::Unknown, Some(STATIC_UID))));
    // Docker in a pod: the pod is the one around it.
    check("/kubepods/burstable/pod$UID/$OUTER/docker/$ID", Some((ContainerRuntime::Docker, Some(UID))));
}

#[test]
fn crio_and_podman_paths_name_container() {
    let crio = Some((ContainerRuntime::CriO, Some(UID)));
    for path in [
        "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod$UID_.slice/crio-$ID.scope",
        "/kubepods.slice/kubepods-pod$UID_.slice/crio-$ID.scope/container",
        "/kubepods/burstable/pod$UID/crio-$ID",
    ] {
        check(path, crio);
    }
    let podman = Some((ContainerRuntime::Podman, None));
    for path in [
        "/machine.slice/libpod-$ID.scope",
        "/machine.slice/libpod-$ID.scope/container",
        "/machine.slice/machine-libpod_pod_$OUTER.slice/libpod-$ID.scope",
        "/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-$ID.scope/container",
        "/libpod_parent/libpod-$ID",
        "/system.slice/web.service/libpod-payload-$ID",
        // kind on Podman, seen at the node itself
        "/machine.slice/libpod-$OUTER.scope/machine.slice/libpod-$ID.scope",
    ] {
        check(path, podman);
    }
}

#[test]
fn paths_without_container_name_none() {
    for path in [
        "",
        "/",
        "//",
        "/user.slice/user-0.slice/session-1.scope",
        "/system.slice/containerd.service",
        "/kubepods/burstable/pod$UID",
        "/machine.slice/machine-libpod_pod_$ID.slice",
        // Monitors run outside of the container.
        "/machine.slice/libpod-conmon-$ID.scope",
        "/kubepods.slice/kubepods-pod$UID_.slice/crio-conmon-$ID.scope",
        "/docker/3f2a9c0d1e4b",
        "/docker/3F2A9C0D1E4B5A69788796A5B4C3D2E1F00112233445566778899AABBCCDDEEF",
        "/docker/$IDa",
        "/docker-$ID.scope.d",
        "/box/8f9c2a7be1d04356a1b2c3d4e5f60718",
    ] {
        check(path, None);
    }
    let unknown = Some((ContainerRuntime::Unknown, None));
    check("/other-$ID.scope", unknown);
    check("/actions/$ID", unknown);
    check("/pod2f9a1c3e-8b7d-4a65-9c1e-0d2b4f6a8c1/$ID", unknown);
    check("/pod2f9a1c3e08b7d04a6509c1e00d2b4f6a8c10/$ID", unknown);
}

#[test]
fn ecs_task_has_id_with_number() {
    let names = CgroupNames::from_path(&fill("/ecs/$STATIC/$STATIC-2543254"));
    assert_eq!(names.container.unwrap().id.as_ref(), fill("$STATIC-2543254"));
    assert_eq!(CgroupNames::from_path(&fill("/ecs/$STATIC/$STATIC-")).container, None);
    assert_eq!(CgroupNames::from_path(&fill("/x/$STATIC-2543254")).container, None);
}

#[test]
fn units_and_slices_are_last_ones() {
    let cases = [
        ("/system.slice/nginx.service", "nginx.service", "system.slice"),
        ("/system.slice/system-getty.slice/getty@tty1.service", "getty@tty1.service", "system-getty.slice"),
        ("/system.slice/dbus\\x2dbroker.service/worker", "dbus-broker.service", "system.slice"),
        ("/user.slice/user-1000.slice/session-3.scope", "session-3.scope", "user-1000.slice"),
        ("/user.slice/user-1000.slice/user@1000.service/app.slice/app-a.scope", "app-a.scope", "app.slice"),
        ("/user.slice/user-1000.slice/user@1000.service/init.scope", "init.scope", "user-1000.slice"),
        ("/init.scope", "init.scope", ""),
        ("/system.slice", "", "system.slice"),
        ("/system.slice/_memory.service", "memory.service", "system.slice"),
        ("/system.slice/__a.service", "_a.service", "system.slice"),
        ("/system.slice/a\\x.service", "a\\x.service", "system.slice"),
        ("/system.slice/a\\x+1.service", "a\\x+1.service", "system.slice"),
        ("/system.slice/gr\\xc3\\xbc\\xff.service", "grü\u{fffd}.service", "system.slice"),
        ("/.service/.slice/a", "", ""),
        ("/a.service/b.slice", "a.service", ""),
        ("/", "", ""),
    ];
    for (path, unit, slice) in cases {
        let names = CgroupNames::from_path(path);
        assert_eq!((names.systemd_unit.as_str(), names.systemd_slice.as_str()), (unit, slice), "{path}");
    }
}

proptest! {
    /// Any path around a known one: the last container wins, whatever stands above it.
    #[test]
    fn last_container_counts_below_any_path(parts in prop::collection::vec("[^/]{0,20}", 0..20)) {
        let path = format!("/{}/docker/{ID}", parts.join("/"));
        let container = CgroupNames::from_path(&path).container.unwrap();
        prop_assert_eq!(container.id.as_ref(), ID);
        prop_assert_eq!(container.runtime, ContainerRuntime::Docker);
    }

    #[test]
    fn any_text_is_a_path(path in ".{0,300}") {
        let names = CgroupNames::from_path(&path);
        prop_assert!(names.container.is_none_or(|container| path.contains(&*container.id)));
    }
}
