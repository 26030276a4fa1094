package cloudstack

import "github.com/anyccm/cloud-controller-manager/providers/kit/conformance"

// plannedWrites are the writes that each kind of planned change makes.
var plannedWrites = []conformance.PlannedWrites{
	{Change: "create public address", Writes: []string{"associateIpAddress"}},
	{Change: `create load balancer rule (\S+)`, Writes: []string{"createLoadBalancerRule"}},
	{Change: `change load balancer rule (\S+) \(.*(?:behind it|join)\)`, Writes: []string{"assignToLoadBalancerRule"}},
	{Change: `change load balancer rule (\S+) \(.*leave\)`, Writes: []string{"removeFromLoadBalancerRule"}},
	{Change: `change load balancer rule \S+ \(name`, Writes: []string{"updateLoadBalancerRule"}},
	{Change: `change load balancer rule (\S+)`, Writes: []string{"updateLoadBalancerRule"}},
	{Change: `delete load balancer rule (\S+)`, Writes: []string{"deleteLoadBalancerRule"}},
	{Change: `create stickiness policy of load balancer rule (\S+)`, Writes: []string{"createLBStickinessPolicy"}},
	{Change: `delete stickiness policy (\S+)`, Writes: []string{"deleteLBStickinessPolicy"}},
	{Change: `create firewall rule for (\w+) port (\d+)`, Writes: []string{"createFirewallRule"}},
	{Change: `delete firewall rule for (\w+) port (\d+)`, Writes: []string{"deleteFirewallRule"}},
	{Change: `create network ACL item for (\w+) port (\d+)`, Writes: []string{"createNetworkACL"}},
	{Change: `delete network ACL item for (\w+) port (\d+)`, Writes: []string{"deleteNetworkACL"}},
}

// readAgain are the reasons for which a read is made again within a step.
var readAgain = []conformance.ReadAgain{
	{Reads: "queryAsyncJobResult", Most: 10, Because: "a job is polled until it has ended"},
	{
		Reads:   "listLoadBalancerRules",
		Most:    1,
		Step:    "shared-address/the one that took it is deleted",
		Because: "whether others use the address is read right before it is given up",
	},
}
