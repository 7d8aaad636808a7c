//! Combines reads of instances: those that are requested while another read is in progress become one request.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::sync::Arc;

use parking_lot::Mutex;
use staffetta_driver::prefix::PrimaryInterface;
use staffetta_driver::{DriverError, InstanceId, Reason};
use tokio::sync::oneshot;

/// The primary interface of each instance, or the reason why it cannot be used. Instances that do not exist, that end, or that have no
/// interface yet are missing.
pub(crate) type InterfacesById = BTreeMap<InstanceId, Result<PrimaryInterface, DriverError>>;

/// The result of a read of instances, which several callers share.
type SharedRead = Result<Arc<InterfacesById>, DriverError>;

/// A combiner of the reads of instances by several callers: those that arrive during a read wait for its end, and share the next read.
#[derive(Default)]
pub(crate) struct CombinedReads {
    /// The callers that wait for the next read: the instances that each requests, and the channel for the result.
    waiting: Mutex<Vec<(Vec<InstanceId>, oneshot::Sender<SharedRead>)>>,
    /// The lock of the caller that reads for all callers that wait.
    reading: tokio::sync::Mutex<()>,
}

impl CombinedReads {
    /// Returns the primary interfaces of the instances `ids`, read together with those that other callers request meanwhile. Only one of
    /// these callers calls its `read`, with the ids of all.
    pub(crate) async fn read<F>(
        &self,
        ids: &[InstanceId],
        read: impl FnOnce(Vec<InstanceId>) -> F,
    ) -> Result<BTreeMap<InstanceId, PrimaryInterface>, DriverError>
    where
        F: Future<Output = Result<InterfacesById, DriverError>>,
    {
        let (sender, receiver) = oneshot::channel();
        self.waiting.lock().push((ids.to_vec(), sender));
        {
            let _reading = self.reading.lock().await;
            let waiting = std::mem::take(&mut *self.waiting.lock());
            if !waiting.is_empty() {
                let all: BTreeSet<_> = waiting.iter().flat_map(|(ids, _)| ids.iter().cloned()).collect();
                let result = read(all.into_iter().collect()).await.map(Arc::new);
                for (_, sender) in waiting {
                    // A caller that was cancelled needs no result.
                    let _ = sender.send(result.clone());
                }
            }
        }
        // The caller that read for this one may have been cancelled.
        let cancelled = || DriverError::new(Reason::Unavailable, "read instances together with others");
        let all = receiver.await.map_err(|_| cancelled())??;
        let found = ids.iter().filter_map(|id| Some((id.clone(), all.get(id)?.clone())));
        found.map(|(id, interface)| Ok((id, interface?))).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn interface(id: &InstanceId) -> PrimaryInterface {
        PrimaryInterface {
            id: format!("eni-{id}").as_str().into(),
            subnet: "subnet-1".into(),
            subnet_length: 24,
            addresses_per_interface: 10,
            delegates_prefixes: true,
            blocks: BTreeSet::new(),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn reads_that_arrive_during_another_one_are_one_request_and_each_gets_its_own_part() {
        let (reads, requests) = (Arc::new(CombinedReads::default()), Arc::new(Mutex::new(Vec::new())));
        let tasks = (0..20).map(|number| {
            let (reads, requests) = (Arc::clone(&reads), Arc::clone(&requests));
            tokio::spawn(async move {
                let id = InstanceId::from(format!("i-{number}"));
                let read = |ids: Vec<InstanceId>| async move {
                    requests.lock().push(ids.len());
                    tokio::time::sleep(Duration::from_secs(1)).await;
                    let refused = || Err(DriverError::new(Reason::Unsupported, "read"));
                    let of =
                        |id: &InstanceId| if id.as_str() == "i-7" { refused() } else { Ok(interface(id)) };
                    Ok(ids.iter().map(|id| (id.clone(), of(id))).collect())
                };
                let result = reads.read(std::slice::from_ref(&id), read).await;
                assert_eq!(result.is_err(), number == 7, "the error of one harms no other");
                result.is_ok_and(|found| found.keys().eq([&id]))
            })
        });
        let tasks: Vec<_> = tasks.collect();
        for (number, task) in tasks.into_iter().enumerate() {
            assert_eq!(task.await.unwrap(), number != 7);
        }
        assert_eq!(*requests.lock(), [1, 19]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_caller_that_is_cancelled_while_it_reads_for_others_leaves_them_an_error_and_no_wait() {
        let reads = Arc::new(CombinedReads::default());
        let ids = [InstanceId::from("i-1")];
        let hanging = async |_: Vec<InstanceId>| std::future::pending().await;
        let first = tokio::time::timeout(Duration::from_secs(1), reads.read(&ids, hanging));
        let second = async {
            tokio::time::sleep(Duration::from_millis(500)).await;
            reads
                .read(&ids, async |ids| Ok(ids.iter().map(|id| (id.clone(), Ok(interface(id)))).collect()))
                .await
        };
        let (first, second) = tokio::join!(first, second);
        assert!(first.is_err() && second.is_ok_and(|found| found.len() == 1));
    }
}
