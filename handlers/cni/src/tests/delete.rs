//! `DEL`, `CHECK`, `GC`, and what a reboot leaves.

use std::sync::mpsc::channel;

use staffetta_cni::message::{CniRequest, ValidAttachment, ValidAttachments};
use staffetta_network::os_vif::PodState;

use super::world::{Kernel, code, daemon, pod, request, vif};
use crate::records::Records;

#[tokio::test(start_paused = true)]
async fn a_late_del_of_an_earlier_sandbox_changes_nothing() {
    let (kernel, folder) = (Kernel::new(), tempfile::tempdir().unwrap());
    let daemon = daemon(&kernel, folder.path());
    daemon.pods.put(&pod("web", "u1", &PodState::new(vif(1))));
    daemon.add(&request("web", "u1", "c1")).await.unwrap();
    daemon.add(&request("web", "u1", "c2")).await.unwrap();
    assert_eq!(kernel.owners(), ["c2/eth0"]);
    daemon.delete(&request("web", "u1", "c1")).await.unwrap();
    assert_eq!(kernel.owners(), ["c2/eth0"]);
    daemon.check(&request("web", "u1", "c2")).await.unwrap();
    assert_eq!(code(daemon.check(&request("web", "u1", "c1")).await), 3);
}

#[tokio::test(start_paused = true)]
async fn a_daemon_that_has_just_started_unbinds_pods_that_it_does_not_know() {
    let (kernel, folder) = (Kernel::new(), tempfile::tempdir().unwrap());
    let first = daemon(&kernel, folder.path());
    first.pods.put(&pod("web", "u1", &PodState::new(vif(1))));
    first.add(&request("web", "u1", "c1")).await.unwrap();
    let second = daemon(&kernel, folder.path());
    second.delete(&request("web", "u1", "c1")).await.unwrap();
    second.delete(&request("web", "u1", "c1")).await.unwrap();
    assert!(kernel.ports().is_empty());
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_thousand_dels_at_once_succeed_also_before_any_add() {
    let (kernel, folder) = (Kernel::new(), tempfile::tempdir().unwrap());
    let daemon = daemon(&kernel, folder.path());
    daemon.pods.put(&pod("web", "u1", &PodState::new(vif(1))));
    daemon.add(&request("web", "u1", "c1")).await.unwrap();
    let mut dels = tokio::task::JoinSet::new();
    for number in 0..1000 {
        let daemon = std::sync::Arc::clone(&daemon);
        let request = if number % 2 == 0 { request("web", "u1", "c1") } else { request("none", "u2", "c2") };
        dels.spawn(async move { daemon.delete(&request).await });
    }
    assert!(dels.join_all().await.into_iter().all(|result| result.is_ok()));
    assert!(kernel.ports().is_empty());
}

#[tokio::test(start_paused = true)]
async fn what_a_reboot_left_is_unbound_at_the_start() {
    let (kernel, folder) = (Kernel::new(), tempfile::tempdir().unwrap());
    let first = daemon(&kernel, folder.path());
    first.pods.put(&pod("web", "u1", &PodState::new(vif(1))));
    first.add(&request("web", "u1", "c1")).await.unwrap();
    let path = folder.path().join("u1.json");
    let record = std::fs::read_to_string(&path).unwrap();
    daemon(&kernel, folder.path()).release_earlier_boot().await;
    assert_eq!(kernel.ports().len(), 1, "it is of this boot");

    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    std::fs::write(&path, record.replace(boot.trim(), "earlier")).unwrap();
    let others = ["10-other.conflist", "cut.json"];
    for file in others.into_iter().chain([".u2.json.1.tmp"]) {
        std::fs::write(folder.path().join(file), "{\"uid").unwrap();
    }
    daemon(&kernel, folder.path()).release_earlier_boot().await;
    assert!(kernel.ports().is_empty());
    let files = std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name());
    let mut left: Vec<_> = files.collect();
    left.sort();
    assert_eq!(left, others, "only temporary files are removed besides");
}

#[tokio::test]
async fn pods_that_are_bound_again_while_what_a_reboot_left_is_unbound_stay_bound() {
    let (kernel, folder) = (Kernel::new(), tempfile::tempdir().unwrap());
    let first = daemon(&kernel, folder.path());
    for (uid, number) in [("u1", 1), ("u2", 2)] {
        first.pods.put(&pod(uid, uid, &PodState::new(vif(number))));
        first.add(&request(uid, uid, &format!("before-{uid}"))).await.unwrap();
        let path = folder.path().join(format!("{uid}.json"));
        let record = std::fs::read_to_string(&path).unwrap();
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
        std::fs::write(&path, record.replace(boot.trim(), "earlier")).unwrap();
    }
    kernel.plugged.lock().clear();
    let second = daemon(&kernel, folder.path());
    let (release, gate) = channel();
    *kernel.gate.lock() = Some(gate);
    let add = async |uid: &str, number| {
        second.pods.put(&pod(uid, uid, &PodState::new(vif(number))));
        second.add(&request(uid, uid, uid)).await.unwrap();
    };
    let go_on = async {
        // The kubelet has bound a pod again while the leftovers of the other, or of this one, are being removed.
        while kernel.ports().is_empty() {
            tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        }
        release.send(()).unwrap();
    };
    tokio::join!(second.release_earlier_boot(), add("u1", 1), add("u2", 2), go_on);
    assert_eq!(kernel.ports(), ["port-001-0000", "port-002-0000"]);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 2);
}

#[tokio::test(start_paused = true)]
async fn gc_unbinds_the_pods_whose_sandbox_is_not_listed() {
    let (kernel, folder) = (Kernel::new(), tempfile::tempdir().unwrap());
    let daemon = daemon(&kernel, folder.path());
    for (uid, number) in [("u1", 1), ("u2", 2)] {
        daemon.pods.put(&pod(uid, uid, &PodState::new(vif(number))));
        daemon.add(&request(uid, uid, uid)).await.unwrap();
    }
    let valid = vec![ValidAttachment { container_id: "u2".to_owned(), ifname: "eth0".to_owned() }];
    daemon.collect(&ValidAttachments { valid }).await.unwrap();
    assert_eq!(kernel.ports(), ["port-002-0000"]);
}

#[tokio::test(start_paused = true)]
async fn gc_unbinds_what_it_can_when_one_interface_cannot_be_removed() {
    let (kernel, folder) = (Kernel::new(), tempfile::tempdir().unwrap());
    let daemon = daemon(&kernel, folder.path());
    for number in [1, 3] {
        let (uid, mut state) = (format!("u{number}"), PodState::new(vif(number)));
        state.additional_vifs.insert("eth1".to_owned(), vif(number + 1));
        daemon.pods.put(&pod(&uid, &uid, &state));
        daemon.add(&request(&uid, &uid, &uid)).await.unwrap();
    }
    *kernel.stuck.lock() = Some("port-001-0000".to_owned());
    daemon.collect(&ValidAttachments { valid: Vec::new() }).await.unwrap_err();
    assert_eq!(kernel.ports(), ["port-001-0000"]);
    *kernel.stuck.lock() = Some("port-003-0000".to_owned());
    daemon.collect(&ValidAttachments { valid: Vec::new() }).await.unwrap();
    assert!(kernel.ports().is_empty());
}

#[tokio::test(start_paused = true)]
async fn bad_arguments_are_refused_with_their_name() {
    let (kernel, folder) = (Kernel::new(), tempfile::tempdir().unwrap());
    let daemon = daemon(&kernel, folder.path());
    for (container, args) in [
        ("../c", "K8S_POD_NAMESPACE=d;K8S_POD_NAME=w"),
        ("", "K8S_POD_NAMESPACE=d;K8S_POD_NAME=w"),
        ("c", "K8S_POD_NAMESPACE=d"),
        ("c", "K8S_POD_NAMESPACE=d;K8S_POD_NAME=w;K8S_POD_UID=../../x"),
    ] {
        let mut request = request("w", "u", container);
        request.cni_args = args.to_owned();
        assert_eq!(code(daemon.add(&request).await), 4, "{container} {args}");
        assert_eq!(code(daemon.delete(&request).await), 4, "{container} {args}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_interface_is_part_of_the_identity_of_what_is_bound() {
    let (kernel, folder) = (Kernel::new(), tempfile::tempdir().unwrap());
    let daemon = daemon(&kernel, folder.path());
    daemon.pods.put(&pod("web", "u1", &PodState::new(vif(1))));
    let first = request("web", "u1", "c1");
    let second = CniRequest { cni_ifname: "net1".to_owned(), ..first.clone() };
    daemon.add(&first).await.unwrap();
    let refused = daemon.add(&second).await.unwrap_err();
    assert_eq!((refused.code, &*refused.details), (999, "c1/eth0"), "{refused:?}");
    assert_eq!(code(daemon.check(&second).await), 3);
    daemon.delete(&second).await.unwrap();
    daemon.check(&first).await.unwrap();
    let valid = |ifname: &str| ValidAttachments {
        valid: vec![ValidAttachment { container_id: "c1".to_owned(), ifname: ifname.to_owned() }],
    };
    daemon.collect(&valid("eth0")).await.unwrap();
    assert_eq!(kernel.owners(), ["c1/eth0"]);
    daemon.collect(&valid("net1")).await.unwrap();
    assert!(kernel.owners().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_del_succeeds_although_the_record_cannot_be_removed_or_read() {
    let (kernel, folder) = (Kernel::new(), tempfile::tempdir().unwrap());
    let first = daemon(&kernel, folder.path());
    first.pods.put(&pod("web", "u1", &PodState::new(vif(1))));
    first.add(&request("web", "u1", "c1")).await.unwrap();
    // Not even root removes a folder by the call for files.
    let path = folder.path().join("u1.json");
    std::fs::remove_file(&path).unwrap();
    std::fs::create_dir(&path).unwrap();
    first.delete(&request("web", "u1", "c1")).await.unwrap();
    assert!(kernel.ports().is_empty());
    first.delete(&request("web", "u1", "c1")).await.unwrap();
    std::fs::remove_dir(&path).unwrap();

    std::fs::write(&path, "{\"uid").unwrap();
    let second = daemon(&kernel, folder.path());
    second.delete(&request("web", "u1", "c1")).await.unwrap();
    assert!(!path.exists());
}

#[tokio::test(start_paused = true)]
async fn a_namespace_elsewhere_is_never_opened() {
    let (kernel, folder) = (Kernel::new(), tempfile::tempdir().unwrap());
    let daemon = daemon(&kernel, folder.path());
    daemon.pods.put(&pod("web", "u1", &PodState::new(vif(1))));
    let with_netns = |netns: &str| CniRequest { cni_netns: netns.to_owned(), ..request("web", "u1", "c1") };
    for netns in [
        "",
        "/",
        "/tmp/x",
        "/run/netns",
        "/run/netns/",
        "/run/netns/..",
        "/run/netns/a/b",
        "run/netns/a",
        "/proc/1/root/x",
        "/proc/self/root/run/netns/a",
        "/proc/1/ns/net/x",
        "/proc//ns/net",
        "/proc/1/task/x/ns/net",
        "/var/run/netns/../x",
    ] {
        let error = daemon.add(&with_netns(netns)).await.unwrap_err();
        assert_eq!(error.code, 4, "{netns}");
        daemon.delete(&with_netns(netns)).await.unwrap();
    }
    assert!(kernel.ports().is_empty());
    for netns in [
        "/run/netns/cni-1",
        "/var/run/netns/cni-1",
        "/run/containerd/io.containerd.grpc.v1.cri/netns/cni-1",
        "/proc/17/ns/net",
        "/proc/17/task/18/ns/net",
    ] {
        daemon.add(&with_netns(netns)).await.unwrap();
        // A DEL finds what is recorded, whatever namespace it names.
        daemon.delete(&with_netns("/tmp/x")).await.unwrap();
        assert!(kernel.ports().is_empty(), "{netns}");
    }
}

#[test]
fn two_daemons_never_use_one_folder() {
    let folder = tempfile::tempdir().unwrap();
    let first = Records::open(folder.path()).unwrap();
    let error = Records::open(folder.path()).err().unwrap();
    assert_eq!(std::error::Error::source(&error).unwrap().to_string(), "another daemon uses it");
    drop(first);
    Records::open(folder.path()).unwrap();
}

#[tokio::test(start_paused = true)]
async fn the_del_of_a_pod_that_was_refused_leaves_the_pod_that_has_the_port() {
    let (kernel, folder) = (Kernel::new(), tempfile::tempdir().unwrap());
    let daemon = daemon(&kernel, folder.path());
    daemon.pods.put(&pod("victim", "u1", &PodState::new(vif(1))));
    daemon.add(&request("victim", "u1", "c1")).await.unwrap();
    daemon.pods.put(&pod("forger", "u2", &PodState::new(vif(1))));
    assert_eq!(code(daemon.add(&request("forger", "u2", "c2")).await), 999);
    daemon.delete(&request("forger", "u2", "c2")).await.unwrap();
    daemon.check(&request("victim", "u1", "c1")).await.unwrap();
}
