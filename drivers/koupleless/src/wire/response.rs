//! The responses of Arklet to commands. Arklet is the agent of a base, the Java process that runs the modules.

use serde::Deserialize;
use staffetta_driver::tunnel::{ContainerOperationResponseData, OperationResponseResult};
use staffetta_driver::{ContainerKey, DriverError};

use super::{message, reason};
use crate::module::{self, Module};
use crate::operations::ArkletCommand;

/// The `code` in the response to a command that succeeded.
const SUCCESS: &str = "SUCCESS";

/// The `code` in the response to a command about a module that the base does not have.
const NOT_FOUND_BIZ: &str = "NOT_FOUND_BIZ";

/// The response to a command. `T` is the type of the data that the command returns.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ArkResponse<T> {
    code: String,
    #[serde(default = "Option::default")]
    data: Option<T>,
    #[serde(default)]
    message: Option<String>,
    #[serde(default)]
    base_identity: Option<String>,
}

/// The reason of an answer to the command to load a module whose JAR file contains another one.
const VERSION_MISMATCH: &str = "VersionMismatch";

/// The result of loading, unloading or activating a module.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct OperationData {
    code: Option<String>,
    message: Option<String>,
    /// The modules that were loaded.
    biz_infos: Option<Vec<BizIdentity>>,
}

/// The name and the version of a module, as in the manifest of its JAR file.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct BizIdentity {
    biz_name: String,
    biz_version: String,
}

impl<T> ArkResponse<T> {
    /// Returns the data of the response to a query. If the code of the response is not [`SUCCESS`], the error is a message with the
    /// code and the text of the base. If the data is missing, the error is a message that says so.
    pub(crate) fn data(self) -> Result<T, String> {
        if self.code != SUCCESS {
            let said = self.message.as_deref().map(message).unwrap_or_default();
            return Err(format!("the base answers {:?}: {said}", message(&self.code)));
        }
        self.data.ok_or_else(|| "the answer contains no data".to_owned())
    }

    /// Returns the id of the base that answered; `None` if the response contains no id.
    pub(crate) fn base(&self) -> Option<&str> {
        self.base_identity.as_deref().filter(|base| !base.is_empty())
    }
}

impl ArkResponse<OperationData> {
    /// Returns the answer to a command that changes the module `key`. A module that the base does not have counts as unloaded, but never
    /// as loaded, and one that the base has loaded under another name or version, that of its manifest, is a failure. The stack trace of a
    /// failure is left out, since it may contain secrets.
    pub(crate) fn operation(
        self,
        command: ArkletCommand,
        key: ContainerKey,
    ) -> ContainerOperationResponseData {
        let OperationData { code: inner, message: detail, biz_infos } = self.data.unwrap_or_default();
        let inner = inner.unwrap_or_else(|| self.code.clone());
        let absent = command == ArkletCommand::UninstallBiz && inner == NOT_FOUND_BIZ;
        let done = absent || (self.code == SUCCESS && inner == SUCCESS);
        let loaded = biz_infos.unwrap_or_default();
        let is_key = |loaded: &BizIdentity| module::key(&loaded.biz_name, &loaded.biz_version) == key;
        if done
            && command == ArkletCommand::InstallBiz
            && let Some(BizIdentity { biz_name, biz_version }) = loaded.first()
            && !loaded.iter().any(is_key)
        {
            let text = format!(
                "the manifest of the JAR file says {biz_name}:{biz_version}; the container says {key} (name and BIZ_VERSION)"
            );
            return ContainerOperationResponseData {
                container_key: key,
                result: OperationResponseResult::Fail,
                reason: VERSION_MISMATCH.to_owned(),
                message: message(&text),
                instead: Module::container(biz_name, biz_version).map(Box::new),
            };
        }
        let code = if inner == SUCCESS { &self.code } else { &inner };
        let said = [detail, self.message].into_iter().flatten().find(|text| !text.is_empty());
        ContainerOperationResponseData {
            container_key: key,
            result: if done { OperationResponseResult::Success } else { OperationResponseResult::Fail },
            reason: if done { String::new() } else { reason(code) },
            message: said.as_deref().map(message).unwrap_or_default(),
            instead: None,
        }
    }
}

/// Returns the answer that reports the failure `error` of a request that changes the module `key`.
pub(crate) fn failed(key: ContainerKey, error: &DriverError) -> ContainerOperationResponseData {
    ContainerOperationResponseData {
        container_key: key,
        result: if error.ambiguous() {
            OperationResponseResult::Unknown
        } else {
            OperationResponseResult::Fail
        },
        reason: error.reason().name().to_owned(),
        message: message(&error.to_string()),
        instead: None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use staffetta_driver::tunnel::OperationResponseResult::{Fail, Success};

    use super::*;

    fn operation(command: ArkletCommand, outer: &str, inner: &Value) -> ContainerOperationResponseData {
        let response = json!({
            "code": outer, "data": inner, "message": "outer", "errorStackTrace": "at secret.Place", "baseIdentity": "b",
        });
        serde_json::from_value::<ArkResponse<OperationData>>(response)
            .unwrap()
            .operation(command, "cart:1".into())
    }

    #[test]
    fn a_module_that_is_not_there_is_unloaded_but_not_loaded() {
        let absent =
            |outer| json!({ "code": NOT_FOUND_BIZ, "message": outer, "bizInfos": [], "elapsedSpace": 0 });
        for outer in ["SUCCESS", "FAILED"] {
            assert_eq!(operation(ArkletCommand::UninstallBiz, outer, &absent(outer)).result, Success);
            let load = operation(ArkletCommand::InstallBiz, outer, &absent(outer));
            assert_eq!((load.result, load.reason.as_str()), (Fail, NOT_FOUND_BIZ));
        }
    }

    #[test]
    fn a_module_that_is_loaded_under_another_identity_is_a_failure_that_names_it() {
        let loaded = |name: &str, version: &str| {
            let infos = json!([{ "bizName": name, "bizVersion": version, "bizState": "activated" }]);
            let data = json!({ "code": "SUCCESS", "message": "", "bizInfos": infos });
            operation(ArkletCommand::InstallBiz, "SUCCESS", &data)
        };
        assert_eq!(loaded("cart", "1").result, Success);
        let other = loaded("cart", "2");
        assert_eq!((other.result, other.reason.as_str()), (Fail, VERSION_MISMATCH));
        assert!(other.message.contains("cart:2") && other.message.contains("cart:1"), "{other:?}");
        assert_eq!(module::key_of(&other.instead.unwrap()).as_str(), "cart:2");
        assert_eq!(loaded("a:b", "2").instead, None, "no container can be that");
    }

    #[test]
    fn both_codes_must_be_success_and_a_failure_says_why_without_its_stack_trace() {
        let load = |outer, inner| operation(ArkletCommand::InstallBiz, outer, &inner);
        assert_eq!(load("SUCCESS", json!({ "code": "SUCCESS" })).result, Success);
        assert_eq!(load("SUCCESS", json!(null)).result, Success);
        for (outer, inner, reason, message) in [
            ("SUCCESS", json!({ "code": "FAILED", "message": "no room" }), "FAILED", "no room"),
            ("FAILED", json!({ "code": "SUCCESS", "message": "" }), "FAILED", "outer"),
            ("FAILED", json!(null), "FAILED", "outer"),
            ("odd code", json!(null), "", "outer"),
        ] {
            let answer = load(outer, inner);
            assert_eq!(
                (answer.result, answer.reason.as_str(), answer.message.as_str()),
                (Fail, reason, message)
            );
        }
    }

    #[test]
    fn a_query_without_data_is_a_failure_and_never_an_empty_answer() {
        let read = |response: Value| serde_json::from_value::<ArkResponse<Vec<u8>>>(response).unwrap().data();
        assert_eq!(read(json!({ "code": "SUCCESS", "data": [] })), Ok(Vec::new()));
        assert!(
            read(json!({ "code": "SUCCESS" })).is_err()
                && read(json!({ "code": "SUCCESS", "data": null })).is_err()
        );
        let failed = read(json!({ "code": "FAILED", "data": [1], "message": "busy" })).unwrap_err();
        assert!(failed.contains("FAILED") && failed.contains("busy"), "{failed}");
    }
}
