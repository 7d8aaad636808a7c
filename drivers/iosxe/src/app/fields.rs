//! Converts fields of a pod into run options of the container on the device, and refuses fields that the device does
//! not support.
//!
//! Fields that are not checked here are either checked elsewhere in `app`, or have no meaning for a node.

use k8s_openapi::api::core::v1::{
    Container, ContainerPort, PodSecurityContext, PodSpec, SeccompProfile, VolumeMount,
};
use staffetta_driver::DriverError;

use super::image::is_url;
use super::refusal::{invalid, unsupported};
use super::run_options::Options;

/// The mount path of service account tokens, which Kubernetes adds to every container by default. The device cannot
/// provide them, but a pod is not refused for this mount.
const SERVICE_ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// The reason for refusing a field that cannot be set on the device.
const NOT_SETTABLE: &str = "the field cannot be set on the device";

/// Refuses a pod without containers, or with a pod-level field that the device does not support. The refusal names the first such field.
pub(super) fn check_pod(spec: &PodSpec) -> Result<(), DriverError> {
    if spec.containers.is_empty() {
        return Err(invalid("spec.containers", "at least one container is required"));
    }
    // A package on the device needs no account, and service accounts put such secrets into every pod of theirs.
    let fetched = spec.containers.iter().filter_map(|container| container.image.as_deref()).any(is_url);
    let dns = spec.dns_config.as_ref();
    let apart = "each container is an application of its own on the device";
    let servers = "the device takes only name servers";
    let order = "the device cannot start applications in order";
    let account = "the device fetches an image from its URL without an account";
    let runtime = "the device has one way to run containers";
    let endless = "the device does not limit the running time of applications";
    let domain = "the device takes a host name without a domain";
    let hosts = "the device writes the container's hosts file itself";
    refuse_set(
        "spec",
        &[
            ("initContainers", is_filled(spec.init_containers.as_ref()), order),
            ("imagePullSecrets", fetched && is_filled(spec.image_pull_secrets.as_ref()), account),
            ("hostNetwork", spec.host_network == Some(true), apart),
            ("hostPID", spec.host_pid == Some(true), apart),
            ("hostIPC", spec.host_ipc == Some(true), apart),
            ("shareProcessNamespace", spec.share_process_namespace == Some(true), apart),
            ("runtimeClassName", spec.runtime_class_name.is_some(), runtime),
            ("hostUsers", spec.host_users == Some(false), "user namespaces are not supported"),
            ("os", spec.os.as_ref().is_some_and(|os| os.name != "linux"), "the device runs Linux containers"),
            ("resources", spec.resources.is_some(), "each container has resources of its own on the device"),
            ("activeDeadlineSeconds", spec.active_deadline_seconds.is_some(), endless),
            ("setHostnameAsFQDN", spec.set_hostname_as_fqdn == Some(true), domain),
            ("hostAliases", is_filled(spec.host_aliases.as_ref()), hosts),
            ("dnsConfig.searches", is_filled(dns.and_then(|dns| dns.searches.as_ref())), servers),
            ("dnsConfig.options", is_filled(dns.and_then(|dns| dns.options.as_ref())), servers),
        ],
    )?;
    spec.security_context.as_ref().map_or(Ok(()), check_pod_security)
}

/// Refuses a security context of a pod that the device does not support.
fn check_pod_security(context: &PodSecurityContext) -> Result<(), DriverError> {
    refuse_set(
        "spec.securityContext",
        &[
            ("fsGroup", context.fs_group.is_some(), NOT_SETTABLE),
            ("supplementalGroups", is_filled(context.supplemental_groups.as_ref()), NOT_SETTABLE),
            ("sysctls", is_filled(context.sysctls.as_ref()), NOT_SETTABLE),
            ("seLinuxOptions", context.se_linux_options.is_some(), NOT_SETTABLE),
            ("appArmorProfile", context.app_armor_profile.is_some(), NOT_SETTABLE),
            ("seccompProfile", !is_default(context.seccomp_profile.as_ref()), NOT_SETTABLE),
        ],
    )
}

/// Adds the run options for the fields of a container to `options`. Refuses a container with a field that the device
/// does not support; `path` is the path of the container in the pod.
pub(super) fn container_options(
    path: &str,
    spec: &PodSpec,
    container: &Container,
    options: &mut Options,
) -> Result<(), DriverError> {
    check_container(path, container)?;
    let mut add = |field: &str, option: &str, value: &str| {
        options.packed(option, value).map_err(|why| unsupported(format!("{path}.{field}"), why))
    };
    if let [entrypoint] = container.command.as_deref().unwrap_or_default() {
        add("command", "--entrypoint", entrypoint)?;
    }
    if let Some(directory) = container.working_dir.as_deref().filter(|directory| !directory.is_empty()) {
        add("workingDir", "--workdir", directory)?;
    }
    if let Some(hostname) = &spec.hostname {
        add("hostname", "--hostname", hostname)?;
    }
    let of_pod = spec.security_context.clone().unwrap_or_default();
    let context = container.security_context.clone().unwrap_or_default();
    let user = context.run_as_user.or(of_pod.run_as_user);
    let group = context.run_as_group.or(of_pod.run_as_group);
    let non_root = context.run_as_non_root.or(of_pod.run_as_non_root);
    if non_root == Some(true) && user.is_none_or(|user| user == 0) {
        let why = "the image's user is unknown: set a `runAsUser` other than 0";
        return Err(unsupported(format!("{path}.securityContext.runAsNonRoot"), why));
    }
    match (user, group) {
        (Some(user), Some(group)) => add("securityContext", "--user", &format!("{user}:{group}"))?,
        (Some(user), None) => add("securityContext", "--user", &user.to_string())?,
        (None, Some(_)) => {
            let why = "the device takes a group only together with `runAsUser`";
            return Err(unsupported(format!("{path}.securityContext.runAsGroup"), why));
        }
        (None, None) => {}
    }
    if context.read_only_root_filesystem == Some(true) {
        add("securityContext", "--read-only", "")?;
    }
    if context.allow_privilege_escalation == Some(false) {
        add("securityContext", "--security-opt", "no-new-privileges")?;
    }
    let capabilities = context.capabilities.as_ref();
    for (option, names) in [
        ("--cap-add", capabilities.and_then(|capabilities| capabilities.add.as_ref())),
        ("--cap-drop", capabilities.and_then(|capabilities| capabilities.drop.as_ref())),
    ] {
        for name in names.into_iter().flatten() {
            add("securityContext.capabilities", option, name)?;
        }
    }
    Ok(())
}

/// Refuses a container with a field that the device does not support. The refusal names the first such field.
fn check_container(path: &str, container: &Container) -> Result<(), DriverError> {
    let hook = "probes and hooks are not supported: the device monitors its applications itself";
    let attached = "attaching is not supported";
    let port = |port: &ContainerPort| port.host_port.is_some_and(|port| port != 0);
    let port = container.ports.iter().flatten().position(port);
    let mount = |mount: &VolumeMount| mount.mount_path.trim_end_matches('/') != SERVICE_ACCOUNT;
    let mount = container.volume_mounts.iter().flatten().position(mount);
    let (host_port, volume_mount) =
        (format!("ports[{}].hostPort", port.unwrap_or(0)), format!("volumeMounts[{}]", mount.unwrap_or(0)));
    let volumes = "the device has no volumes";
    let command = container.command.as_ref().is_some_and(|command| command.len() > 1);
    refuse_set(
        path,
        &[
            ("args", is_filled(container.args.as_ref()), "arguments are not supported"),
            ("command", command, "only a single word is supported"),
            ("livenessProbe", container.liveness_probe.is_some(), hook),
            ("readinessProbe", container.readiness_probe.is_some(), hook),
            ("startupProbe", container.startup_probe.is_some(), hook),
            ("lifecycle", container.lifecycle.is_some(), hook),
            (&host_port, port.is_some(), "the device forwards no ports"),
            (&volume_mount, mount.is_some(), volumes),
            ("volumeDevices", is_filled(container.volume_devices.as_ref()), volumes),
            ("stdin", container.stdin == Some(true), attached),
            ("tty", container.tty == Some(true), attached),
        ],
    )?;
    let Some(context) = &container.security_context else { return Ok(()) };
    refuse_set(
        &format!("{path}.securityContext"),
        &[
            ("privileged", context.privileged == Some(true), NOT_SETTABLE),
            ("procMount", context.proc_mount.as_ref().is_some_and(|mount| mount != "Default"), NOT_SETTABLE),
            ("seLinuxOptions", context.se_linux_options.is_some(), NOT_SETTABLE),
            ("appArmorProfile", context.app_armor_profile.is_some(), NOT_SETTABLE),
            ("seccompProfile", !is_default(context.seccomp_profile.as_ref()), NOT_SETTABLE),
            ("windowsOptions", context.windows_options.is_some(), NOT_SETTABLE),
        ],
    )
}

/// Refuses the first of `fields` whose `bool` is `true`, which means that the pod uses it in a way that the device does not support. The
/// texts are the field's name below `path`, and the reason of the refusal.
fn refuse_set(path: &str, fields: &[(&str, bool, &str)]) -> Result<(), DriverError> {
    let set = fields.iter().find(|(_, set, _)| *set);
    set.map_or(Ok(()), |(field, _, why)| Err(unsupported(format!("{path}.{field}"), *why)))
}

/// Returns `true` if the list is present and not empty.
fn is_filled<T>(list: Option<&Vec<T>>) -> bool {
    list.is_some_and(|list| !list.is_empty())
}

/// Returns `true` if the seccomp profile is missing or `RuntimeDefault`, the one that the device always applies.
fn is_default(profile: Option<&SeccompProfile>) -> bool {
    profile.is_none_or(|profile| profile.type_ == "RuntimeDefault")
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn options(spec: Value) -> Result<Vec<String>, String> {
        let spec: PodSpec = serde_json::from_value(spec).unwrap();
        let mut options = Options::default();
        let reported = |refusal: DriverError| refusal.to_string();
        check_pod(&spec).map_err(reported)?;
        container_options("spec.containers[0]", &spec, &spec.containers[0], &mut options)
            .map_err(reported)?;
        Ok(options.finish().run_opts.into_iter().map(|line| line.line_run_opts).collect())
    }

    fn container(field: &str, value: Value) -> Value {
        let mut container = json!({ "name": "app" });
        container[field] = value;
        json!({ "containers": [container] })
    }

    #[test]
    fn what_a_container_can_be_given_becomes_options() {
        let spec = json!({
            "imagePullSecrets": [{ "name": "of-the-service-account" }],
            "hostUsers": true, "os": { "name": "linux" },
            "hostname": "web", "securityContext": { "runAsNonRoot": true, "runAsGroup": 7 },
            "containers": [{
                "name": "app", "image": "flash:/a.tar", "command": ["/bin/server"], "workingDir": "/srv",
                "ports": [{ "containerPort": 80 }],
                "volumeMounts": [{ "name": "t", "mountPath": SERVICE_ACCOUNT }],
                "securityContext": {
                    "runAsUser": 1000, "readOnlyRootFilesystem": true, "allowPrivilegeEscalation": false,
                    "privileged": false, "seccompProfile": { "type": "RuntimeDefault" },
                    "capabilities": { "add": ["NET_ADMIN"], "drop": ["ALL"] },
                },
            }],
        });
        let expected = "--entrypoint /bin/server --workdir /srv --hostname web --user 1000:7 --read-only \
                        --security-opt no-new-privileges --cap-add NET_ADMIN --cap-drop ALL";
        assert_eq!(options(spec), Ok(vec![expected.to_owned()]));
    }

    #[test]
    fn what_a_device_cannot_do_is_refused_by_path() {
        let probe = json!({ "exec": { "command": ["true"] } });
        let mount = json!([{ "name": "data", "mountPath": "/data" }]);
        let of_pod = |field: &str, value: Value| {
            let mut spec = json!({ "containers": [{ "name": "app" }] });
            spec[field] = value;
            spec
        };
        for (spec, path) in [
            (json!({ "containers": [] }), "spec.containers: "),
            (of_pod("initContainers", json!([{ "name": "init" }])), "spec.initContainers: "),
            (
                json!({ "imagePullSecrets": [{ "name": "hub" }],
                    "containers": [{ "name": "app", "image": "https://hub.example/a.tar" }] }),
                "spec.imagePullSecrets: ",
            ),
            (of_pod("hostNetwork", json!(true)), "spec.hostNetwork: "),
            (of_pod("shareProcessNamespace", json!(true)), "spec.shareProcessNamespace: "),
            (of_pod("runtimeClassName", json!("gvisor")), "spec.runtimeClassName: "),
            (of_pod("hostUsers", json!(false)), "spec.hostUsers: "),
            (of_pod("os", json!({ "name": "windows" })), "spec.os: "),
            (of_pod("resources", json!({ "limits": { "cpu": "1" } })), "spec.resources: "),
            (of_pod("activeDeadlineSeconds", json!(60)), "spec.activeDeadlineSeconds: "),
            (of_pod("setHostnameAsFQDN", json!(true)), "spec.setHostnameAsFQDN: "),
            (of_pod("hostAliases", json!([{ "ip": "192.0.2.1" }])), "spec.hostAliases: "),
            (of_pod("dnsConfig", json!({ "searches": ["a"] })), "spec.dnsConfig.searches: "),
            (of_pod("securityContext", json!({ "fsGroup": 1 })), "spec.securityContext.fsGroup: "),
            (
                of_pod("securityContext", json!({ "runAsNonRoot": true })),
                "spec.containers[0].securityContext.runAsNonRoot: ",
            ),
            (container("args", json!(["-v"])), "spec.containers[0].args: "),
            (container("command", json!(["a", "b"])), "spec.containers[0].command: "),
            (container("command", json!(["a b"])), "spec.containers[0].command: "),
            (container("livenessProbe", probe.clone()), "spec.containers[0].livenessProbe: "),
            (container("readinessProbe", probe.clone()), "spec.containers[0].readinessProbe: "),
            (container("startupProbe", probe), "spec.containers[0].startupProbe: "),
            (container("lifecycle", json!({})), "spec.containers[0].lifecycle: "),
            (
                container("ports", json!([{ "containerPort": 80, "hostPort": 80 }])),
                "spec.containers[0].ports[0].hostPort: ",
            ),
            (container("volumeMounts", mount), "spec.containers[0].volumeMounts[0]: "),
            (container("stdin", json!(true)), "spec.containers[0].stdin: "),
            (
                container("securityContext", json!({ "privileged": true })),
                "spec.containers[0].securityContext.privileged: ",
            ),
            (
                container("securityContext", json!({ "seccompProfile": { "type": "Localhost" } })),
                "spec.containers[0].securityContext.seccompProfile: ",
            ),
        ] {
            let error = options(spec).unwrap_err();
            assert!(error.contains(path), "{path} in {error}");
        }
    }
}
