package linode

import (
	"strings"
	"sync"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
)

// requestsTotal keeps the name and labels of Linode's own controller, for existing dashboards. It counts each page of a listing.
var requestsTotal = metrics.NewCounterVec(&metrics.CounterOpts{
	Name: "ccm_linode_client_requests_total", StabilityLevel: metrics.ALPHA, Help: "Calls to Linode's API by the name of the SDK's method.",
}, []string{"method", "result"})

var registerMetrics = sync.OnceFunc(func() { legacyregistry.MustRegister(requestsTotal) })

// methods maps operations, without the version, to the SDK's names of our calls.
var methods = map[string]string{
	"GET profile": "GetProfile", "GET regions/{id}": "GetRegion", "GET linode/instances": "ListInstances", "GET linode/instances/{id}": "GetInstance",
	"PUT linode/instances/{id}/interfaces/{id}":              "UpdateInterface",
	"PUT linode/instances/{id}/configs/{id}/interfaces/{id}": "UpdateInstanceConfigInterface",
	"GET vpcs": "ListVPCs", "GET vpcs/{id}/subnets": "ListVPCSubnets", "GET vpcs/{id}/ips": "ListVPCIPAddresses", "GET vpcs/{id}/ipv6s": "ListVPCIPv6Addresses",
	"GET nodebalancers": "ListNodeBalancers", "GET nodebalancers/{id}": "GetNodeBalancer", "POST nodebalancers": "CreateNodeBalancer",
	"PUT nodebalancers/{id}": "UpdateNodeBalancer", "DELETE nodebalancers/{id}": "DeleteNodeBalancer",
	"GET nodebalancers/{id}/vpcs":    "ListNodeBalancerVPCConfigs",
	"GET nodebalancers/{id}/configs": "ListNodeBalancerConfigs", "POST nodebalancers/{id}/configs": "CreateNodeBalancerConfig",
	"PUT nodebalancers/{id}/configs/{id}": "UpdateNodeBalancerConfig", "DELETE nodebalancers/{id}/configs/{id}": "DeleteNodeBalancerConfig",
	"POST nodebalancers/{id}/configs/{id}/rebuild": "RebuildNodeBalancerConfig", "GET nodebalancers/{id}/configs/{id}/nodes": "ListNodeBalancerNodes",
	"POST nodebalancers/{id}/configs/{id}/nodes": "CreateNodeBalancerNode", "DELETE nodebalancers/{id}/configs/{id}/nodes/{id}": "DeleteNodeBalancerNode",
	"GET networking/firewalls": "ListFirewalls", "GET networking/firewalls/{id}": "GetFirewall", "POST networking/firewalls": "CreateFirewall",
	"PUT networking/firewalls/{id}": "UpdateFirewall", "PUT networking/firewalls/{id}/rules": "UpdateFirewallRules", "DELETE networking/firewalls/{id}": "DeleteFirewall",
	"GET networking/firewalls/{id}/devices": "ListFirewallDevices", "POST networking/firewalls/{id}/devices": "CreateFirewallDevice",
	"DELETE networking/firewalls/{id}/devices/{id}": "DeleteFirewallDevice", "GET networking/reserved/ips/{id}": "GetReservedIPAddress",
	"DELETE networking/reserved/ips/{id}": "DeleteReservedIPAddress",
}

// methodOf names an operation such as "GET /v4/nodebalancers/{id}".
func methodOf(operation string) string {
	verb, path, _ := strings.Cut(operation, " ")
	_, rest, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	return methods[verb+" "+rest]
}

func countCall(operation string, err error) {
	result := "ok"
	if err != nil {
		result = "error"
	}
	if method := methodOf(operation); method != "" {
		requestsTotal.WithLabelValues(method, result).Inc()
	}
}
