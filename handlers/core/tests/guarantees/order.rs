//! Guarantees 1 and 3: order and coalescing, with several threads.

use std::collections::HashMap;

use crate::message::TestMessage;
use proptest::prelude::*;
use staffetta_handler::{Change, Message};

use crate::support::Scribe;

/// The interleaved events of a few objects: each is added, changes, and may be deleted for good.
fn lives() -> impl Strategy<Value = Vec<TestMessage>> {
    prop::collection::vec((0..5_u8, 0..12_u8), 1..200).prop_map(|steps| {
        let mut versions = HashMap::<u8, Option<u64>>::new();
        let mut messages = Vec::new();
        for (object, step) in steps {
            let uid = format!("o{object}");
            match versions.get(&object).copied() {
                None => {
                    versions.insert(object, Some(0));
                    messages.push(TestMessage::added(&uid));
                }
                Some(Some(_)) if step == 0 => {
                    versions.insert(object, None);
                    messages.push(TestMessage::deleted(&uid));
                }
                Some(Some(version)) => {
                    versions.insert(object, Some(version + 1));
                    messages.push(TestMessage::modified(&uid, version + 1));
                }
                Some(None) => {}
            }
        }
        messages
    })
}

fn run(messages: &[TestMessage]) -> Scribe {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(4).enable_all().build().unwrap();
    runtime.block_on(async {
        let scribe = Scribe::succeeding();
        let chain = scribe.chain(false);
        let feeder = chain.clone();
        let messages = messages.to_vec();
        tokio::spawn(async move {
            for (place, message) in messages.into_iter().enumerate() {
                feeder.push(message);
                if place % 7 == 0 {
                    tokio::task::yield_now().await;
                }
            }
        })
        .await
        .unwrap();
        chain.until_busy_at_most(0).await;
        assert_eq!(chain.queues(), 0, "an idle key has no queue");
        scribe
    })
}

fn by_object(messages: &[TestMessage]) -> HashMap<String, Vec<TestMessage>> {
    let mut objects = HashMap::<_, Vec<_>>::new();
    for message in messages {
        objects.entry(message.uid().to_owned()).or_default().push(message.clone());
    }
    objects
}

fn is_subsequence(part: &[TestMessage], whole: &[TestMessage]) -> bool {
    let mut rest = whole.iter();
    part.iter().all(|message| rest.any(|other| other == message))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn coalescing_skips_but_never_reorders_and_never_loses_the_last_state(messages in lives()) {
        let scribe = run(&messages);
        prop_assert_eq!(scribe.overlaps(), 0);
        let handled = scribe.by_object();
        for (uid, sent) in by_object(&messages) {
            let seen = handled.get(&uid).cloned().unwrap_or_default();
            prop_assert!(is_subsequence(&seen, &sent), "{seen:?} of {sent:?}");
            prop_assert_eq!(seen.last(), sent.last());
            if sent.last().map(Message::change) != Some(Change::Deleted) {
                prop_assert_eq!(seen.first(), sent.first(), "an Added is dropped only by its own Deleted");
            }
        }
    }
}
