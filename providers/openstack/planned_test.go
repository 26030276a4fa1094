package openstack

import "github.com/anyccm/cloud-controller-manager/providers/kit/conformance"

// plannedWrites are the writes that each kind of planned change makes.
var plannedWrites = []conformance.PlannedWrites{
	{Change: `create load balancer (\S+) \(.* with`, Writes: []string{"POST /load-balancer/v2.0/lbaas/loadbalancers"}},
	{
		Change: `change load balancer \S+ \(create listener`,
		Writes: []string{
			"POST /load-balancer/v2.0/lbaas/listeners", "POST /load-balancer/v2.0/lbaas/pools",
			"PUT /load-balancer/v2.0/lbaas/pools/{id}/members", "POST /load-balancer/v2.0/lbaas/healthmonitors",
		},
	},
	{
		Change: `change load balancer \S+ \(create pool: protocol`,
		Writes: []string{
			"POST /load-balancer/v2.0/lbaas/pools", "PUT /load-balancer/v2.0/lbaas/pools/{id}/members",
			"POST /load-balancer/v2.0/lbaas/healthmonitors", "PUT /load-balancer/v2.0/lbaas/listeners/{id}",
			"DELETE /load-balancer/v2.0/lbaas/pools/{id}",
		},
	},
	{Change: `change load balancer \S+ \(add member`, Writes: []string{"POST /load-balancer/v2.0/lbaas/pools/{id}/members"}},
	{
		Change: `change load balancer \S+ \(create health monitor`,
		Writes: []string{"POST /load-balancer/v2.0/lbaas/healthmonitors"},
	},
	{Change: `change load balancer \S+ \(update listener`, Writes: []string{"PUT /load-balancer/v2.0/lbaas/listeners/{id}"}},
	{Change: `change load balancer \S+ \(update pool`, Writes: []string{"PUT /load-balancer/v2.0/lbaas/pools/{id}"}},
	{
		Change: `change load balancer (\S+) \(update load balancer`,
		Writes: []string{"PUT /load-balancer/v2.0/lbaas/loadbalancers/{id}"},
	},
	{
		Change: `change load balancer \S+ \(update health monitor`,
		Writes: []string{"PUT /load-balancer/v2.0/lbaas/healthmonitors/{id}"},
	},
	{
		Change: `change load balancer \S+ \(set members`,
		Writes: []string{"PUT /load-balancer/v2.0/lbaas/pools/{id}/members"},
	},
	{Change: `change load balancer \S+ \(delete listener`, Writes: []string{"DELETE /load-balancer/v2.0/lbaas/listeners/{id}"}},
	{Change: `change load balancer \S+ \(delete pool`, Writes: []string{"DELETE /load-balancer/v2.0/lbaas/pools/{id}"}},
	{
		Change: `change load balancer \S+ \(delete health monitor`,
		Writes: []string{"DELETE /load-balancer/v2.0/lbaas/healthmonitors/{id}"},
	},
	{
		Change: `change load balancer \S+ \(remove member`,
		Writes: []string{"DELETE /load-balancer/v2.0/lbaas/pools/{id}/members/{id}"},
	},
	{Change: "create floating address", Writes: []string{"POST /networking/v2.0/floatingips"}},
	{Change: `change security group \S+ \(open`, Writes: []string{"POST /networking/v2.0/security-group-rules"}},
	{Change: `change security group \S+ \(close`, Writes: []string{"DELETE /networking/v2.0/security-group-rules/{id}"}},
	{Change: `change port (\S+) \(`, Writes: []string{"PUT /networking/v2.0/ports/{id}"}},
	{
		Change: `create security group (\S+)`,
		Writes: []string{"POST /networking/v2.0/security-groups"},
		Beside: []conformance.Beside{
			{Write: "POST /networking/v2.0/security-group-rules", Of: "$1", Most: 3},
			{Write: "DELETE /networking/v2.0/security-group-rules/{id}", Of: "rule/egress", Most: 2},
			{Write: "PUT /networking/v2.0/ports/{id}", Of: "port/worker $1", Most: 3},
		},
		Because: "its rules and the ports that have it are part of it",
	},
}

// readAgain are the reasons for which a read is made again within a step.
var readAgain = []conformance.ReadAgain{
	{
		Reads:   `GET /load-balancer/v2.0/lbaas/loadbalancers/\{id\}`,
		After:   "(POST|PUT|DELETE) /load-balancer/.*",
		Because: "Octavia takes the next change of a load balancer once it is ACTIVE again",
	},
	{
		Reads:   `GET /load-balancer/v2.0/lbaas/(listeners|pools|healthmonitors|pools/\{id\}/members)`,
		After:   "(POST|PUT|DELETE) /load-balancer/.*",
		Because: "the parts are read again when updated_at has changed, by whose change it may be",
	},
	{
		Reads:   "GET /load-balancer/v2.0/lbaas/loadbalancers",
		After:   `DELETE /load-balancer/v2.0/lbaas/loadbalancers/\{id\}`,
		Because: "Octavia deletes a load balancer after it answered",
	},
}
