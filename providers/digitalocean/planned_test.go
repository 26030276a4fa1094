package digitalocean

import "github.com/anyccm/cloud-controller-manager/providers/kit/conformance"

// plannedWrites are the writes that each kind of planned change makes.
var plannedWrites = []conformance.PlannedWrites{
	{
		Change: `create load balancer (\S+)`,
		Writes: []string{"POST /v2/load_balancers"},
		Beside: []conformance.Beside{
			{Write: "PUT /v2/firewalls/{id}", Of: "public-access", Most: 1},
		},
		Because: "the public firewall is the cluster's, and a loop writes it",
	},
	{Change: `change load balancer (\S+) \(add droplets`, Writes: []string{"POST /v2/load_balancers/{id}/droplets"}},
	{Change: `change load balancer (\S+) \(remove droplets`, Writes: []string{"DELETE /v2/load_balancers/{id}/droplets"}},
	{
		Change: `change load balancer (\S+) \(tag it`,
		Writes: []string{"POST /v2/tags/{name}/resources"},
		Beside: []conformance.Beside{
			{Write: "POST /v2/tags/{name}/resources", Of: "$1", Most: 2},
		},
		Because: "each tag is a write",
	},
	{Change: `change load balancer (\S+) \(replace`, Writes: []string{"PUT /v2/load_balancers/{id}"}},
}
