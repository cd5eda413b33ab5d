//! What is refused for want of room is refused in words, with 429 and a time after which it may be sent again; and it is taken
//! when there is room.

use std::num::NonZeroUsize;
use std::sync::{Arc, mpsc};

use athanor_chassis::disk::MemoryDisk;
use athanor_chassis::{ByteSize, ComputePool, Disk, compute, observability::process};
use athanor_integration::server::{HttpResponse, RESPONSE_DEADLINE, TestServer, send_request};
use athanor_server::{read_admin_resource, send_admin_request};
use serde_json::Value;

const PUSH: &str = "POST /ingest?name=shop.cpu";

fn is_refusal(answer: &HttpResponse, words: &[&str]) {
    assert_eq!(answer.status, 429, "{}", answer.text());
    let seconds: u64 = answer.header("retry-after").parse().expect("it says when to come again");
    assert!((1..=60).contains(&seconds), "{seconds}");
    let said = answer.text();
    assert!(words.iter().all(|word| said.contains(word)), "{said}");
}

/// Of two requests at once one is let in, however large; the other hears that there are too many bytes under way.
#[test]
fn requests_under_way_have_a_bound() {
    let compute = ComputePool::with_threads(NonZeroUsize::MIN, 100).unwrap();
    let server = TestServer::start_on(
        |config| config.distributor.max_inflight_bytes = ByteSize::bytes(1),
        |system| system.compute = compute.clone(),
    );
    assert_eq!(server.post("/ingest?name=shop.cpu", &[], b"main;f 3\n").status, 200);
    // Whoever was let in waits for the only thread.
    let ((release, held), (begin, begun)) = (mpsc::channel::<()>(), mpsc::channel());
    let hold = move || begin.send(()).is_ok() && held.recv().is_err();
    let holding = server.runtime.spawn(async move { compute.run(hold).await });
    begun.recv_timeout(RESPONSE_DEADLINE).unwrap();
    let (answered, answers) = mpsc::channel();
    for body in [b"main;g 4\n", b"main;h 5\n"] {
        let (answered, address) = (answered.clone(), server.address);
        // Nobody listens any more where the test has failed.
        let sends = move || drop(answered.send(send_request(address, PUSH, &[], body)));
        compute::spawn_dedicated_thread("sends", sends).unwrap();
    }
    is_refusal(
        &answers.recv_timeout(RESPONSE_DEADLINE).unwrap(),
        &["bytes", "(distributor.max_inflight_bytes)", "retry"],
    );
    drop(release);
    assert_eq!(answers.recv_timeout(RESPONSE_DEADLINE).unwrap().status, 200);
    assert!(server.runtime.block_on(holding).unwrap().unwrap());
}

#[test]
fn a_full_disk_is_told() {
    const LARGE: u64 = 1 << 50;
    let disk = MemoryDisk::new();
    let server = TestServer::start_on(
        |config| {
            config.wal.min_free_bytes = ByteSize::mib(8);
            config.wal.segment_bytes = ByteSize::mib(1);
        },
        |system| system.log = Arc::new(disk.clone()),
    );
    let push = |body: &[u8]| send_request(server.address, PUSH, &[], body);
    assert_eq!(push(b"main;f 3\n").status, 200);
    disk.set_capacity(Some(LARGE));
    let used = LARGE - disk.free_bytes().unwrap();
    disk.set_capacity(Some(used + (4 << 20)));
    is_refusal(&push(b"main;g 4\n"), &["free", "8MiB", "(wal.min_free_bytes)"]);
    // It is well otherwise, and asked for what it has.
    assert_eq!(server.get("/ready", &[]).status, 200);
    disk.set_capacity(None);
    assert_eq!(push(b"main;g 4\n").status, 200);
}

#[test]
fn new_tenant_beyond_limit_is_refused() {
    let server = TestServer::start(|config| {
        config.multitenancy_enabled = true;
        config.limits.max_tenants = 2;
    });
    let push = |tenant| server.post("/ingest?name=shop.cpu", &[("x-scope-orgid", tenant)], b"main;f 3\n");
    assert_eq!((push("a").status, push("b").status), (200, 200));
    is_refusal(&push("c"), &["tenant c is new", "limits.max_tenants is 2", "raise the limit"]);
    assert_eq!((push("a").status, push("b").status), (200, 200));
}

#[test]
fn what_is_in_no_block_has_a_bound() {
    let server = TestServer::start(|config| config.ingester.max_unflushed_bytes = ByteSize::kib(1));
    // A name that fills it alone.
    let long = format!("main;{} 3\n", "f".repeat(2000));
    assert_eq!(server.post("/ingest?name=shop.cpu", &[], long.as_bytes()).status, 200);
    let refused = server.post("/ingest?name=shop.cpu", &[], b"main;g 4\n");
    is_refusal(&refused, &["unflushed profiles", "1KiB", "(ingester.max_unflushed_bytes)", "retry later"]);
    let ingester = server.node.roles().ingester.clone().unwrap();
    let cut = server
        .runtime
        .block_on(async { ingester.flush_all(&athanor_chassis::Clock::system(), RESPONSE_DEADLINE).await });
    assert!(cut.unwrap().blocks > 0);
    assert_eq!(server.post("/ingest?name=shop.cpu", &[], b"main;g 4\n").status, 200);
}

const JSON: (&str, &str) = ("content-type", "application/json");
const SHOULD_UPLOAD: &str = "/debuginfo.v1alpha1.DebuginfoService/ShouldInitiateUpload";
const UPLOAD: &str = "/adhocprofiles.v1.AdHocProfileService/Upload";
const FILE: &[u8] = br#"{"file":{"gnuBuildId":"0123abcd","name":"app"}}"#;
/// `main 3`, in base64.
const PROFILE: &[u8] = br#"{"name":"mine","profile":"bWFpbiAzCg=="}"#;

#[test]
fn uploads_are_refused_before_profiles() {
    let (disk, folder) = (MemoryDisk::new(), tempfile::tempdir().unwrap());
    disk.set_capacity(Some(1 << 50));
    let free = process::free_bytes(folder.path()).unwrap();
    let server = TestServer::start_on(
        |config| config.wal.min_free_bytes = ByteSize::bytes(free / 4 * 3),
        |system| system.log = Arc::new(disk.clone()),
    );
    for (path, body) in [(SHOULD_UPLOAD, FILE), (UPLOAD, PROFILE)] {
        let refused = server.post(path, &[JSON], body);
        assert_eq!(refused.status, 429, "{path}: {}", refused.text());
        assert!(refused.text().contains("twice wal.min_free_bytes"), "{path}: {}", refused.text());
    }
    assert_eq!(send_request(server.address, PUSH, &[], b"main;g 4\n").status, 200);
}

#[test]
fn administrators_list_and_delete_what_tenants_keep() {
    let server = TestServer::start(|config| config.multitenancy_enabled = true);
    let list = |path: &str| -> Value {
        let listed = server.runtime.block_on(read_admin_resource(server.folder.path(), path)).unwrap();
        serde_json::from_str(&listed).unwrap()
    };
    let delete = |path: &str| -> Value {
        let deleted = server.runtime.block_on(send_admin_request(server.folder.path(), path)).unwrap();
        serde_json::from_str::<Value>(&deleted).unwrap()["deleted"].clone()
    };
    for tenant in ["a", "b"] {
        let post = |path: &str, body: &[u8]| {
            let answer = server.post(path, &[JSON, ("x-scope-orgid", tenant)], body);
            assert_eq!(answer.status, 200, "{path}: {}", answer.text());
        };
        post(SHOULD_UPLOAD, FILE);
        post("/debuginfo.v1alpha1.DebuginfoService/Upload/0123abcd", b"\x7fELF and more");
        post(UPLOAD, PROFILE);
        post("/settings.v1.SettingsService/Set", br#"{"setting":{"name":"maxNodes","value":"100"}}"#);
    }
    let count = |path: &str, name: &str| list(path)[name].as_array().unwrap().len();
    assert_eq!((count("/uploads", "uploads"), count("/settings", "settings")), (4, 2));
    let of_a = list("/uploads?tenant=a");
    let named = |field: &str| {
        let rows = of_a["uploads"].as_array().unwrap().iter();
        rows.filter_map(|row| row[field].as_str()).map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!((named("build_id"), named("name")), (vec!["0123abcd".to_owned()], vec!["mine".to_owned()]));
    assert_eq!(list("/settings?tenant=a")["settings"][0]["name"], "setting/maxNodes");
    assert_eq!(delete("/settings/delete?tenant=a&name=setting/other"), 0);
    assert_eq!(delete("/settings/delete?tenant=a&name=setting/maxNodes"), 1);
    assert_eq!(delete("/uploads/delete?tenant=a&build_id=0123abcd"), 1);
    assert_eq!(delete("/uploads/delete?tenant=a&all=true"), 1);
    assert_eq!((count("/uploads", "uploads"), count("/settings", "settings")), (2, 1), "those of b");
    for wrong in
        ["/uploads/delete?all=true", "/uploads/delete?tenant=a", "/settings/delete?tenant=a%2Fb&all=true"]
    {
        let refused = server.runtime.block_on(send_admin_request(server.folder.path(), wrong)).unwrap_err();
        assert!(refused.message.contains("the server rejected the request"), "{wrong}: {refused}");
    }
}
