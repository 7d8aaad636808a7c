//! Faults of a server and of the connection to it, as clients see them. The same tests run on the embedded server,
//! through a proxy before it, and through a proxy before the real server that `STAFFETTA_REAL_KUBERNETES` names.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod answers;
mod connections;
mod embedded;
mod proxy;
mod watches;
mod world;

macro_rules! on_every_way {
    ($($module:ident :: $test:ident,)*) => {
        mod on_the_embedded_server {
            $(
                #[tokio::test]
                async fn $test() {
                    crate::$module::$test(&crate::world::World::embedded().await).await;
                }
            )*
        }

        mod through_a_proxy {
            $(
                #[tokio::test]
                async fn $test() {
                    crate::$module::$test(&crate::world::World::proxied().await).await;
                }
            )*
        }

        mod through_a_proxy_on_a_real_server {
            $(
                #[tokio::test]
                #[ignore = "needs a real Kubernetes: devstack/real/test real_server"]
                async fn $test() {
                    let world = crate::world::World::real().await;
                    crate::$module::$test(&world).await;
                    world.clean_up().await;
                }
            )*
        }
    };
}

on_every_way! {
    answers::a_refusal_hits_the_requests_it_names_as_often_as_it_says,
    answers::an_answer_can_be_chosen_to_the_letter,
    answers::a_fault_can_be_for_what_a_body_says,
    answers::an_answer_can_be_garbage,
    answers::an_object_can_be_shown_as_nobody_can_read_it,
    answers::dates_can_be_wrong,
    answers::the_record_tells_reads_from_writes,
    answers::faults_that_have_not_happened_can_be_forgotten,
    connections::a_cut_request_is_done_or_not_as_the_fault_says,
    connections::an_answer_can_break_off_in_the_middle,
    connections::a_request_can_hang_and_another_be_late,
    connections::a_request_that_hangs_is_done_or_not_as_the_fault_says,
    connections::requests_can_be_held_back_until_they_are_let_go,
    connections::an_outage_cuts_everybody_off_and_loses_nothing,
    watches::watches_can_be_cut_and_resumed,
    watches::a_watch_can_be_cut_in_the_middle_of_an_event,
    watches::a_silent_watch_neither_ends_nor_tells_anything,
    watches::an_event_can_be_garbage_and_the_next_one_is_not,
    watches::an_object_can_be_reported_as_nobody_can_read_it,
    watches::a_watch_can_say_that_its_version_is_gone,
}
