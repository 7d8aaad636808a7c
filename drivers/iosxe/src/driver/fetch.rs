//! Reads a resource of the device as what it says.

use serde::de::DeserializeOwned;
use staffetta_driver::{DriverError, Reason};

use crate::model::read;
use crate::model::resource::Resource;
use crate::restconf::NetworkClient;

/// What a resource says. One in which there is nothing says nothing.
pub(super) async fn fetch<T: DeserializeOwned + Default>(
    client: &dyn NetworkClient,
    resource: Resource,
    step: &'static str,
) -> Result<T, DriverError> {
    let body = client.get(resource, step).await?;
    parsed(resource, body.as_deref(), step)
}

/// What the answer of a resource says.
pub(super) fn parsed<T: DeserializeOwned + Default>(
    resource: Resource,
    body: Option<&[u8]>,
    step: &'static str,
) -> Result<T, DriverError> {
    let Some(body) = body else { return Ok(T::default()) };
    read(body, resource.container()).map_err(|error| {
        let unreadable = DriverError::new(Reason::Unavailable, step);
        unreadable.detail("the answer is not what it should be").because(error)
    })
}
