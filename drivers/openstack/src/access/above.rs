//! The section above clouds.yaml: what it says counts, and nothing that it says is dropped.

use super::mistakes::Mistakes;
use super::resolve::Places;
use super::{AccessError, Auth, Credential, Domain, NeutronOptions, Scope, User};

impl NeutronOptions {
    /// These options above those that clouds.yaml `said`, whose `places` they take.
    pub(super) fn above(&self, said: Self, places: &mut Places) -> Self {
        let mut layers = Layers { places };
        macro_rules! upper {
            ($option:ident) => {
                layers.upper(stringify!($option), self.$option.as_ref(), said.$option)
            };
        }
        macro_rules! either {
            ($one:ident, $other:ident) => {
                layers.either(
                    [stringify!($one), stringify!($other)],
                    (self.$one.as_ref(), self.$other.as_ref()),
                    (said.$one, said.$other),
                )
            };
        }
        let (username, user_id) = either!(username, user_id);
        let (password, password_file) = either!(password, password_file);
        let (project_name, project_id) = either!(project_name, project_id);
        let (user_domain_name, user_domain_id) = either!(user_domain_name, user_domain_id);
        let (project_domain_name, project_domain_id) = either!(project_domain_name, project_domain_id);
        let (application_credential_id, application_credential_name) =
            either!(application_credential_id, application_credential_name);
        let (application_credential_secret, application_credential_secret_file) =
            either!(application_credential_secret, application_credential_secret_file);
        Self {
            cloud: self.cloud.clone(),
            auth_type: upper!(auth_type),
            auth_url: said.auth_url,
            username,
            user_id,
            password,
            password_file,
            project_name,
            project_id,
            user_domain_name,
            user_domain_id,
            project_domain_name,
            project_domain_id,
            application_credential_id,
            application_credential_name,
            application_credential_secret,
            application_credential_secret_file,
            region_name: upper!(region_name),
            endpoint_type: upper!(endpoint_type),
            endpoint_override: upper!(endpoint_override),
            load_balancer_endpoint_override: upper!(load_balancer_endpoint_override),
            cafile: upper!(cafile),
            certfile: upper!(certfile),
            keyfile: upper!(keyfile),
            insecure: upper!(insecure),
            timeout: upper!(timeout),
            max_concurrency: self.max_concurrency,
        }
    }

    /// Refuses what these options say of a login beside a cloud, and `auth`, which came of both, has no use for: whoever
    /// wrote it expects something else than would happen.
    pub(super) fn all_used_by(&self, auth: &Auth) -> Result<(), AccessError> {
        let (way, password, credential) = match auth {
            Auth::None => ("none", false, None),
            Auth::Password { .. } => ("password", true, None),
            Auth::ApplicationCredential { credential, .. } => {
                ("v3applicationcredential", false, Some(credential))
            }
        };
        let user = match auth {
            Auth::Password { user, .. }
            | Auth::ApplicationCredential { credential: Credential::Name(_, user), .. } => Some(user),
            Auth::ApplicationCredential { .. } | Auth::None => None,
        };
        let scope = if let Auth::Password { scope, .. } = auth { Some(scope) } else { None };
        let user_domain = if let Some(User::Name(_, domain)) = user { Some(domain) } else { None };
        let project_domain = if let Some(Scope::Name(_, domain)) = scope { Some(domain) } else { None };
        let uses = [
            ("username", self.username.is_some(), matches!(user, Some(User::Name(..)))),
            ("user_id", self.user_id.is_some(), matches!(user, Some(User::Id(_)))),
            ("password", self.password.is_some(), password),
            ("password_file", self.password_file.is_some(), password),
            ("project_name", self.project_name.is_some(), matches!(scope, Some(Scope::Name(..)))),
            ("project_id", self.project_id.is_some(), matches!(scope, Some(Scope::Id(_)))),
            ("user_domain_name", self.user_domain_name.is_some(), is_named(user_domain)),
            ("user_domain_id", self.user_domain_id.is_some(), is_by_id(user_domain)),
            ("project_domain_name", self.project_domain_name.is_some(), is_named(project_domain)),
            ("project_domain_id", self.project_domain_id.is_some(), is_by_id(project_domain)),
            (
                "application_credential_id",
                self.application_credential_id.is_some(),
                matches!(credential, Some(Credential::Id(_))),
            ),
            (
                "application_credential_name",
                self.application_credential_name.is_some(),
                matches!(credential, Some(Credential::Name(..))),
            ),
            (
                "application_credential_secret",
                self.application_credential_secret.is_some(),
                credential.is_some(),
            ),
            (
                "application_credential_secret_file",
                self.application_credential_secret_file.is_some(),
                credential.is_some(),
            ),
        ];
        let mut wrong = Mistakes::default();
        for (option, given, used) in uses {
            if given && !used {
                let what = format!(
                    "has no part in the login that clouds.yaml and this section make together, which is by {way}"
                );
                wrong.add(AccessError::new(Places::in_section(option), what));
            }
        }
        if wrong.are_none() { Ok(()) } else { Err(wrong.into()) }
    }
}

fn is_named(domain: Option<&Domain>) -> bool {
    matches!(domain, Some(Domain::Name(_)))
}

fn is_by_id(domain: Option<&Domain>) -> bool {
    matches!(domain, Some(Domain::Id(_)))
}

/// Takes values from the section where it has them, and notes that they stand there.
struct Layers<'a> {
    places: &'a mut Places,
}

impl Layers<'_> {
    fn upper<T: Clone>(&mut self, option: &'static str, above: Option<&T>, below: Option<T>) -> Option<T> {
        let Some(value) = above else { return below };
        self.places.given.insert(option, Places::in_section(option));
        Some(value.clone())
    }

    /// Of two options of which one takes the place of the other: whichever stands above, none of those below counts.
    fn either<A: Clone, B: Clone>(
        &mut self,
        [one, other]: [&'static str; 2],
        above: (Option<&A>, Option<&B>),
        below: (Option<A>, Option<B>),
    ) -> (Option<A>, Option<B>) {
        let below = if above.0.is_some() || above.1.is_some() { (None, None) } else { below };
        (self.upper(one, above.0, below.0), self.upper(other, above.1, below.1))
    }
}
