package vsphere

import "github.com/anyccm/cloud-controller-manager/providers/kit/conformance"

// plannedWrites are the writes that each kind of planned change makes.
var plannedWrites = []conformance.PlannedWrites{
	{Change: "create IP allocation", Writes: []string{"PATCH /policy/api/v1/infra/ip-pools/{id}/ip-allocations/{id}"}},
	{Change: "create NSX load balancer", Writes: []string{"PATCH /policy/api/v1/infra"}},
	{
		Change: `change pool (\S+)`, Writes: []string{"PUT /policy/api/v1/infra/lb-pools/{id}"},
		Unordered: "a change of nodes takes pools by their identities: none depends on another one",
	},
	{Change: `change monitor profile (\S+)`, Writes: []string{"PUT /policy/api/v1/infra/lb-monitor-profiles/{id}"}},
	{Change: `change virtual server (\S+)`, Writes: []string{"PUT /policy/api/v1/infra/lb-virtual-servers/{id}"}},
	{Change: `delete pool (\S+)`, Writes: []string{"DELETE /policy/api/v1/infra/lb-pools/{id}"}},
	{Change: `delete monitor profile (\S+)`, Writes: []string{"DELETE /policy/api/v1/infra/lb-monitor-profiles/{id}"}},
	{Change: `delete virtual server (\S+)`, Writes: []string{"DELETE /policy/api/v1/infra/lb-virtual-servers/{id}"}},
}

// readAgain are the reasons for which a read is made again within a step.
var readAgain = []conformance.ReadAgain{
	{
		Reads:   "GET /policy/api/v1/infra/realized-state/realized-entities",
		Most:    1,
		Because: "NSX is polled until it has done what was written",
	},
	{
		Reads:   `GET /policy/api/v1/infra/ip-pools/\{id\}/ip-allocations`,
		After:   `PATCH /policy/api/v1/infra/ip-pools/\{id\}/ip-allocations/\{id\}`,
		Because: "NSX takes an address out of the pool after it answered",
	},
}
