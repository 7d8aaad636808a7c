//! Runs the work for a node only while this process may act for it: as the leader, or as the holder of the node's Lease.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;

use crate::error::VirtualNodeError;
use crate::shared::Shared;

impl Shared {
    /// Runs `work`, which acts for the node, and checks before each poll that this process may act for it. If it may not, the
    /// work is dropped, which is not a failure: another process acts for the node, and starts from what Kubernetes and the
    /// machine show.
    pub(super) async fn fenced(
        &self,
        node: &str,
        work: impl Future<Output = Result<(), VirtualNodeError>>,
    ) -> Result<(), VirtualNodeError> {
        let mut work = pin!(work);
        poll_fn(|context| {
            if !self.config.source.may_act(node) {
                return Poll::Ready(Ok(()));
            }
            work.as_mut().poll(context)
        })
        .await
    }
}
