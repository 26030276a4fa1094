package oci

import "github.com/anyccm/cloud-controller-manager/providers/kit/conformance"

// plannedWrites are the writes that each kind of planned change makes.
var plannedWrites = []conformance.PlannedWrites{
	{
		Change: `create load balancer (\S+)`,
		Writes: []string{"POST /loadBalancers"},
		Beside: []conformance.Beside{
			{Write: "PUT /securityLists/{id}", Of: "aaaabalancers", Most: 1},
			{Write: "PUT /securityLists/{id}", Of: "aaaadefault", Most: 1},
		},
		Because: "plan ends at the load balancer: the rules follow from its addresses",
	},
	{
		Change: `create network load balancer (\S+)`,
		Writes: []string{"POST /networkLoadBalancers"},
		Beside: []conformance.Beside{
			{Write: "PUT /securityLists/{id}", Of: "aaaabalancers", Most: 1},
			{Write: "PUT /securityLists/{id}", Of: "aaaadefault", Most: 1},
		},
		Because: "plan ends at the load balancer: the rules follow from its addresses",
	},
	{
		Change: `change load balancer (\S+) \(network security groups`,
		Writes: []string{"PUT /loadBalancers/{id}/networkSecurityGroups"},
	},
	{Change: `change load balancer (\S+) \(shape`, Writes: []string{"PUT /loadBalancers/{id}/updateShape"}},
	{
		Change: `change network load balancer (\S+) \(network security groups`,
		Writes: []string{"PUT /networkLoadBalancers/{id}/networkSecurityGroups"},
	},
	{
		Change: `create backend set (\S+)`,
		Writes: []string{"POST /loadBalancers/{id}/backendSets | POST /networkLoadBalancers/{id}/backendSets"},
	},
	{
		Change: `change backend set (\S+)`,
		Writes: []string{"PUT /loadBalancers/{id}/backendSets/{name} | PUT /networkLoadBalancers/{id}/backendSets/{name}"},
	},
	{
		Change: `delete backend set (\S+)`,
		Writes: []string{"DELETE /loadBalancers/{id}/backendSets/{name} | DELETE /networkLoadBalancers/{id}/backendSets/{name}"},
	},
	{
		Change: `create listener (\S+)`,
		Writes: []string{"POST /loadBalancers/{id}/listeners | POST /networkLoadBalancers/{id}/listeners"},
	},
	{
		Change: `change listener (\S+)`,
		Writes: []string{"PUT /loadBalancers/{id}/listeners/{name} | PUT /networkLoadBalancers/{id}/listeners/{name}"},
	},
	{
		Change: `delete listener (\S+)`,
		Writes: []string{"DELETE /loadBalancers/{id}/listeners/{name} | DELETE /networkLoadBalancers/{id}/listeners/{name}"},
	},
	{Change: `create certificate (\S+)`, Writes: []string{"POST /loadBalancers/{id}/certificates"}},
	{Change: `delete certificate (\S+)`, Writes: []string{"DELETE /loadBalancers/{id}/certificates/{name}"}},
	{Change: `create rule set (\S+)`, Writes: []string{"POST /loadBalancers/{id}/ruleSets"}},
	{Change: `change security list (\S+)`, Writes: []string{"PUT /securityLists/{id}"}},
	{
		Change: `create network security group (\S+)`,
		Writes: []string{"POST /networkSecurityGroups"},
		Beside: []conformance.Beside{
			{Write: "POST /networkSecurityGroups/{id}/actions/addSecurityRules", Of: "service-uid aaaagroup3", Most: 2},
			{Write: "PUT /networkSecurityGroups/{id}", Of: "aaaagroup3", Most: 1},
		},
		Because: "its rules and its marks are part of it",
	},
	{
		Change: `change network security group (\S+) \(adding`,
		Writes: []string{"POST /networkSecurityGroups/{id}/actions/addSecurityRules"},
	},
	{Change: `change network security group (\S+) \(tag`, Writes: []string{"PUT /networkSecurityGroups/{id}"}},
	{Change: "delete network security group", Writes: []string{"DELETE /networkSecurityGroups/{id}"}},
	{
		Change: `change network security group (\S+) \(removing`,
		Writes: []string{"POST /networkSecurityGroups/{id}/actions/removeSecurityRules"},
	},
}

// readAgain are the reasons for which a read is made again within a step.
var readAgain = []conformance.ReadAgain{
	{Reads: `GET /securityLists/\{id\}`, Most: 4, Because: "a security list, which others write too, is read right before it is written"},
	{
		Reads:   "GET /vnicAttachments",
		Most:    1,
		Step:    "take-over/deleted",
		Because: "which subnets nodes are in is read again before their security lists are closed",
	},
	{
		Reads:   `GET /networkSecurityGroups/\{id\}`,
		After:   `PUT /networkSecurityGroups/\{id\}`,
		Because: "a group is read again after each of its changes",
	},
	{Reads: `GET /networkLoadBalancers/\{id\}`, Most: 4, Because: "a network load balancer is polled until it has settled"},
	{
		Reads:   `GET /loadBalancers/\{id\}`,
		After:   "(POST|PUT|DELETE) /loadBalancers.*",
		Because: "a load balancer takes the next change once the last one has ended",
	},
	{
		Reads:   "GET /(l|networkL)oadBalancers",
		After:   "(POST|PUT|DELETE) /(l|networkL)oadBalancers.*",
		Because: "the next change is computed from what the last one left",
	},
}
