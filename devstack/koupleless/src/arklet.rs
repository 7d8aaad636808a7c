//! The modules of a base and the commands that change them, as Arklet executes them. Pure: the time is an argument.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::Value;

use crate::command::BaseCommand;
use crate::module::InstalledModule;
use crate::options::SimulatedBaseOptions;
use crate::response;

/// A request to load, unload or activate a module, whatever came of it.
#[derive(Clone, Debug, PartialEq)]
pub struct ModuleOperation {
    /// [`BaseCommand::InstallBiz`], [`BaseCommand::UninstallBiz`] or [`BaseCommand::SwitchBiz`].
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
    /// The key under which a module is listed that is being loaded, by the requested one.
    registered: BTreeMap<String, String>,
    operations: Vec<ModuleOperation>,
    /// The number of commands received.
    received: BTreeMap<BaseCommand, u64>,
}

impl Arklet {
    /// Forgets all modules, and has those of the options, as at the start of the process. What was asked is still known.
    pub(crate) fn start(&mut self, options: &SimulatedBaseOptions, now: Timestamp) {
        self.under_way.clear();
        self.registered.clear();
        self.modules.clear();
        for (name, version) in &options.built_in {
            let (key, module) = (key(name, version), activated(name, version, now));
            self.modules.insert(key, module);
        }
    }

    /// Counts a command.
    pub(crate) fn receive(&mut self, command: BaseCommand, request: &Value, now: Timestamp) {
        *self.received.entry(command).or_default() += 1;
        if command.is_change() {
            let module = key(text(request, "bizName"), text(request, "bizVersion"));
            let request = request.clone();
            self.operations.push(ModuleOperation { command, module, request, received: now });
        }
    }

    /// Begins to load, unload or activate a module, and returns its key. The error is the response to a command that ends at once.
    pub(crate) fn begin(
        &mut self,
        command: BaseCommand,
        request: &Value,
        options: &SimulatedBaseOptions,
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
        let verb = verb(command);
        match (install, self.modules.get(&key)) {
            (true, Some(_)) => return Err(repeated(&key)),
            (true, None) if self.metaspace(options) + options.module_metaspace > options.max_metaspace => {
                let message = "java.lang.OutOfMemoryError: Metaspace";
                return Err(response::operation(verb, "FAILED", message, None));
            }
            (false, None) => {
                let message = format!("{verb} biz: {key} not found.");
                return Err(response::operation(verb, "NOT_FOUND_BIZ", &message, None));
            }
            (true, None) | (false, Some(_)) => {}
        }
        self.under_way.insert(key.clone(), command);
        Ok(key)
    }

    /// Lists a module whose JAR file was downloaded, under the identity in its manifest. The error is the response if there is such a module.
    pub(crate) fn register(
        &mut self,
        requested: &str,
        request: &Value,
        options: &SimulatedBaseOptions,
        now: Timestamp,
    ) -> Result<(), Value> {
        let manifest = options.manifests.iter().find(|(url, _)| url == text(request, "bizUrl"));
        let requested_identity =
            (text(request, "bizName").to_owned(), text(request, "bizVersion").to_owned());
        let (name, version) = manifest.map_or(requested_identity, |(_, identity)| identity.clone());
        let listed = key(&name, &version);
        if self.modules.contains_key(&listed) {
            self.under_way.remove(requested);
            return Err(repeated(&listed));
        }
        let module =
            InstalledModule { state: "RESOLVED", reason: "Installing", ..activated(&name, &version, now) };
        self.modules.insert(listed.clone(), module);
        self.registered.insert(requested.to_owned(), listed);
        Ok(())
    }

    /// Completes what [`begin`](Self::begin) began, and returns the response.
    pub(crate) fn finish(&mut self, command: BaseCommand, key: &str, now: Timestamp) -> Value {
        self.under_way.remove(key);
        match command {
            BaseCommand::UninstallBiz => {
                self.modules.remove(key);
                let message = format!("Uninstall biz: {key} success.");
                response::operation("uninstall", "SUCCESS", &message, None)
            }
            BaseCommand::SwitchBiz => {
                self.activate(key, now);
                let message = format!("Switch biz: {key} is activated.");
                response::operation("switch", "SUCCESS", &message, None)
            }
            _ => {
                let listed = self.registered.remove(key).unwrap_or_else(|| key.to_owned());
                let name = self.modules.get(&listed).map(|module| module.name.clone()).unwrap_or_default();
                let another =
                    self.modules.values().any(|module| module.name == name && module.state == "ACTIVATED");
                let module = self.modules.get_mut(&listed).map(|module| {
                    *module = activated(&module.name, &module.version, now);
                    if another {
                        module.state = "DEACTIVATED";
                    }
                    module.clone()
                });
                let message = format!("Install Biz: {listed} success");
                response::operation("install", "SUCCESS", &message, module.as_ref())
            }
        }
    }

    /// Activates a version of a module, and deactivates the others.
    fn activate(&mut self, key: &str, now: Timestamp) {
        let Some(name) = self.modules.get(key).map(|module| module.name.clone()) else { return };
        for (other, module) in self.modules.iter_mut().filter(|(_, module)| module.name == name) {
            let state = if other == key { "ACTIVATED" } else { "DEACTIVATED" };
            if module.state != state {
                (module.state, module.changed, module.reason) = (state, now, "Switched");
            }
        }
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

/// Returns the response to the request to load a module that is there.
fn repeated(key: &str) -> Value {
    let message = format!("Biz: {key} has been installed or registered.");
    response::operation("install", "REPEAT_BIZ", &message, None)
}

fn verb(command: BaseCommand) -> &'static str {
    command.name().trim_end_matches("Biz")
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

    use super::BaseCommand::{InstallBiz, SwitchBiz, UninstallBiz};
    use super::*;

    fn cart() -> Value {
        json!({ "bizName": "cart", "bizVersion": "1", "bizUrl": "https://example.com/cart.jar" })
    }

    fn begin(arklet: &mut Arklet, command: BaseCommand, request: &Value) -> Result<String, Value> {
        let (options, now) = (SimulatedBaseOptions::default(), Timestamp::UNIX_EPOCH);
        let key = arklet.begin(command, request, &options)?;
        if command == InstallBiz {
            arklet.register(&key, request, &options, now)?;
        }
        Ok(key)
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
        let mut arklet = Arklet::default();
        let full = arklet.begin(InstallBiz, &cart(), &options).unwrap_err();
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

    #[test]
    fn a_second_version_is_loaded_deactivated_until_the_base_is_switched_to_it() {
        let (mut arklet, now) = (Arklet::default(), Timestamp::UNIX_EPOCH);
        let mut states = Vec::new();
        for version in ["1", "2"] {
            let mut request = cart();
            request["bizVersion"] = version.into();
            let key = begin(&mut arklet, InstallBiz, &request).unwrap();
            let response = arklet.finish(InstallBiz, &key, now);
            states.push(text(&response["data"]["bizInfos"][0], "bizState").to_owned());
        }
        assert_eq!(states, ["activated", "deactivated"]);
        let second = json!({ "bizName": "cart", "bizVersion": "2" });
        let key = begin(&mut arklet, SwitchBiz, &second).unwrap();
        assert_eq!(codes(&arklet.finish(SwitchBiz, &key, now)), ("SUCCESS", "SUCCESS"));
        assert_eq!(
            (arklet.modules()["cart:1"].state, arklet.modules()["cart:2"].state),
            ("DEACTIVATED", "ACTIVATED")
        );
    }

    #[test]
    fn the_identity_of_a_module_is_that_of_its_manifest() {
        let identity = ("cart".to_owned(), "7".to_owned());
        let manifests = vec![("https://example.com/cart.jar".to_owned(), identity)];
        let options = SimulatedBaseOptions { manifests, ..SimulatedBaseOptions::default() };
        let (mut arklet, now) = (Arklet::default(), Timestamp::UNIX_EPOCH);
        let key = arklet.begin(InstallBiz, &cart(), &options).unwrap();
        arklet.register(&key, &cart(), &options, now).unwrap();
        let response = arklet.finish(InstallBiz, &key, now);
        assert_eq!(text(&response["data"]["bizInfos"][0], "bizVersion"), "7");
        let again = arklet.begin(InstallBiz, &cart(), &options).unwrap();
        assert_eq!(
            codes(&arklet.register(&again, &cart(), &options, now).unwrap_err()),
            ("FAILED", "REPEAT_BIZ")
        );
    }
}
