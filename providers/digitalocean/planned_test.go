package digitalocean

import "github.com/anyccm/cloud-controller-manager/providers/kit/conformance"

// plannedWrites are the writes that each kind of planned change makes.
var plannedWrites = []conformance.PlannedWrites{
	{Change: `create load balancer (\S+)`, Writes: []string{"POST /v2/load_balancers"}},
	{Change: `change load balancer (\S+) \(add droplets`, Writes: []string{"POST /v2/load_balancers/{id}/droplets"}},
	{Change: `change load balancer (\S+) \(remove droplets`, Writes: []string{"DELETE /v2/load_balancers/{id}/droplets"}},
	{
		Change:  `change load balancer (\S+) \(tag it`,
		Writes:  []string{"POST /v2/tags/{name}/resources"},
		Beside:  []string{"POST /v2/tags/{name}/resources"},
		Because: "each tag is a write",
	},
	{Change: `change load balancer (\S+) \(replace`, Writes: []string{"PUT /v2/load_balancers/{id}"}},
}
