//! The steps of the demo and their expected results.

use std::time::{Duration, Instant};

use ipnet::IpNet;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Service};
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::{timeout, timeout_at};

use crate::follow::Followed;
use crate::judge::{self, Elsewhere};
use crate::news::{Ending, News};
use crate::read::Objects;
use crate::samples;
use crate::stack::Stack;

/// The API is read again no sooner than this after the last time, however much happens.
const INTERVAL: Duration = Duration::from_millis(50);

/// The interval at which the state outside of the cluster is judged again while nothing happens in the API.
const OUTSIDE: Duration = Duration::from_millis(500);

/// The initial number of addresses in the subnet of the namespace `edge`.
const ADDRESSES: u32 = 5;

/// The samples on their way through the devstack.
pub(crate) struct Scenario<'a> {
    pub(crate) stack: &'a Stack,
    pub(crate) followed: Followed,
    pub(crate) news: mpsc::UnboundedSender<News>,
    /// The time limit.
    pub(crate) deadline: Instant,
    pub(crate) endings: Vec<Ending>,
}

/// A step did not come about; its ending says why.
pub(crate) struct Failed;

impl Scenario<'_> {
    /// Plays all steps, or as many as come about.
    pub(crate) async fn play(&mut self) -> Result<(), Failed> {
        let client = self.stack.client.clone();
        self.step(
            "a shop of 18 pods and 3 services comes up",
            samples::apply(&client, samples::SHOP),
            judge::reasons,
        )
        .await?;

        self.limit_addresses(Some(ADDRESSES));
        let full = |objects: &Objects| judge::not_full(objects, "edge", ADDRESSES as usize);
        self.step(
            "8 more pods: their subnet runs full, 3 wait",
            samples::apply(&client, samples::EDGE),
            full,
        )
        .await?;

        self.limit_addresses(None);
        self.step("the subnet gets more addresses, the 3 go on", std::future::ready(Ok(())), judge::reasons)
            .await?;

        let image = json!([{ "name": "web", "image": "shop/web:2" }]);
        let roll = self.change("web", json!({ "spec": { "template": { "spec": { "containers": image } } } }));
        let rolled = |objects: &Objects| judge::not_rolled(objects, "shop/web", "shop/web:2");
        self.step("the web front rolls to a new image", roll, rolled).await?;

        let scale = self.change("api", json!({ "spec": { "replicas": 2 } }));
        self.step("the API is scaled down to 2 pods", scale, judge::reasons).await?;

        let delete = self.delete("reports");
        let gone = |objects: &Objects| judge::not_deleted(objects, "shop/reports");
        self.step("the reports are deleted with their service", delete, gone).await?;

        let stack = self.stack;
        let hosted = |objects: &Objects| {
            let (pods, running) = stack.devices.pods();
            judge::not_hosted(objects, &pods, running)
        };
        self.step(
            "two routers run 4 pods, each an app there",
            samples::apply(&client, samples::BRANCH),
            |objects: &Objects| match hosted(objects) {
                reasons if reasons.is_empty() && stack.devices.pods().1 == 0 => {
                    vec!["the routers run nothing".into()]
                }
                reasons => reasons,
            },
        )
        .await?;

        let delete = self.delete_deployment("branch", "gateway");
        let gone = |objects: &Objects| {
            let gone = judge::not_deleted(objects, "branch/gateway");
            hosted(objects).into_iter().chain(gone).collect()
        };
        self.step("they are deleted, and nothing is left on the routers", delete, gone).await?;

        let addressed = |objects: &Objects| judge::not_addressed(objects, &stack.interfaces.blocks());
        self.step(
            "a Windows node has prefixes, 3 pods have addresses of them",
            samples::apply(&client, samples::WINDOWS),
            |objects: &Objects| match addressed(objects) {
                reasons if reasons.is_empty() && stack.interfaces.blocks().is_empty() => {
                    vec!["the node has no prefix".into()]
                }
                reasons => reasons,
            },
        )
        .await?;

        let end = self.end_addresses();
        let gone = |objects: &Objects| {
            let gone = judge::not_deleted(objects, "office/terminal");
            let left =
                stack.interfaces.blocks().into_iter().map(|block| format!("the prefix {block} is left"));
            gone.into_iter().chain(left).collect()
        };
        self.step("they are deleted, and the function is switched off: no prefix is left", end, gone).await?;

        let loaded = |count, wanted: &'static [&str]| {
            move |objects: &Objects| judge::not_loaded(objects, &stack.bases.modules(), count, wanted)
        };
        let begin = async {
            samples::apply(&client, samples::MODULES).await?;
            stack.bases.start().await.map_err(|error| kube::Error::Service(error.into()))
        };
        self.step(
            "three Java bases become nodes, and each loads a module",
            begin,
            loaded(3, &["cart:1.0.0"]),
        )
        .await?;

        let join = async { stack.bases.add().await.map_err(|error| kube::Error::Service(error.into())) };
        self.step("a fourth base joins, and the Deployment follows", join, loaded(4, &["cart:1.0.0"]))
            .await?;

        let delete = self.delete_deployment("java", "cart");
        self.step("the Deployment is deleted, and the bases unload the module", delete, loaded(4, &[]))
            .await?;

        let left = |objects: &Objects| judge::leaks(objects, &elsewhere(stack));
        self.step("nothing is left behind", std::future::ready(Ok(())), left).await
    }

    /// Does something and waits until the API shows that all has come about.
    async fn step(
        &mut self,
        step: &'static str,
        act: impl Future<Output = kube::Result<()>>,
        judge: impl Fn(&Objects) -> Vec<String>,
    ) -> Result<(), Failed> {
        let began = Instant::now();
        self.tell(News::Began(step));
        let reasons = match act.await {
            Ok(()) => self.until(judge).await,
            Err(error) => vec![error.to_string()],
        };
        let failed = !reasons.is_empty();
        let ending = Ending { step, took: began.elapsed(), reasons };
        self.tell(News::Ended(ending.clone()));
        self.endings.push(ending);
        if failed { Err(Failed) } else { Ok(()) }
    }

    /// Reads the API whenever something changed, and at intervals, until the judge has no objection left or time is up.
    async fn until(&mut self, judge: impl Fn(&Objects) -> Vec<String>) -> Vec<String> {
        let deadline = self.deadline.into();
        let mut reasons = vec!["the API was not read once in time".to_owned()];
        loop {
            self.followed.changes.mark_unchanged();
            match timeout_at(deadline, Objects::read(&self.stack.client)).await {
                Ok(Ok(objects)) => reasons = judge(&objects),
                Ok(Err(error)) => reasons = vec![format!("the API cannot be read: {error}")],
                Err(_) => return reasons,
            }
            if reasons.is_empty() {
                return reasons;
            }
            let change = async {
                tokio::time::sleep(INTERVAL).await;
                timeout(OUTSIDE, self.followed.changes.changed()).await
            };
            // An inner time-out: nothing changed in the API, but perhaps outside.
            if !matches!(timeout_at(deadline, change).await, Ok(Ok(Ok(())) | Err(_))) {
                return reasons;
            }
        }
    }

    fn limit_addresses(&self, limit: Option<u32>) {
        let subnet: IpNet = "10.20.0.0/28".parse().expect("it is a subnet");
        self.stack.network.set_address_limit(subnet, limit);
    }

    fn change(
        &self,
        deployment: &'static str,
        patch: Value,
    ) -> impl Future<Output = kube::Result<()>> + use<> {
        let deployments: Api<Deployment> = Api::namespaced(self.stack.client.clone(), "shop");
        async move {
            let patch = Patch::Strategic(patch);
            deployments.patch(deployment, &PatchParams::default(), &patch).await.map(drop)
        }
    }

    fn delete_deployment(
        &self,
        namespace: &'static str,
        deployment: &'static str,
    ) -> impl Future<Output = kube::Result<()>> + use<> {
        let deployments: Api<Deployment> = Api::namespaced(self.stack.client.clone(), namespace);
        async move { deployments.delete(deployment, &DeleteParams::background()).await.map(drop) }
    }

    /// Deletes the pods of the Windows node, and switches off what gives them addresses.
    fn end_addresses(&self) -> impl Future<Output = kube::Result<()>> + use<> {
        let delete = self.delete_deployment("office", "terminal");
        let maps: Api<ConfigMap> = Api::namespaced(self.stack.client.clone(), "kube-system");
        async move {
            delete.await?;
            let off = Patch::Merge(json!({ "data": { "enable-windows-ipam": "false" } }));
            maps.patch("amazon-vpc-cni", &PatchParams::default(), &off).await.map(drop)
        }
    }

    fn delete(&self, both: &'static str) -> impl Future<Output = kube::Result<()>> + use<> {
        let client = self.stack.client.clone();
        async move {
            let deployments: Api<Deployment> = Api::namespaced(client.clone(), "shop");
            deployments.delete(both, &DeleteParams::background()).await?;
            let services: Api<Service> = Api::namespaced(client, "shop");
            services.delete(both, &DeleteParams::background()).await.map(drop)
        }
    }

    fn tell(&self, news: News) {
        // Nobody listens any more when standard output is closed.
        let _ = self.news.send(news);
    }
}

/// The resources in the simulated cloud.
fn elsewhere(stack: &Stack) -> Elsewhere {
    let balancers = stack.services.load_balancers().into_iter();
    let public_ips = stack.services.public_ips().into_iter().filter_map(|(owner, _)| owner);
    Elsewhere {
        ports: stack.network.ports().into_iter().map(|port| port.vif.id.to_string()).collect(),
        load_balancers: balancers.map(|(_, balancer)| balancer.name).collect(),
        public_ips: public_ips.map(|owner| format!("{}/{}", owner.namespace, owner.name)).collect(),
    }
}
