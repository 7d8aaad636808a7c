//! Merges the section `[neutron]` with the options of clouds.yaml. Options of the section override those of clouds.yaml, and a login option
//! of the section that has no part in the login is an error.

use serde_json::{Value, json};

use super::resolve::Locations;
use super::{AccessError, AccessProblem, Auth, DomainResource, IdOrName, NeutronOptions};

/// The options that identify the user: id, name, and the id and the name of the domain.
const USER: [&str; 4] = ["user_id", "username", "user_domain_id", "user_domain_name"];
/// The options that identify the project: id, name, and the id and the name of the domain.
const PROJECT: [&str; 4] = ["project_id", "project_name", "project_domain_id", "project_domain_name"];
/// The options that identify an application credential: id and name.
const CREDENTIAL: [&str; 2] = ["application_credential_id", "application_credential_name"];
/// The options that contain a password: its text, and the file with the text.
const PASSWORD: [&str; 2] = ["password", "password_file"];
/// The options that contain the secret of an application credential: its text, and the file with the text.
const SECRET: [&str; 2] = ["application_credential_secret", "application_credential_secret_file"];

impl NeutronOptions {
    /// Returns the options of `cloud`, which come from clouds.yaml, overridden by those of this section, `[neutron]`, and adds the
    /// locations of the options that this section contains to `locations`. Of alternative options, such as `username` and `user_id`, one
    /// that this section contains overrides all alternatives in `cloud`.
    pub(super) fn merged_over(&self, mut cloud: Self, locations: &mut Locations) -> Self {
        macro_rules! override_with {
            ($($($option:ident)|+,)+) => {$(
                if false $(|| self.$option.is_some())+ {
                    $(cloud.$option.clone_from(&self.$option);)+
                }
            )+};
        }
        override_with!(
            auth_type,
            username | user_id,
            password | password_file,
            project_name | project_id,
            user_domain_name | user_domain_id,
            project_domain_name | project_domain_id,
            application_credential_id | application_credential_name,
            application_credential_secret | application_credential_secret_file,
            region_name,
            endpoint_type,
            endpoint_override,
            load_balancer_endpoint_override,
            cafile,
            certfile,
            keyfile,
            insecure,
            timeout,
        );
        let given = self.given().into_iter();
        locations.given.extend(given.map(|option| (option.clone(), Locations::in_section(&option))));
        Self { cloud: self.cloud.clone(), max_concurrency: self.max_concurrency, ..cloud }
    }

    /// Returns an error with one problem for each login option of this section, `[neutron]`, that the login `auth` does not use. Without a
    /// login, all are accepted. `overrides` is `true` if the section overrides the options of a cloud: an option that has no effect because
    /// of an alternative, such as a name beside an id, is then an error too.
    pub(super) fn reject_unused(&self, auth: &Auth, overrides: bool) -> Result<(), AccessError> {
        let of = |resource: &DomainResource, options: [&'static str; 4]| {
            if overrides { options_of(resource, options) } else { options.to_vec() }
        };
        let (method, used) = match auth {
            Auth::None => return Ok(()),
            Auth::Password { user, scope, .. } => {
                ("password", [PASSWORD.to_vec(), of(user, USER), of(scope, PROJECT)].concat())
            }
            Auth::ApplicationCredential { credential, .. } => {
                let identity = if overrides {
                    let [id, name] = CREDENTIAL;
                    let key = if matches!(credential.key, IdOrName::Id(_)) { id } else { name };
                    let user = credential.user.iter().flat_map(|user| options_of(user, USER));
                    user.chain([key]).collect()
                } else {
                    [&CREDENTIAL[..], &USER].concat()
                };
                ("v3applicationcredential", [SECRET.to_vec(), identity].concat())
            }
        };
        let login = [&USER[..], &PROJECT, &CREDENTIAL, &PASSWORD, &SECRET].concat();
        let is_unused = |option: &&str| login.contains(option) && !used.contains(option);
        let given = self.given();
        let unused = given.iter().map(String::as_str).filter(is_unused);
        let problem = |option| AccessProblem {
            location: Locations::in_section(option),
            message: format!("does not apply to the login method {method}"),
        };
        AccessError::check(unused.map(problem).collect())
    }

    /// Returns the names of the options that have a value.
    fn given(&self) -> Vec<String> {
        let Value::Object(options) = json!(self) else { return Vec::new() };
        options.into_iter().filter(|(_, value)| !value.is_null()).map(|(option, _)| option).collect()
    }
}

/// Returns the names of those options that identify `resource`, a user or a project: the option for its id, or those for its name and its
/// domain. The second argument contains the names of the options for the id, the name, the id of the domain and the name of the domain.
fn options_of(
    resource: &DomainResource,
    [id, name, domain_id, domain_name]: [&'static str; 4],
) -> Vec<&'static str> {
    match (&resource.key, &resource.domain) {
        (IdOrName::Id(_), _) => vec![id],
        (IdOrName::Name(_), Some(IdOrName::Name(_))) => vec![name, domain_name],
        (IdOrName::Name(_), _) => vec![name, domain_id],
    }
}
