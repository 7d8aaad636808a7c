//! A user who is logged in and sends requests to Neutron as a controller would, but without a driver.

use http::{Method, StatusCode};
use reqwest::Client;
use serde_json::{Value, json};

use crate::login::Login;

/// A user's token, and the endpoint of Neutron in the service catalogue.
pub struct User {
    http: Client,
    neutron: String,
    token: String,
}

impl User {
    pub(crate) async fn log_in(login: &Login) -> Self {
        let Login { auth_url, username, password, project } = login;
        let http = Client::builder().no_proxy().build().expect("a client of plain HTTP needs nothing");
        let domain = json!({ "id": "default" });
        let user = json!({ "name": username, "domain": domain, "password": password });
        let body = json!({ "auth": {
            "identity": { "methods": ["password"], "password": { "user": user } },
            "scope": { "project": { "name": project, "domain": domain } } } });
        let answer = http.post(format!("{auth_url}/auth/tokens")).json(&body).send().await;
        let answer = answer.expect("Keystone answers");
        let token = answer.headers().get("X-Subject-Token").and_then(|token| token.to_str().ok());
        let token =
            token.unwrap_or_else(|| panic!("{username} is not let in: {}", answer.status())).to_owned();
        let answer: Value = answer.json().await.expect("a token is JSON");
        let neutron = neutron(&answer).expect("the catalogue names Neutron").to_owned();
        Self { http, neutron, token }
    }

    /// Sends a request. Returns the status and the body of any response, or an error if there is none.
    pub async fn send(
        &self,
        method: Method,
        path: &str,
        body: Option<Value>,
    ) -> Result<(StatusCode, Value), String> {
        let mut request = self.http.request(method, format!("{}{path}", self.neutron));
        if let Some(body) = &body {
            request = request.json(body);
        }
        let answer =
            request.header("X-Auth-Token", &self.token).send().await.map_err(|error| error.to_string())?;
        let status = answer.status();
        let text = answer.text().await.map_err(|error| error.to_string())?;
        Ok((status, serde_json::from_str(&text).unwrap_or(Value::String(text))))
    }
}

fn neutron(answer: &Value) -> Option<&str> {
    let services = answer["token"]["catalog"].as_array()?;
    let network = services.iter().find(|service| service["type"] == "network")?;
    let endpoints = network["endpoints"].as_array()?;
    endpoints.iter().find(|endpoint| endpoint["interface"] == "public")?["url"].as_str()
}
