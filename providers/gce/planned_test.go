package gce

import "github.com/anyccm/cloud-controller-manager/providers/kit/conformance"

// plannedWrites are the writes of each kind of planned change.
var plannedWrites = []conformance.PlannedWrites{
	{Change: `create health check (.+) \(`, Writes: []string{"POST httpHealthChecks | POST healthChecks"}},
	{Change: `change health check (\S+)`, Writes: []string{"PUT httpHealthChecks/{name} | PUT healthChecks/{name}"}},
	{Change: `delete health check (\S+)`, Writes: []string{"DELETE httpHealthChecks/{name} | DELETE healthChecks/{name}"}},
	{Change: `create target pool (\S+)`, Writes: []string{"POST targetPools"}},
	{Change: `change target pool (\S+) \(add`, Writes: []string{"POST targetPools/{name}/addInstance"}},
	{Change: `change target pool (\S+) \(remove`, Writes: []string{"POST targetPools/{name}/removeInstance"}},
	{Change: `change target pool (\S+) \(.*instead of`, Writes: []string{"POST targetPools/{name}/removeHealthCheck"}},
	{Change: `change target pool (\S+) \(.*health check`, Writes: []string{"POST targetPools/{name}/addHealthCheck"}},
	{Change: `delete target pool (\S+)`, Writes: []string{"DELETE targetPools/{name}"}},
	{Change: `create forwarding rule (\S+)`, Writes: []string{"POST forwardingRules", "POST forwardingRules/{name}/setLabels"}},
	{Change: `change forwarding rule (\S+) \(target pool`, Writes: []string{"POST forwardingRules/{name}/setTarget"}},
	{Change: `change forwarding rule (\S+) \(label`, Writes: []string{"POST forwardingRules/{name}/setLabels"}},
	{Change: `delete forwarding rule (\S+)`, Writes: []string{"DELETE forwardingRules/{name}"}},
	{Change: `create firewall rule (.+) \(`, Writes: []string{"POST firewalls"}},
	{Change: `change firewall rule (\S+)`, Writes: []string{"PATCH firewalls/{name}"}},
	{Change: `delete firewall rule (\S+)`, Writes: []string{"DELETE firewalls/{name}"}},
	{
		Change: `create instance group (.+) in (\S+)`,
		Writes: []string{"POST instanceGroups", "POST instanceGroups/{name}/addInstances"},
	},
	{Change: `delete instance group (\S+) in (\S+)`, Writes: []string{"DELETE instanceGroups/{name}"}},
	{Change: `create backend service (.+) \(`, Writes: []string{"POST backendServices"}},
	{Change: `change backend service (\S+)`, Writes: []string{"PATCH backendServices/{name}"}},
	{Change: `delete backend service (\S+)`, Writes: []string{"DELETE backendServices/{name}"}},
	{Change: `create address (\S+)`, Writes: []string{"POST addresses"}},
	{Change: `delete address (\S+)`, Writes: []string{"DELETE addresses/{name}"}},
}

// readAgain are the reasons for which a read is made again within a step.
var readAgain = []conformance.ReadAgain{
	{Reads: `GET operations/\{name\}`, Most: 16, Because: "an operation is polled until it has ended"},
	{
		Reads:   "GET (forwardingRules|addresses|firewalls|healthChecks|httpHealthChecks|targetPools)",
		After:   "(POST|DELETE) .*",
		Because: "the next change is computed from what the last one left",
	},
}
