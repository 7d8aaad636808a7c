//! HTTP: requests and responses, TLS, and the URLs of services.

mod client;
mod response;
mod tls;
mod url;

pub(crate) use self::client::{HttpClient, HttpRequest};
pub(crate) use self::response::HttpResponse;
pub use self::tls::CloudError;
pub(crate) use self::url::{service_root, url_below};
