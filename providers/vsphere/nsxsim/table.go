package nsxsim

import "net/http"

// readWrite are the verbs that change what a caller may change.
var readWrite = []string{http.MethodPut, http.MethodPatch, http.MethodDelete}

// kinds are all that there are.
var kinds = []*kind{
	{
		collection: "/infra/lb-services", verbs: readWrite, types: []string{"LBService"},
		fields: map[string]func(any) error{
			"connectivity_path": isText, "enabled": isBool, "size": oneOf("DLB", "SMALL", "MEDIUM", "LARGE", "XLARGE"),
			"error_log_level": isText, "relax_scale_validation": isBool, "access_log_enabled": isBool,
		},
		references: map[string]string{"connectivity_path": "/infra/tier-1s"},
	},
	{
		collection: "/infra/lb-virtual-servers", verbs: readWrite, types: []string{"LBVirtualServer"},
		required: []string{"ip_address", "ports", "application_profile_path"},
		fields: map[string]func(any) error{
			"ip_address": isAddress, "ports": areOf(isPort), "application_profile_path": isText, "pool_path": isText, "lb_service_path": isText,
			"default_pool_member_ports": areOf(isPort), "enabled": isBool, "lb_persistence_profile_path": isText, "access_list_control": isAny,
			"max_concurrent_connections": isNumber, "access_log_enabled": isBool, "log_significant_event_only": isBool,
			"sorry_pool_path": isText,
		},
		references: map[string]string{
			"application_profile_path": "/infra/lb-app-profiles", "pool_path": "/infra/lb-pools", "lb_service_path": "/infra/lb-services",
			"sorry_pool_path": "/infra/lb-pools",
		},
	},
	{
		collection: "/infra/lb-pools", verbs: readWrite, types: []string{"LBPool"},
		fields: map[string]func(any) error{
			"members": areOf(isMember), "active_monitor_paths": areOf(isText), "passive_monitor_path": isText,
			"algorithm":          oneOf("ROUND_ROBIN", "WEIGHTED_ROUND_ROBIN", "LEAST_CONNECTION", "WEIGHTED_LEAST_CONNECTION", "IP_HASH"),
			"snat_translation":   isSNAT,
			"min_active_members": isNumber, "tcp_multiplexing_enabled": isBool, "tcp_multiplexing_number": isNumber,
		},
		references: map[string]string{
			"active_monitor_paths": "/infra/lb-monitor-profiles", "passive_monitor_path": "/infra/lb-monitor-profiles",
		},
	},
	{
		collection: "/infra/lb-monitor-profiles", verbs: readWrite,
		types: []string{"LBTcpMonitorProfile", "LBUdpMonitorProfile", "LBIcmpMonitorProfile", "LBHttpMonitorProfile"},
		fields: map[string]func(any) error{
			"monitor_port": isPortNumber, "interval": isNumber, "timeout": isNumber, "rise_count": isNumber, "fall_count": isNumber,
			"send": isText, "receive": isText,
		},
	},
	{collection: "/infra/lb-app-profiles", types: []string{typeFastTCP, typeFastUDP, "LBHttpProfile"}},
	{collection: "/infra/ip-pools", types: []string{"IpAddressPool"}},
	{
		collection: "/infra/ip-pools/*/ip-allocations", verbs: readWrite, types: []string{"IpAddressAllocation"}, immutable: true,
		fields: map[string]func(any) error{"allocation_ip": isAddress, "allocated_ip": isText, "sync_realization": isBool},
	},
	{collection: "/infra/tier-1s", types: []string{"Tier1"}},
	{
		collection: "/infra/tier-1s/*/static-routes", verbs: readWrite, types: []string{"StaticRoutes"}, required: []string{"network", "next_hops"},
		fields: map[string]func(any) error{"network": isNetwork, "next_hops": isHops, "enabled_on_secondary": isBool},
	},
}

// commonFields are the fields that every object may have, and those that NSX adds to it.
var commonFields = []string{
	"id", "display_name", "description", "tags", "path", "parent_path", "relative_path", "remote_path", "unique_id", "realization_id",
	"owner_id", "resource_type", "marked_for_delete", "overridden", "_revision", "_create_time", "_create_user", "_last_modified_time",
	"_last_modified_user", "_system_owned", "_protection",
}

// defaults are the values that NSX adds to objects created without them.
var defaults = map[string]map[string]any{
	"/infra/lb-pools":            {"algorithm": "ROUND_ROBIN", "min_active_members": 1.0, "tcp_multiplexing_enabled": false, "tcp_multiplexing_number": 6.0},
	"/infra/lb-monitor-profiles": {"interval": 5.0, "timeout": 5.0, "rise_count": 3.0, "fall_count": 3.0},
	"/infra/lb-virtual-servers":  {"enabled": true, "access_log_enabled": false, "log_significant_event_only": false},
	"/infra/lb-services":         {"enabled": true, "error_log_level": "INFO", "relax_scale_validation": false},
}

// treeCollections are where the children of a tree are.
var treeCollections = map[string]string{
	"LBService": "/infra/lb-services", "LBMonitorProfile": "/infra/lb-monitor-profiles", "LBPool": "/infra/lb-pools",
	"LBVirtualServer": "/infra/lb-virtual-servers",
}
