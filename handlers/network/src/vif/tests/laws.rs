//! Property: whatever fails and whenever the controller restarts, a living pod has one VIF and a
//! deleted one none.

use proptest::prelude::*;
use staffetta_driver::{DriverError, Reason};
use staffetta_handler::GarbageCollector;
use staffetta_memory::{Fault, VifMethod};

use super::*;

#[derive(Clone, Debug)]
enum Mishap {
    Driver(VifMethod, Fault),
    Api(Answer),
    Change,
    Restart,
}

fn mishap() -> impl Strategy<Value = Mishap> {
    let outage = || DriverError::new(Reason::Unavailable, "answer");
    let method = prop_oneof![
        Just(VifMethod::Request),
        Just(VifMethod::Release),
        Just(VifMethod::Activate),
        Just(VifMethod::List)
    ];
    let fault = prop_oneof![
        Just(Fault::Fail(outage())),
        Just(Fault::Hang),
        Just(Fault::DoneThenFail(outage())),
        Just(Fault::DoneThenHang),
    ];
    let answer = prop_oneof![
        Just(Answer::Broken),
        Just(Answer::Lost),
        Just(Answer::Refuse(403, vec![])),
        Just(Answer::Refuse(503, vec![])),
        Just(Answer::Overtaken),
    ];
    prop_oneof![
        4 => (method, fault).prop_map(|(method, fault)| Mishap::Driver(method, fault)),
        4 => answer.prop_map(Mishap::Api),
        1 => Just(Mishap::Change),
        1 => Just(Mishap::Restart),
    ]
}

/// Delivers the pod once for each mishap, each time for a minute at most.
async fn live_through(world: &mut World, mishaps: Vec<Mishap>) {
    for mishap in mishaps {
        match mishap {
            Mishap::Driver(method, fault) => world.vifs.faults().inject(method, 1, fault),
            Mishap::Api(answer) => world.api.answer(answer),
            Mishap::Change => world.api.change(|pod| pod["metadata"]["labels"] = json!({ "app": "web" })),
            Mishap::Restart => {
                world.restart();
                // A leader whose recovery failed does not start.
                let recovered =
                    async || tokio::time::timeout(Duration::from_secs(60), world.handler.recover()).await;
                while !matches!(recovered().await, Ok(Ok(()))) {}
            }
        }
        let _ = tokio::time::timeout(Duration::from_secs(60), world.event()).await;
    }
}

/// Delivers the pod until it is up to date.
async fn come_to_rest(world: &World) {
    for _ in 0..100 {
        let before = world.api.object();
        let handled = tokio::time::timeout(Duration::from_secs(60), world.event()).await;
        if matches!(handled, Ok(Ok(()))) && world.api.object() == before {
            return;
        }
        tokio::time::advance(Duration::from_secs(1)).await;
    }
    panic!("it never becomes up to date");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]
    #[test]
    fn a_pod_has_one_vif_while_it_lives_and_none_after_its_deletion(
        early in prop::collection::vec(mishap(), 0..8),
        late in prop::collection::vec(mishap(), 0..8),
        annotated in any::<bool>(),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let mut world = world();
            live_through(&mut world, early).await;
            if annotated {
                come_to_rest(&world).await;
                let shown = world.shown().expect("a pod at rest shows its VIF");
                assert!(shown.default_vif.active);
                assert_eq!(world.ports(), [shown.default_vif.id]);
            }
            world.delete(30);
            let before = world.ports();
            live_through(&mut world, late).await;
            if world.shown().is_some() {
                assert_eq!(world.ports(), before, "a terminating pod keeps its VIF");
            }
            world.delete(0);
            come_to_rest(&world).await;
            world.assert_released();
        });
    }
}
