//! The commands of the plugin: `ADD`, `DEL`, `CHECK`, `STATUS`, `GC` and `VERSION`.

use std::io::Read;
use std::time::Duration;

use serde_json::{Value, json};

use crate::client::{self, DaemonAnswer};
use crate::error::{CniError, Code};
use crate::message::{CniRequest, DEFAULT_SOCKET, MAX_MESSAGE, ValidAttachments};
use crate::version::{VERSIONS, Version};
use crate::{result, vif};

/// The time limit of each read and write of `ADD` on the connection to the daemon, longer than the daemon can wait for the VIF and then for
/// its activation (at most 85 s each).
const ADD_LIMIT: Duration = Duration::from_secs(180);
/// The time limit of each read and write of the other commands.
const LIMIT: Duration = Duration::from_secs(30);
/// The time limit for a daemon to show before `ADD` that it answers at all.
const PROBE_LIMIT: Duration = Duration::from_secs(5);

/// Runs the CNI command that the variable `CNI_COMMAND` of the environment names. `variable` returns a variable of the environment, `input`
/// is the configuration. Returns the text for standard output; empty if the command prints nothing.
pub fn run(variable: impl Fn(&str) -> Option<String>, input: impl Read) -> Result<String, CniError> {
    let command = variable("CNI_COMMAND").unwrap_or_default();
    let configuration = read(input);
    if command == "VERSION" {
        // A runtime may ask with a version that this plugin does not know, or without any configuration.
        let asked = configuration
            .ok()
            .and_then(|configuration| configuration["cniVersion"].as_str().map(str::to_owned));
        return Ok(
            json!({ "cniVersion": asked.as_deref().unwrap_or("1.1.0"), "supportedVersions": VERSIONS })
                .to_string(),
        );
    }
    let configuration = configuration?;
    let cni_version = configuration["cniVersion"].as_str().map(str::to_owned);
    execute(&command, configuration, &variable).map_err(|error| CniError { cni_version, ..error })
}

/// Runs a command other than `VERSION`.
fn execute(
    command: &str,
    configuration: Value,
    variable: &impl Fn(&str) -> Option<String>,
) -> Result<String, CniError> {
    let version = Version::read(&configuration)?;
    let call = PluginCall { version, configuration, variable };
    match command {
        "ADD" => call.add(),
        "DEL" => call.delete(),
        "CHECK" if version >= Version::V0_4_0 => call.check(),
        "STATUS" if version >= Version::V1_1_0 => call.post("/status", b"{}").map(|_| String::new()),
        "GC" if version >= Version::V1_1_0 => call.collect(),
        "" => Err(CniError::new(Code::InvalidEnvironment, "CNI_COMMAND is not set")),
        other => Err(CniError::new(Code::InvalidEnvironment, "CNI_COMMAND is not a command of this version")
            .details(format!("`{other}` with `cniVersion` {}", version.name()))),
    }
}

/// Reads the configuration of the plugin from standard input.
fn read(input: impl Read) -> Result<Value, CniError> {
    let mut text = Vec::new();
    input.take(MAX_MESSAGE as u64 + 1).read_to_end(&mut text).map_err(|error| {
        CniError::new(Code::Io, "standard input cannot be read").details(error.to_string())
    })?;
    if text.len() > MAX_MESSAGE {
        return Err(CniError::new(Code::Decode, "the configuration is longer than 1 MiB"));
    }
    let configuration: Value = serde_json::from_slice(&text).map_err(|error| {
        CniError::new(Code::Decode, "the configuration on standard input is not JSON")
            .details(error.to_string())
    })?;
    if configuration.is_object() {
        Ok(configuration)
    } else {
        Err(CniError::new(Code::Decode, "the configuration on standard input is not an object"))
    }
}

/// One invocation of the plugin: its environment and its configuration.
struct PluginCall<'a, V> {
    version: Version,
    configuration: Value,
    variable: &'a V,
}

impl<V: Fn(&str) -> Option<String>> PluginCall<'_, V> {
    /// Executes `ADD`: has the daemon bind the pod. Returns the CNI result, merged into that of the earlier plugins in the chain.
    fn add(&self) -> Result<String, CniError> {
        let request = self.request("ADD", true)?;
        // A daemon that hangs is found sooner than one whose pod waits.
        self.exchange("/status", b"{}", PROBE_LIMIT)?;
        let answer = self.send("/addNetwork", &request)?;
        let vif: Value = serde_json::from_slice(&answer.body).map_err(|error| {
            CniError::new(Code::Failed, "the answer of the daemon is not JSON").details(error.to_string())
        })?;
        let unknown = || CniError::new(Code::Failed, "the daemon answered with a VIF in an unknown form");
        let ours = vif::result(self.version, &vif, &request.cni_ifname, &request.cni_netns);
        let ours = ours.ok_or_else(unknown)?;
        let previous = self.configuration.get("prevResult").filter(|result| result.is_object());
        Ok(result::merge(self.version, previous, ours).to_string())
    }

    /// Executes `DEL`: has the daemon unbind the pod. Succeeds if nothing is bound.
    fn delete(&self) -> Result<String, CniError> {
        self.send("/delNetwork", &self.request("DEL", false)?).map(|_| String::new())
    }

    /// Executes `CHECK`: has the daemon check the interfaces of the pod. Fails before that if `prevResult` does not contain the interface.
    fn check(&self) -> Result<String, CniError> {
        let request = self.request("CHECK", true)?;
        let Some(previous) = self.configuration.get("prevResult").filter(|result| result.is_object()) else {
            return Err(CniError::new(
                Code::InvalidConfiguration,
                "CHECK needs the result of ADD in `prevResult`",
            ));
        };
        let is_ours = |interface: &Value| {
            interface["name"] == request.cni_ifname.as_str()
                && interface["sandbox"] == request.cni_netns.as_str()
        };
        if !previous["interfaces"].as_array().is_some_and(|interfaces| interfaces.iter().any(is_ours)) {
            return Err(CniError::new(
                Code::InvalidConfiguration,
                "`prevResult` does not contain the interface",
            )
            .details(format!("{} in {}", request.cni_ifname, request.cni_netns)));
        }
        self.send("/checkNetwork", &request).map(|_| String::new())
    }

    /// Executes `GC`: has the daemon unbind all pods whose interfaces the runtime does not list as valid.
    fn collect(&self) -> Result<String, CniError> {
        let valid: ValidAttachments =
            serde_json::from_value(self.configuration.clone()).map_err(|error| {
                CniError::new(Code::InvalidConfiguration, "GC needs `cni.dev/valid-attachments`")
                    .details(error.to_string())
            })?;
        let body =
            serde_json::to_vec(&valid).map_err(|error| CniError::new(Code::Failed, error.to_string()))?;
        self.post("/gc", &body).map(|_| String::new())
    }

    /// Returns the request of a command for one interface, from the variables of the environment. Fails if a required one is not set.
    fn request(&self, command: &str, needs_netns: bool) -> Result<CniRequest, CniError> {
        let value = |name: &str| (self.variable)(name).unwrap_or_default();
        let required = |name: &str| {
            let value = value(name);
            if value.is_empty() {
                Err(CniError::new(Code::InvalidEnvironment, format!("{name} is not set")))
            } else {
                Ok(value)
            }
        };
        Ok(CniRequest {
            cni_command: command.to_owned(),
            cni_containerid: required("CNI_CONTAINERID")?,
            cni_netns: if needs_netns { required("CNI_NETNS")? } else { value("CNI_NETNS") },
            cni_ifname: required("CNI_IFNAME")?,
            cni_args: value("CNI_ARGS"),
            cni_path: value("CNI_PATH"),
            config: self.configuration.clone(),
        })
    }

    /// Sends the request of a command for one interface to the daemon.
    fn send(&self, path: &str, request: &CniRequest) -> Result<DaemonAnswer, CniError> {
        let body =
            serde_json::to_vec(request).map_err(|error| CniError::new(Code::Failed, error.to_string()))?;
        self.post(path, &body)
    }

    /// Sends a request to the daemon. Every response other than a success is an error.
    fn post(&self, path: &str, body: &[u8]) -> Result<DaemonAnswer, CniError> {
        let limit = if path == "/addNetwork" { ADD_LIMIT } else { LIMIT };
        let answer = self.exchange(path, body, limit)?;
        if (200..300).contains(&answer.status) {
            return Ok(answer);
        }
        Err(serde_json::from_slice(&answer.body).unwrap_or_else(|_| {
            CniError::new(Code::Failed, format!("the daemon answered with status {}", answer.status))
        }))
    }

    /// Sends a request to the daemon, and returns its response of whatever status. `limit` is the time limit of each read and write.
    fn exchange(&self, path: &str, body: &[u8], limit: Duration) -> Result<DaemonAnswer, CniError> {
        let daemon = match &self.configuration["daemon"] {
            Value::Null => DEFAULT_SOCKET,
            Value::String(address) => address,
            _ => {
                return Err(CniError::new(
                    Code::InvalidConfiguration,
                    "`daemon` is not the address of the daemon",
                ));
            }
        };
        client::post(daemon, path, body, limit).map_err(|error| {
            // The runtime repeats the command; the daemon may be starting at this moment.
            let is_status = (self.variable)("CNI_COMMAND").is_some_and(|command| command == "STATUS");
            let code = if is_status { Code::Unavailable } else { Code::TryAgainLater };
            CniError::new(code, format!("the daemon staffetta does not answer at {daemon}"))
                .details(format!("{error}; is its pod on this node running?"))
        })
    }
}
