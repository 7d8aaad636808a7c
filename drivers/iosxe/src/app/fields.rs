//! The fields of a pod that become options of the container on the device, and those that cannot be.
//!
//! A field that is not looked at here either is read elsewhere in `app`, or says nothing to a node.

use k8s_openapi::api::core::v1::{Container, PodSecurityContext, PodSpec, SeccompProfile, SecurityContext};

use super::image::is_url;
use super::refusal::Refusal;
use super::run_options::{Options, Unfit};

/// Where Kubernetes mounts a token into every container by itself. No device has one, and no pod is refused for it.
const SERVICE_ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// Refuses what concerns the whole pod and cannot be.
pub(super) fn check_pod(spec: &PodSpec) -> Result<(), Refusal> {
    let unsupported = |path: &str, why: &str| Err(Refusal::unsupported(format!("spec.{path}"), why));
    if spec.containers.is_empty() {
        return Err(Refusal::invalid("spec.containers", "there is none"));
    }
    if spec.init_containers.as_ref().is_some_and(|containers| !containers.is_empty()) {
        return unsupported("initContainers", "the device starts its applications without an order");
    }
    // What is on the device already needs no account, and service accounts put such secrets into every pod of theirs.
    let fetched = spec.containers.iter().filter_map(|container| container.image.as_deref()).any(is_url);
    if fetched && spec.image_pull_secrets.as_ref().is_some_and(|secrets| !secrets.is_empty()) {
        return unsupported(
            "imagePullSecrets",
            "the device fetches an image from its URL without an account",
        );
    }
    for (path, wanted) in [
        ("hostNetwork", spec.host_network),
        ("hostPID", spec.host_pid),
        ("hostIPC", spec.host_ipc),
        ("shareProcessNamespace", spec.share_process_namespace),
    ] {
        if wanted == Some(true) {
            return unsupported(path, "each container is an application of its own on the device");
        }
    }
    if spec.runtime_class_name.is_some() {
        return unsupported("runtimeClassName", "the device has one way to run containers");
    }
    if spec.host_users == Some(false) {
        return unsupported("hostUsers", "the device keeps no users apart");
    }
    if spec.os.as_ref().is_some_and(|os| os.name != "linux") {
        return unsupported("os", "the device runs Linux containers");
    }
    if spec.resources.is_some() {
        return unsupported("resources", "each container has resources of its own on the device");
    }
    if spec.active_deadline_seconds.is_some() {
        return unsupported("activeDeadlineSeconds", "nobody ends an application on the device after a time");
    }
    if spec.set_hostname_as_fqdn == Some(true) {
        return unsupported("setHostnameAsFQDN", "the device takes a host name without a domain");
    }
    if spec.host_aliases.as_ref().is_some_and(|aliases| !aliases.is_empty()) {
        return unsupported("hostAliases", "the device writes the container's hosts file itself");
    }
    let dns = spec.dns_config.as_ref();
    if dns.is_some_and(|dns| dns.searches.as_ref().is_some_and(|list| !list.is_empty())) {
        return unsupported("dnsConfig.searches", "the device takes only name servers");
    }
    if dns.is_some_and(|dns| dns.options.as_ref().is_some_and(|list| !list.is_empty())) {
        return unsupported("dnsConfig.options", "the device takes only name servers");
    }
    match &spec.security_context {
        Some(context) => check_pod_security(context),
        None => Ok(()),
    }
}

fn check_pod_security(context: &PodSecurityContext) -> Result<(), Refusal> {
    let set = [
        ("fsGroup", context.fs_group.is_some()),
        ("supplementalGroups", context.supplemental_groups.as_ref().is_some_and(|list| !list.is_empty())),
        ("sysctls", context.sysctls.as_ref().is_some_and(|list| !list.is_empty())),
        ("seLinuxOptions", context.se_linux_options.is_some()),
        ("appArmorProfile", context.app_armor_profile.is_some()),
        ("seccompProfile", !is_default(context.seccomp_profile.as_ref())),
    ];
    refuse_set("spec.securityContext", &set)
}

/// Adds the options that the fields of a container become.
pub(super) fn container_options(
    path: &str,
    spec: &PodSpec,
    container: &Container,
    options: &mut Options,
) -> Result<(), Refusal> {
    check_container(path, container)?;
    let mut add = |field: &str, option: &str, value: &str| {
        options.packed(option, value).map_err(|unfit| unfit_at(format!("{path}.{field}"), &unfit))
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
    let of_pod = spec.security_context.as_ref();
    let of_container = container.security_context.as_ref();
    let user = of_container.and_then(|context| context.run_as_user);
    let user = user.or_else(|| of_pod.and_then(|context| context.run_as_user));
    let group = of_container.and_then(|context| context.run_as_group);
    let group = group.or_else(|| of_pod.and_then(|context| context.run_as_group));
    let non_root = of_container.and_then(|context| context.run_as_non_root);
    let non_root = non_root.or_else(|| of_pod.and_then(|context| context.run_as_non_root));
    if non_root == Some(true) && user.is_none_or(|user| user == 0) {
        let why = "nobody can tell as whom the image runs; `runAsUser` must say it";
        return Err(Refusal::unsupported(format!("{path}.securityContext.runAsNonRoot"), why));
    }
    match (user, group) {
        (Some(user), Some(group)) => add("securityContext", "--user", &format!("{user}:{group}"))?,
        (Some(user), None) => add("securityContext", "--user", &user.to_string())?,
        (None, Some(_)) => {
            let why = "the device takes a group only together with `runAsUser`";
            return Err(Refusal::unsupported(format!("{path}.securityContext.runAsGroup"), why));
        }
        (None, None) => {}
    }
    let Some(context) = of_container else { return Ok(()) };
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

/// Refuses what concerns one container and cannot be.
fn check_container(path: &str, container: &Container) -> Result<(), Refusal> {
    let unsupported = |field: String, why: &str| Err(Refusal::unsupported(format!("{path}.{field}"), why));
    if container.args.as_ref().is_some_and(|args| !args.is_empty()) {
        return unsupported("args".into(), "the device passes no arguments to what it starts");
    }
    if container.command.as_ref().is_some_and(|command| command.len() > 1) {
        return unsupported("command".into(), "the device takes a program without arguments");
    }
    let hook = "the device watches its applications itself";
    for (field, there) in [
        ("livenessProbe", container.liveness_probe.is_some()),
        ("readinessProbe", container.readiness_probe.is_some()),
        ("startupProbe", container.startup_probe.is_some()),
        ("lifecycle", container.lifecycle.is_some()),
    ] {
        if there {
            return unsupported(field.into(), hook);
        }
    }
    for (number, port) in container.ports.iter().flatten().enumerate() {
        if port.host_port.is_some_and(|port| port != 0) {
            return unsupported(format!("ports[{number}].hostPort"), "the device forwards no ports");
        }
    }
    for (number, mount) in container.volume_mounts.iter().flatten().enumerate() {
        if mount.mount_path.trim_end_matches('/') != SERVICE_ACCOUNT {
            return unsupported(format!("volumeMounts[{number}]"), "the device has no volumes");
        }
    }
    if container.volume_devices.as_ref().is_some_and(|devices| !devices.is_empty()) {
        return unsupported("volumeDevices".into(), "the device has no volumes");
    }
    for (field, wanted) in [("stdin", container.stdin), ("tty", container.tty)] {
        if wanted == Some(true) {
            return unsupported(field.into(), "nobody can attach to a container on the device");
        }
    }
    match &container.security_context {
        Some(context) => check_security(&format!("{path}.securityContext"), context),
        None => Ok(()),
    }
}

fn check_security(path: &str, context: &SecurityContext) -> Result<(), Refusal> {
    let set = [
        ("privileged", context.privileged == Some(true)),
        ("procMount", context.proc_mount.as_ref().is_some_and(|mount| mount != "Default")),
        ("seLinuxOptions", context.se_linux_options.is_some()),
        ("appArmorProfile", context.app_armor_profile.is_some()),
        ("seccompProfile", !is_default(context.seccomp_profile.as_ref())),
        ("windowsOptions", context.windows_options.is_some()),
    ];
    refuse_set(path, &set)
}

fn refuse_set(path: &str, fields: &[(&str, bool)]) -> Result<(), Refusal> {
    match fields.iter().find(|(_, set)| *set) {
        None => Ok(()),
        Some((field, _)) => {
            Err(Refusal::unsupported(format!("{path}.{field}"), "the device decides that itself"))
        }
    }
}

/// Whether a container runs under the profile that it gets on the device anyway.
fn is_default(profile: Option<&SeccompProfile>) -> bool {
    profile.is_none_or(|profile| profile.type_ == "RuntimeDefault")
}

/// What does not fit into an option of the container.
pub(super) fn unfit_at(path: impl Into<String>, unfit: &Unfit) -> Refusal {
    Refusal::unsupported(path, unfit.why())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use staffetta_driver::DriverError;

    use super::*;

    fn options(spec: Value) -> Result<Vec<String>, String> {
        let spec: PodSpec = serde_json::from_value(spec).unwrap();
        let mut options = Options::default();
        let told = |refusal: Refusal| DriverError::from(refusal).to_string();
        check_pod(&spec).map_err(told)?;
        container_options("spec.containers[0]", &spec, &spec.containers[0], &mut options).map_err(told)?;
        Ok(options.finish().run_opts.into_iter().map(|line| line.line_run_opts).collect())
    }

    fn container(field: &str, value: Value) -> Value {
        let mut container = json!({ "name": "app" });
        container[field] = value;
        json!({ "containers": [container] })
    }

    #[test]
    fn what_a_container_can_be_told_becomes_options() {
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
