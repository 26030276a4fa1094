package linode

import "github.com/anyccm/cloud-controller-manager/providers/kit/conformance"

// plannedWrites are the writes that each kind of planned change makes.
var plannedWrites = []conformance.PlannedWrites{
	{Change: `create NodeBalancer (\S+) \(in`, Writes: []string{"POST /v4/nodebalancers"}},
	{
		Change: `change NodeBalancer (\S+) \(create port (\d+)`,
		Writes: []string{"POST /v4/nodebalancers/{id}/configs", "POST /v4/nodebalancers/{id}/configs/{id}/rebuild"},
	},
	{
		Change: `change NodeBalancer (\S+) \(add node to port (\d+)`,
		Writes: []string{"POST /v4/nodebalancers/{id}/configs/{id}/nodes"},
	},
	{
		Change: `change NodeBalancer \S+ \(remove node from port (\d+)`,
		Writes: []string{"DELETE /v4/nodebalancers/{id}/configs/{id}/nodes/{id}"},
	},
	{Change: `change NodeBalancer (\S+) \(delete port (\d+)`, Writes: []string{"DELETE /v4/nodebalancers/{id}/configs/{id}"}},
	{Change: `change NodeBalancer (\S+) \(update:`, Writes: []string{"PUT /v4/nodebalancers/{id}"}},
	{Change: `change NodeBalancer (\S+) \(update port (\d+)`, Writes: []string{"PUT /v4/nodebalancers/{id}/configs/{id}"}},
	{Change: `change NodeBalancer (\S+) \(rebuild port (\d+)`, Writes: []string{"POST /v4/nodebalancers/{id}/configs/{id}/rebuild"}},
	{
		Change: `change NodeBalancer (\S+) \(attach firewall`,
		Writes: []string{"POST /v4/networking/firewalls/{id}/devices"},
		Beside: []conformance.Beside{
			{Write: "PUT /v4/nodebalancers/{id}", Of: "$1", Most: 1},
		},
		Because: "a tag of the NodeBalancer notes whose the firewall is",
	},
	{
		Change: `change NodeBalancer \S+ \(detach firewall: firewall (\S+)\)`,
		Writes: []string{"DELETE /v4/networking/firewalls/{id}/devices/{id}"},
		Beside: []conformance.Beside{
			{Write: "PUT /v4/nodebalancers/{id}", Of: "anyccm-svc", Most: 1},
		},
		Because: "a tag of the NodeBalancer notes whose the firewall is",
	},
	{Change: `create firewall (\S+)`, Writes: []string{"POST /v4/networking/firewalls"}},
	{Change: `change firewall (\S+)`, Writes: []string{"PUT /v4/networking/firewalls/{id}/rules"}},
	{Change: `delete firewall (\S+)`, Writes: []string{"DELETE /v4/networking/firewalls/{id}"}},
}

// readAgain are the reasons for which a read is made again within a step.
var readAgain = []conformance.ReadAgain{
	{Reads: `GET /v4/vpcs/\{id\}/(ips|ipv6s)`, Most: 2, Because: "the filter, which is in a header, is another one"},
	{
		Reads:   "GET /v4/networking/firewalls",
		After:   "(POST|PUT) /v4/networking/firewalls.*",
		Because: "a firewall is read again after each of its changes",
	},
	{
		Reads:   `GET /v4/nodebalancers/\{id\}/configs/\{id\}/nodes`,
		After:   `POST /v4/nodebalancers/\{id\}/configs/\{id\}/rebuild`,
		Because: "a rebuild gives nodes other identities",
	},
	{
		Reads: "GET /v4/nodebalancers", Most: 1, Step: "tls-renewed/the Secret holds no certificate any more",
		Because: "a Service that is refused is looked at again after a while",
	},
}
