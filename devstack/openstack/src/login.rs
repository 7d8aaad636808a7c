//! The credentials of a controller.

/// The credentials of a user in a project, with the address of Keystone.
#[derive(Clone, Debug)]
pub struct Login {
    /// The URL of Keystone, with its version.
    pub auth_url: String,
    /// The user.
    pub username: String,
    /// The password.
    pub password: String,
    /// The name of the project.
    pub project: String,
}

impl Login {
    /// Returns a clouds.yaml whose only cloud is `staffetta`.
    #[must_use]
    pub fn clouds(&self) -> String {
        let Self { auth_url, username, password, project } = self;
        format!(
            "clouds:\n  staffetta:\n    region_name: RegionOne\n    auth:\n      auth_url: {auth_url}\n      \
             username: {username}\n      password: {password}\n      project_name: {project}\n      \
             user_domain_id: default\n      project_domain_id: default\n"
        )
    }
}
