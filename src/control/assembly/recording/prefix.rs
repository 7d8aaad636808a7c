//! Records calls to drivers that assign addresses to the interfaces of nodes.

use std::collections::BTreeMap;

use async_trait::async_trait;
use ipnet::Ipv4Net;
use staffetta_driver::prefix::{Assigned, BlockKind, PrefixProvider, PrimaryInterface};
use staffetta_driver::{DriverError, InstanceId, InterfaceId, Reason};

use super::{Recording, list};

#[async_trait]
impl PrefixProvider for Recording<dyn PrefixProvider> {
    async fn interfaces(
        &self,
        instances: &[InstanceId],
    ) -> Result<BTreeMap<InstanceId, PrimaryInterface>, DriverError> {
        self.driver.interfaces(instances).await
    }

    /// Records the call, and returns an error: the addresses that the provider would choose cannot be known.
    async fn assign(&self, interface: &InterfaceId, kind: BlockKind, count: usize) -> Assigned {
        let what = if kind == BlockKind::Prefix { "assign prefixes" } else { "assign addresses" };
        self.record(None, self.call(what).with("interface", interface).with("count", count));
        let error = DriverError::new(Reason::Refused, what).detail("this is a dry run");
        Assigned { blocks: Vec::new(), error: Some(error) }
    }

    async fn unassign(&self, interface: &InterfaceId, blocks: &[Ipv4Net]) -> Result<(), DriverError> {
        let call = self.call("remove addresses").with("interface", interface).with("blocks", list(blocks));
        self.record(None, call);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use staffetta_memory::{MemoryPrefixes, PrefixCalls};

    use super::super::testing::Calls;
    use super::*;

    #[tokio::test]
    async fn assignments_are_recorded_and_not_made() {
        let (cloud, calls) = (Arc::new(MemoryPrefixes::default()), Calls::default());
        cloud.add_subnet(&"subnet-1".into(), "10.0.0.0/24".parse().unwrap());
        cloud.add_machine(&"i-1".into(), &"subnet-1".into(), 10, true);
        let driver = calls.record::<dyn PrefixProvider>(Arc::clone(&cloud) as _);
        let interface = driver.interfaces(&["i-1".into()]).await.unwrap().remove(&InstanceId::from("i-1"));
        let interface = interface.unwrap().id;
        assert!(driver.assign(&interface, BlockKind::Prefix, 2).await.error.is_some());
        driver.unassign(&interface, &["10.0.0.16/28".parse().unwrap()]).await.unwrap();
        let expected = [
            "assign prefixes: interface eni-i-1; count 2",
            "remove addresses: interface eni-i-1; blocks 10.0.0.16/28",
        ];
        assert_eq!(calls.take(), expected);
        assert_eq!(cloud.calls(), PrefixCalls { interfaces: 1, ..PrefixCalls::default() });
    }
}
