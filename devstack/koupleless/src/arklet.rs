//! The modules of a base and the commands that change them, as Arklet executes them. Pure: the time is an argument.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::Value;

use crate::command::BaseCommand;
use crate::module::InstalledModule;
use crate::options::SimulatedBaseOptions;
use crate::response;

/// A request to load or unload a module, whatever came of it.
#[derive(Clone, Debug, PartialEq)]
pub struct ModuleOperation {
    /// [`BaseCommand::InstallBiz`] or [`BaseCommand::UninstallBiz`].
    pub command: BaseCommand,
    /// The module: `name:version`.
    pub module: String,
    /// The body of the request (`BizModel`).
    pub request: Value,
    /// The time when the base received the request.
    pub received: Timestamp,
}

/// The modules of a base, and what it was asked.
#[derive(Debug, Default)]
pub(crate) struct Arklet {
    modules: BTreeMap<String, InstalledModule>,
    /// The command that is being executed, by module.
    under_way: BTreeMap<String, BaseCommand>,
    operations: Vec<ModuleOperation>,
    /// The number of commands received.
    received: BTreeMap<BaseCommand, u64>,
}

impl Arklet {
    /// Forgets all modules, and has those of the options, as at the start of the process. What was asked is still known.
    pub(crate) fn start(&mut self, options: &SimulatedBaseOptions, now: Timestamp) {
        self.under_way.clear();
        self.modules.clear();
        for (name, version) in &options.built_in {
            let (key, module) = (key(name, version), activated(name, version, now));
            self.modules.insert(key, module);
        }
    }

    /// Counts a command.
    pub(crate) fn receive(&mut self, command: BaseCommand, request: &Value, now: Timestamp) {
        *self.received.entry(command).or_default() += 1;
        if matches!(command, BaseCommand::InstallBiz | BaseCommand::UninstallBiz) {
            let module = key(text(request, "bizName"), text(request, "bizVersion"));
            let request = request.clone();
            self.operations.push(ModuleOperation { command, module, request, received: now });
        }
    }

    /// Begins to load or unload a module, and returns its key. The error is the response to a command that ends at once.
    pub(crate) fn begin(
        &mut self,
        command: BaseCommand,
        request: &Value,
        options: &SimulatedBaseOptions,
        now: Timestamp,
    ) -> Result<String, Value> {
        let (name, version) = (text(request, "bizName"), text(request, "bizVersion"));
        if name.is_empty() || version.is_empty() {
            return Err(response::invalid("bizName and bizVersion should not be blank"));
        }
        let (key, install) = (key(name, version), command == BaseCommand::InstallBiz);
        if install && text(request, "bizUrl").is_empty() {
            return Err(response::invalid("bizUrl should not be blank"));
        }
        if let Some(other) = self.under_way.get(&key) {
            let message =
                format!("{key} {} conflict, exist unfinished command({})", command.name(), other.name());
            return Err(response::refused(&format!("FAILED:{message} for this biz")));
        }
        match (install, self.modules.get(&key)) {
            (true, Some(_)) => {
                let message = format!("Biz: {key} has been installed or registered.");
                return Err(response::operation("install", "REPEAT_BIZ", &message, None));
            }
            (true, None) if self.metaspace(options) + options.module_metaspace > options.max_metaspace => {
                let message = "java.lang.OutOfMemoryError: Metaspace";
                return Err(response::operation("install", "FAILED", message, None));
            }
            (false, None) => {
                let message = format!("Uninstall biz: {key} not found.");
                return Err(response::operation("uninstall", "NOT_FOUND_BIZ", &message, None));
            }
            (true, None) => {
                let (state, reason) = ("RESOLVED", "Installing");
                let module = InstalledModule { state, reason, ..activated(name, version, now) };
                self.modules.insert(key.clone(), module);
            }
            (false, Some(_)) => {}
        }
        self.under_way.insert(key.clone(), command);
        Ok(key)
    }

    /// Completes what [`begin`](Self::begin) began, and returns the response.
    pub(crate) fn finish(&mut self, command: BaseCommand, key: &str, now: Timestamp) -> Value {
        self.under_way.remove(key);
        if command == BaseCommand::UninstallBiz {
            self.modules.remove(key);
            let message = format!("Uninstall biz: {key} success.");
            return response::operation("uninstall", "SUCCESS", &message, None);
        }
        let module = self.modules.get_mut(key).map(|module| {
            *module = activated(&module.name, &module.version, now);
            module.clone()
        });
        let message = format!("Install Biz: {key} success");
        response::operation("install", "SUCCESS", &message, module.as_ref())
    }

    /// Returns the modules, by key.
    pub(crate) fn modules(&self) -> &BTreeMap<String, InstalledModule> {
        &self.modules
    }

    /// Returns the requests to load or unload a module, the oldest first.
    pub(crate) fn operations(&self) -> &[ModuleOperation] {
        &self.operations
    }

    /// Returns the number of commands of this kind that were received.
    pub(crate) fn received(&self, command: BaseCommand) -> u64 {
        self.received.get(&command).copied().unwrap_or_default()
    }

    /// Returns the used metaspace, in bytes.
    pub(crate) fn metaspace(&self, options: &SimulatedBaseOptions) -> u64 {
        self.modules.len() as u64 * options.module_metaspace
    }
}

fn key(name: &str, version: &str) -> String {
    format!("{name}:{version}")
}

fn text<'a>(request: &'a Value, key: &str) -> &'a str {
    request[key].as_str().unwrap_or_default()
}

fn activated(name: &str, version: &str, now: Timestamp) -> InstalledModule {
    let (name, version, message) = (name.to_owned(), version.to_owned(), String::new());
    InstalledModule { name, version, state: "ACTIVATED", changed: now, reason: "Started", message }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::BaseCommand::{InstallBiz, UninstallBiz};
    use super::*;

    fn cart() -> Value {
        json!({ "bizName": "cart", "bizVersion": "1", "bizUrl": "https://example.com/cart.jar" })
    }

    fn begin(arklet: &mut Arklet, command: BaseCommand, request: &Value) -> Result<String, Value> {
        arklet.begin(command, request, &SimulatedBaseOptions::default(), Timestamp::UNIX_EPOCH)
    }

    fn codes(response: &Value) -> (&str, &str) {
        (text(response, "code"), text(&response["data"], "code"))
    }

    #[test]
    fn a_module_is_resolved_while_it_is_loaded_and_then_activated() {
        let (mut arklet, now) = (Arklet::default(), Timestamp::UNIX_EPOCH);
        let key = begin(&mut arklet, InstallBiz, &cart()).unwrap();
        assert_eq!(arklet.modules()[&key].state, "RESOLVED");
        let conflict = begin(&mut arklet, UninstallBiz, &cart()).unwrap_err();
        assert!(codes(&conflict) == ("FAILED", "") && text(&conflict, "message").contains("conflict"));
        let response = arklet.finish(InstallBiz, &key, now);
        assert_eq!(codes(&response), ("SUCCESS", "SUCCESS"));
        assert_eq!(
            (arklet.modules()[&key].state, response["data"]["bizInfos"].as_array().unwrap().len()),
            ("ACTIVATED", 1)
        );
    }

    #[test]
    fn what_is_there_already_or_not_there_fails_as_arklet_says_it() {
        let (mut arklet, now) = (Arklet::default(), Timestamp::UNIX_EPOCH);
        let absent = begin(&mut arklet, UninstallBiz, &cart()).unwrap_err();
        assert_eq!(codes(&absent), ("FAILED", "NOT_FOUND_BIZ"));
        let key = begin(&mut arklet, InstallBiz, &cart()).unwrap();
        arklet.finish(InstallBiz, &key, now);
        let again = begin(&mut arklet, InstallBiz, &cart()).unwrap_err();
        assert_eq!(codes(&again), ("FAILED", "REPEAT_BIZ"));
        for (field, command) in
            [("bizName", InstallBiz), ("bizVersion", UninstallBiz), ("bizUrl", InstallBiz)]
        {
            let mut request = cart();
            request[field] = "".into();
            let response = begin(&mut arklet, command, &request).unwrap_err();
            assert_eq!(codes(&response).0, "CMD_PROCESS_INTERNAL_ERROR", "{field}");
        }
    }

    #[test]
    fn a_full_metaspace_refuses_a_module() {
        let options =
            SimulatedBaseOptions { max_metaspace: 1, module_metaspace: 2, ..SimulatedBaseOptions::default() };
        let (mut arklet, now) = (Arklet::default(), Timestamp::UNIX_EPOCH);
        let full = arklet.begin(InstallBiz, &cart(), &options, now).unwrap_err();
        assert_eq!(codes(&full), ("FAILED", "FAILED"));
        assert!(arklet.modules().is_empty());
    }

    #[test]
    fn a_restart_loses_the_modules_but_not_the_record_of_what_was_asked() {
        let options = SimulatedBaseOptions {
            built_in: vec![("own".into(), "2".into())],
            ..SimulatedBaseOptions::default()
        };
        let (mut arklet, now) = (Arklet::default(), Timestamp::UNIX_EPOCH);
        arklet.receive(InstallBiz, &cart(), now);
        let key = begin(&mut arklet, InstallBiz, &cart()).unwrap();
        arklet.finish(InstallBiz, &key, now);
        arklet.start(&options, now);
        assert_eq!(arklet.modules().keys().collect::<Vec<_>>(), ["own:2"]);
        assert_eq!((arklet.operations()[0].module.as_str(), arklet.received(InstallBiz)), ("cart:1", 1));
    }
}
