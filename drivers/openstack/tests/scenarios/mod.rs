//! The guarantees of the drivers with any Neutron and Octavia: each scenario runs in a world of its own, be it the fake one of the
//! tests or the real services.

pub(crate) mod adoption;
pub(crate) mod balancers;
pub(crate) mod bound;
pub(crate) mod limits;
pub(crate) mod macvlan;
pub(crate) mod namespaces;
pub(crate) mod projects;
pub(crate) mod public;
pub(crate) mod repairs;
pub(crate) mod security_groups;
pub(crate) mod stock;
pub(crate) mod vip_ports;
pub(crate) mod vlan;
pub(crate) mod world;

/// Declares a test for each scenario, with the attributes `$attribute`. `$world` is an async function that returns a world.
macro_rules! in_world {
    ($(#[$attribute:meta])* $world:path) => {
        $crate::scenarios::in_world! { @ [$(#[$attribute])*] $world;
            bound:
                a_pod_gets_a_port_on_its_node_that_is_active_when_an_agent_wired_it,
                pods_that_come_together_each_get_the_port_that_was_made_for_them,
                a_port_is_given_back_once_and_by_its_owner_only,
                marks_are_those_of_one_cluster_and_where_asked_of_one_pod,
                a_vif_that_is_found_by_its_mark_is_the_one_that_was_made,
                a_binding_that_fails_is_an_error_and_leaves_no_port,
                a_port_that_somebody_removed_is_reported_by_name_and_given_back,
                what_an_annotation_calls_a_port_is_never_taken_for_a_path,
                a_port_that_kuryr_made_for_the_pod_is_given_back_and_a_foreign_one_is_not,
                only_a_port_of_the_pod_is_activated_and_those_of_kuryr_are_listed_with_their_pods;
            adoption:
                a_port_of_kuryr_gets_our_mark_and_keeps_all_that_its_traffic_depends_on,
                a_port_that_has_changed_since_it_was_listed_is_left_alone,
                a_subport_of_kuryr_stays_on_its_trunk_with_its_vlan,
                a_macvlan_port_of_kuryr_is_found_by_the_pair_that_allows_it_on_its_node,
                of_the_ports_of_kuryr_only_one_of_a_pool_that_nothing_uses_is_deleted,
                a_load_balancer_and_its_address_get_our_marks,
                the_network_of_a_namespace_is_marked_with_its_subnet,
                a_security_group_of_kuryr_is_deleted_when_no_port_has_it;
            namespaces:
                a_namespace_leads_its_pods_to_its_own_network_only;
            projects:
                a_port_in_another_project_is_not_ours_whatever_its_mark_says,
                a_public_address_in_another_project_is_not_ours_whatever_its_mark_says,
                a_load_balancer_in_another_project_is_not_ours_whatever_its_mark_says;
            limits:
                a_quota_makes_pods_wait_and_its_raising_lets_them_go_on,
                a_quota_is_read_with_the_number_in_use,
                a_full_subnet_is_reported_as_such_and_leaves_nothing,
                a_network_that_is_gone_is_reported_by_name,
                a_group_that_is_not_in_the_project_is_reported_with_the_project;
            vlan:
                a_pod_gets_a_subport_of_its_nodes_trunk,
                each_trunk_has_all_vlans_for_itself,
                a_vlan_that_another_controller_takes_meanwhile_is_not_used_twice,
                a_subport_that_was_left_half_made_is_finished,
                a_subport_that_was_left_half_made_is_no_vif_when_its_vlan_is_taken,
                a_subport_is_given_back_whatever_became_of_its_trunk,
                a_node_without_a_port_or_a_trunk_is_reported_by_name;
            macvlan:
                the_port_of_the_node_may_use_the_addresses_of_its_pods_as_long_as_they_live,
                pods_of_one_node_that_come_together_all_get_their_addresses,
                a_pair_that_was_left_out_is_added_when_the_vif_is_activated;
            security_groups:
                a_group_is_found_by_its_mark_and_has_just_the_rules_that_are_wanted,
                rules_that_exist_already_count_as_added,
                a_group_that_guards_a_port_stays_and_goes_with_the_rules_that_name_it_later,
                a_port_gets_other_groups_all_at_once,
                a_foreign_port_is_left_alone_whoever_names_it,
                quotas_of_groups_and_rules_are_reported_as_such,
                what_does_not_exist_is_reported_or_counts_as_removed;
            stock:
                ports_in_stock_are_listed_as_they_were_ordered_and_destroyed,
                a_port_in_stock_with_two_addresses_is_listed_as_it_was_made,
                a_stock_takes_what_a_quota_leaves_it,
                a_stock_takes_what_a_subnet_leaves_it,
                ports_in_stock_get_other_security_groups,
                subports_in_stock_have_their_vlans_and_free_them,
                what_was_left_half_made_is_listed_as_such_and_destroyed,
                a_stock_never_destroys_what_is_a_pods_or_another_clusters,
                what_is_in_stock_is_listed_without_an_owner_and_is_no_pods_to_release;
            balancers:
                a_load_balancer_is_made_with_its_whole_tree_and_read_as_it_was_asked_for,
                members_are_set_as_a_whole_and_those_that_stay_keep_their_ids,
                a_listener_that_comes_later_is_made_step_by_step_and_goes_with_its_pool,
                settings_are_changed_and_what_hangs_on_them_stays,
                ranges_take_the_place_of_security_groups_and_give_it_back,
                what_somebody_switched_off_is_reported_and_switched_on_again,
                a_load_balancer_is_given_back_once_and_by_its_owner_only,
                what_somebody_removed_is_reported_and_can_be_made_again,
                what_others_change_is_seen_by_lists,
                what_a_predecessor_made_is_marked_and_not_made_again,
                a_quota_is_reported_and_its_raising_lets_services_go_on,
                a_quota_of_listeners_or_pools_keeps_no_other_port_from_being_served,
                quotas_of_octavia_are_read_and_what_is_in_use_is_counted;
            vip_ports:
                the_port_of_the_address_may_be_ours_and_goes_with_the_load_balancer,
                a_load_balancer_is_guarded_alike_whoever_made_its_port,
                a_port_of_ours_goes_with_its_load_balancer_though_none_are_made_by_now,
                a_port_that_was_left_without_a_load_balancer_is_found_and_used_or_given_back;
            repairs:
                a_listener_that_is_wanted_again_while_it_goes_gets_a_pool_again,
                a_listener_that_somebody_removed_or_emptied_gets_the_pool_back_that_it_had,
                a_pool_of_somebody_else_is_hung_on_no_listener_of_ours,
                a_member_that_somebody_switched_off_is_switched_on_by_the_next_change_of_its_pool;
            public:
                an_address_out_of_the_pool_leads_to_the_port_and_goes_back_by_its_owner_only,
                an_empty_pool_is_reported_and_an_address_that_comes_back_is_used,
                an_address_that_the_user_named_must_exist_and_be_free_and_stays_the_users,
                an_address_that_a_predecessor_took_is_marked_and_not_taken_again,
                an_address_of_another_project_or_that_leads_elsewhere_is_left_alone;
        }
    };
    (@ $attributes:tt $world:path; $($module:ident: $($scenario:ident),+;)+) => {
        $(mod $module {
            $($crate::scenarios::in_world! { @test $attributes $world, $module, $scenario })+
        })+
    };
    (@test [$($attribute:tt)*] $world:path, $module:ident, $scenario:ident) => {
        #[tokio::test]
        $($attribute)*
        async fn $scenario() {
            $crate::scenarios::$module::$scenario(&$world().await).await;
        }
    };
}

pub(crate) use in_world;
