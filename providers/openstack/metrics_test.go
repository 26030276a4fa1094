package openstack

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// TestMetricNames: the labels of OpenStack's own controller.
func TestMetricNames(t *testing.T) {
	t.Parallel()
	for operation, want := range map[string]string{
		"GET /compute/v2.1/servers/detail":                  "server_list",
		"GET /compute/v2.1/servers/{id}":                    "server_get",
		"GET /v2.0/ports":                                   "port_list",
		"PUT /networking/v2.0/ports/{id}":                   "port_update",
		"POST /networking/v2.0/floatingips":                 "floating_ip_create",
		"DELETE /networking/v2.0/security-groups/{id}":      "security_group_delete",
		"POST /networking/v2.0/security-group-rules":        "security_group_rule_create",
		"PUT /networking/v2.0/routers/{id}/add_extraroutes": "router_update",
		"GET /networking/v2.0/extensions":                   "network_extension_list",
		"POST /load-balancer/v2.0/lbaas/loadbalancers":      "loadbalancer_create",
		"GET /load-balancer/v2.0/lbaas/loadbalancers/{id}":  "loadbalancer_get",
		"PUT /load-balancer/v2.0/lbaas/pools/{id}/members":  "loadbalancer_members_update",
		"GET /load-balancer/v2.0/lbaas/pools/{id}/members":  "loadbalancer_member_list",
		"DELETE /load-balancer/v2.0/lbaas/pools/{id}":       "loadbalancer_pool_delete",
		"GET /load-balancer/v2.0/lbaas/healthmonitors/{id}": "loadbalancer_healthmonitor_get",
		"GET /load-balancer":                                "",
	} {
		assert.Equal(t, want, metricName(operation), operation)
	}
}
