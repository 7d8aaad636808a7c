//! The section `[neutron]` over clouds.yaml: its options override those of the cloud, and none of them is ignored.

use super::error::AccessProblems;
use super::resolve::Locations;
use super::{AccessError, Auth, DomainResource, IdOrName, NeutronOptions};

/// The options of the user, and of the project.
const USER: [&str; 4] = ["user_id", "username", "user_domain_id", "user_domain_name"];
const PROJECT: [&str; 4] = ["project_id", "project_name", "project_domain_id", "project_domain_name"];

impl NeutronOptions {
    /// Returns these options over `cloud`, those of clouds.yaml, and updates the locations. Of alternative options, such as `username`
    /// and `user_id`, any that is given here overrides all of them there.
    pub(super) fn over(&self, mut cloud: Self, locations: &mut Locations) -> Self {
        macro_rules! override_with {
            ($($($option:ident)|+,)+) => {$(
                if false $(|| self.$option.is_some())+ {
                    $(
                        cloud.$option.clone_from(&self.$option);
                        if self.$option.is_some() {
                            locations.given.insert(stringify!($option), Locations::in_section(stringify!($option)));
                        }
                    )+
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
        Self { cloud: self.cloud.clone(), max_concurrency: self.max_concurrency, ..cloud }
    }

    /// Rejects login options of this section that `auth`, the login merged with clouds.yaml, does not use.
    pub(super) fn reject_unused(&self, auth: &Auth) -> Result<(), AccessError> {
        let (method, used) = match auth {
            Auth::None => ("none", Vec::new()),
            Auth::Password { user, scope, .. } => {
                let secret = vec!["password", "password_file"];
                ("password", [secret, options_of(user, USER), options_of(scope, PROJECT)].concat())
            }
            Auth::ApplicationCredential { credential, .. } => {
                let key = match credential.key {
                    IdOrName::Id(_) => "application_credential_id",
                    IdOrName::Name(_) => "application_credential_name",
                };
                let mut used =
                    vec![key, "application_credential_secret", "application_credential_secret_file"];
                used.extend(credential.user.iter().flat_map(|user| options_of(user, USER)));
                ("v3applicationcredential", used)
            }
        };
        macro_rules! given {
            ($($option:ident)+) => { [$((stringify!($option), self.$option.is_some())),+] };
        }
        let given = given!(username user_id password password_file project_name project_id
            user_domain_name user_domain_id project_domain_name project_domain_id
            application_credential_id application_credential_name
            application_credential_secret application_credential_secret_file);
        let mut problems = AccessProblems::default();
        for (option, _) in given.into_iter().filter(|(option, given)| *given && !used.contains(option)) {
            let message = format!("does not apply to the login method {method}");
            problems.add(AccessError::new(Locations::in_section(option), message));
        }
        problems.finish(Some(()))
    }
}

/// The options that give a user or a project: of its id, its name, and the id and the name of its domain.
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
