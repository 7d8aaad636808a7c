//! Conformance tests of the API, by verb and resource. Each test runs three times: against the embedded server,
//! through a proxy before it, and against the real server that `STAFFETTA_REAL_KUBERNETES` names. Where they differ,
//! the embedded server is wrong.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod conditions;
mod deletes;
mod dry_runs;
mod events;
mod harness;
mod lifecycle;
mod lists;
mod patches;
mod pods;
mod reads;
mod rows;
mod services;
mod watches;
mod writes;

macro_rules! on_all_servers {
    ($($module:ident :: $test:ident,)*) => {
        mod on_the_embedded_server {
            $(
                #[tokio::test]
                async fn $test() {
                    crate::harness::on_the_embedded_server(crate::$module::$test).await;
                }
            )*
        }

        mod through_a_proxy {
            $(
                #[tokio::test]
                async fn $test() {
                    crate::harness::through_a_proxy(crate::$module::$test).await;
                }
            )*
        }

        mod on_a_real_server {
            $(
                #[tokio::test]
                #[ignore = "needs a real Kubernetes: devstack/real/test real_server"]
                async fn $test() {
                    crate::harness::on_a_real_server(crate::$module::$test).await;
                }
            )*
        }
    };
}

on_all_servers! {
    writes::create_gives_an_object_its_identity,
    writes::create_refuses_what_it_cannot_store,
    reads::get_finds_what_was_created,
    reads::list_selects_by_label_and_by_name,
    reads::watch_tells_of_a_whole_life,
    writes::replace_wants_the_version_it_replaces,
    writes::replace_of_what_is_not_there_creates_it_where_that_is_allowed,
    patches::merge_patch_changes_what_it_names,
    patches::json_patch_tests_before_it_changes,
    patches::strategic_merge_patch_is_for_built_in_kinds,
    patches::patch_that_changes_nothing_is_no_write,
    patches::status_and_spec_are_written_apart,
    patches::scale_is_the_replicas_alone,
    deletes::delete_answers_and_removes,
    deletes::delete_collection_takes_what_is_selected,
    reads::discovery_names_every_row,
    reads::tables_and_metadata_are_forms_of_every_list,
    reads::access_is_decided_by_cluster_roles,
    dry_runs::a_dry_create_answers_with_what_would_be,
    dry_runs::a_dry_change_answers_with_what_would_be,
    dry_runs::a_dry_delete_leaves_the_object,
    dry_runs::a_dry_finalize_leaves_the_namespace,
    dry_runs::a_deletion_with_a_body_does_not_look_at_the_query,
    dry_runs::a_dry_run_of_another_name_is_refused,
    dry_runs::a_dry_run_knows_what_is_special_to_pods,
    conditions::uid_and_version_guard_every_write,
    conditions::finalizers_hold_an_object_until_they_are_gone,
    conditions::annotations_have_a_limit_in_all,
    conditions::names_labels_and_finalizers_have_a_form,
    conditions::paths_that_lead_nowhere_are_404,
    conditions::bodies_that_are_not_objects_are_refused,
    lists::pages_show_one_revision,
    lists::versions_of_a_list_are_honoured_or_refused,
    lists::selectors_that_cannot_be_read_are_400,
    watches::a_watch_resumes_where_it_is_asked_to,
    watches::a_watch_without_a_version_begins_with_what_is_there,
    watches::selectors_make_objects_come_and_go,
    watches::initial_events_end_with_a_bookmark,
    watches::a_bad_version_is_refused,
    pods::a_pod_on_a_node_ends_with_grace,
    pods::a_pod_that_nobody_runs_ends_at_once,
    pods::the_last_finalizer_ends_a_pod_only_when_its_grace_is_over,
    pods::finalizers_merge_and_are_taken_away_one_by_one,
    pods::a_binding_names_the_node_once,
    pods::a_pod_spec_stays_as_it_was_made,
    pods::defaults_are_filled_in,
    services::a_service_gets_and_keeps_its_address,
    services::a_change_of_type_takes_what_belonged_to_it,
    services::what_a_service_lacks_is_named,
    lifecycle::a_namespace_ends_with_its_content,
    lifecycle::a_namespace_with_a_finalizer_says_that_it_is_empty_and_waits,
    lifecycle::dependents_follow_their_owner,
    lifecycle::orphans_stay_without_their_owner,
    lifecycle::a_definition_is_served_and_takes_its_objects_along,
    events::an_event_reads_the_same_in_both_groups,
    events::an_event_says_who_what_why_and_when,
    events::what_an_event_said_changes_through_the_older_group_alone,
}
