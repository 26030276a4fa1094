package ibm

import "github.com/anyccm/cloud-controller-manager/providers/kit/conformance"

// plannedWrites are the writes that each kind of planned change makes.
var plannedWrites = []conformance.PlannedWrites{
	{Change: `create load balancer (\S+)`, Writes: []string{"POST /v1/load_balancers"}},
	{Change: `change load balancer (\S+)`, Writes: []string{"PATCH /v1/load_balancers/{id}"}},
	{Change: `create pool (\S+)`, Writes: []string{"POST /v1/load_balancers/{id}/pools"}},
	{Change: `change pool \S+ \(members\)`, Writes: []string{"PUT /v1/load_balancers/{id}/pools/{id}/members"}},
	{Change: "change pool", Writes: []string{"PATCH /v1/load_balancers/{id}/pools/{id}"}},
	{Change: `delete pool (\S+)`, Writes: []string{"DELETE /v1/load_balancers/{id}/pools/{id}"}},
	{Change: `create listener (\S+ \S+)`, Writes: []string{"POST /v1/load_balancers/{id}/listeners"}},
	{Change: `change listener (\S+ \S+)`, Writes: []string{"PATCH /v1/load_balancers/{id}/listeners/{id}"}},
	{Change: `delete listener (\S+ \S+)`, Writes: []string{"DELETE /v1/load_balancers/{id}/listeners/{id}"}},
	{Change: `create security group (\S+)`, Writes: []string{"POST /v1/security_groups"}},
	{Change: `delete security group (\S+)`, Writes: []string{"DELETE /v1/security_groups/{id}"}},
	{Change: `change security group (\S+) \(attached`, Writes: []string{"PUT /v1/security_groups/{id}/targets/{id}"}},
	{Change: `change security group (\S+) \(detached`, Writes: []string{"DELETE /v1/security_groups/{id}/targets/{id}"}},
	{
		Change: `change security group (\S+) \(.*rule`,
		Writes: []string{"POST /v1/security_groups/{id}/rules | DELETE /v1/security_groups/{id}/rules/{id}"},
	},
}

// readAgain are the reasons for which a read is made again within a step.
var readAgain = []conformance.ReadAgain{
	{
		Reads:   `GET /v1/load_balancers/\{id\}`,
		After:   `(POST|PUT|PATCH|DELETE) /v1/(load_balancers/\{id\}/.*|security_groups/\{id\}/targets/\{id\})`,
		Because: "a load balancer takes the next change once it is active again",
	},
}
