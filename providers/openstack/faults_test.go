package openstack

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
	"github.com/anyccm/cloud-controller-manager/providers/openstack/openstacksim"
)

// TestSilentKeystone: a login has a deadline, the first one and every later one.
func TestSilentKeystone(t *testing.T) {
	t.Parallel()
	w := newTestWorld(t, "[Metadata]\nrequest-timeout = 1s\n", nil)
	_, err := w.server.AddFault(simkit.Fault{Kind: simkit.FaultHang, Operation: "/auth/tokens"})
	require.NoError(t, err)
	began := time.Now()
	err = w.CheckAPI(t.Context())
	require.ErrorContains(t, err, "no answer within 1s")
	assert.Less(t, time.Since(began), loginTimeout)
	w.server.ClearFaults()
	w.restart()
	require.NoError(t, w.CheckAPI(t.Context()))
	w.sim.RevokeTokens()
	_, err = w.server.AddFault(simkit.Fault{Kind: simkit.FaultHang, Operation: "/auth/tokens"})
	require.NoError(t, err)
	_, _, err = w.api.listServers(t.Context())
	require.ErrorContains(t, err, "no answer within 1s")
}

// TestNetworkWithoutSubnet: with network-id alone, Octavia chooses the subnet of a load balancer, so that the members of its creation name
// none. Security groups and nodes that join later find it, and the first members are not written again for it.
func TestNetworkWithoutSubnet(t *testing.T) {
	t.Parallel()
	w, s := served(t, "network-id = "+firstNet+"\nmanage-security-groups = true\n", web(nil))
	assert.Equal(t, []string{"tcp 30080 10.0.0.0/16"}, groupRules(w))
	w.addNode(openstacksim.Spec{Name: "n3"})
	w.update(s)
	subnets := map[string]string{}
	for _, m := range w.sim.Pools()[0].BackendMembers() {
		subnets[m.Name] = valueOf(m.SubnetID)
	}
	assert.Equal(t, map[string]string{"n1": "", "n2": "", "n3": firstSubnet}, subnets)
	w.requireNoWrites(s)
}

// TestNodesOfAClass: a change of nodes uses the same subnet as the creation, also with a class that names none.
func TestNodesOfAClass(t *testing.T) {
	t.Parallel()
	w, s := served(t, "[LoadBalancerClass \"plain\"]\nfloating-subnet = public*\n", web(map[string]string{annotationClass: "plain"}))
	w.addNode(openstacksim.Spec{Name: "n3"})
	w.update(s)
	for _, m := range w.sim.Pools()[0].BackendMembers() {
		assert.Equal(t, firstSubnet, valueOf(m.SubnetID), m.Name)
	}
}

// TestTagsOfOthers: a listener keeps the tags that somebody else gave it.
func TestTagsOfOthers(t *testing.T) {
	t.Parallel()
	u, reason := listenerChanges(
		listener{Tags: []string{"theirs"}, ConnectionLimit: -1}, listenerRequest{Tags: []string{"kube_service_a_b_c"}, ConnectionLimit: -1},
	)
	assert.Equal(t, "tags", reason)
	assert.Equal(t, []string{"theirs", "kube_service_a_b_c"}, *u.Tags)
	_, reason = listenerChanges(
		listener{Tags: []string{"theirs", "kube_service_a_b_c"}, ConnectionLimit: -1},
		listenerRequest{Tags: []string{"kube_service_a_b_c"}, ConnectionLimit: -1},
	)
	assert.Empty(t, reason)
}

// TestRules: the rules of a security group, and when two are the same.
func TestRules(t *testing.T) {
	t.Parallel()
	s := service("web", nil, servicePort("a", 80, 30080), servicePort("b", 90, 0))
	prefixes := []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24"), netip.MustParsePrefix("2001:db8::/32")}
	rules, err := wantedRules(s, settings{cidrs: prefixes}, "10.0.0.0/16", "amphora")
	require.NoError(t, err)
	one := securityRule{Direction: "ingress", EtherType: "IPv4", Protocol: "tcp", Min: 30080, Max: 30080, Prefix: "10.0.0.0/16"}
	assert.Equal(t, []securityRule{one}, rules, "a port without a node port opens nothing")
	rules, err = wantedRules(s, settings{cidrs: prefixes}, "10.0.0.0/16", providerOVN)
	require.NoError(t, err)
	require.Len(t, rules, 2)
	assert.Equal(t, []string{"IPv4", "IPv6"}, []string{rules[0].EtherType, rules[1].EtherType}, "each range is of its own family")
	rules, err = wantedRules(s, settings{}, "2001:db8:1::/64", "amphora")
	require.NoError(t, err)
	assert.Equal(t, "IPv6", rules[0].EtherType)
	other := one
	other.ID, other.GroupID, other.Protocol = "x", "y", "TCP"
	assert.True(t, one.same(other))
	other.Max = 30081
	assert.False(t, one.same(other))
	other = one
	other.Prefix = "10.0.0.0/8"
	assert.False(t, one.same(other))
}

// TestGuestsOfAnotherName: a cluster of another name that shares a load balancer renames nothing of it, even if its Service
// has the same name.
func TestGuestsOfAnotherName(t *testing.T) {
	t.Parallel()
	w, first := served(t, "", web(nil))
	guest := w.anotherCluster("elsewhere", "share-across-namespaces = true\n")
	s := named(service("web", map[string]string{annotationID: first.Annotations[annotationID]}, servicePort("x", 90, 30090)), "web")
	guest.Apply(s)
	s, _ = guest.ensure(s)
	assert.Equal(t, "kube_service_kubernetes_default_web", w.sim.LoadBalancers()[0].Name)
	guest.restart()
	guest.requireNoWrites(s)
	w.requireNoWrites(first)
	require.NoError(t, w.remove(first), "its own listeners are found")
	assert.Len(t, w.sim.Listeners(), 1)
	require.NoError(t, guest.remove(s))
	assert.Empty(t, w.sim.LoadBalancers())
}

// TestBusyOctavia: a change that Octavia refuses because it is busy is made later, and nothing is read twice for that.
func TestBusyOctavia(t *testing.T) {
	t.Parallel()
	w, s := served(t, "", web(nil))
	w.sim.ChangeLoadBalancer(s.Annotations[annotationID], func(lb *openstacksim.LoadBalancer) { lb.UpdatedAt = "2026-02-03T04:05:06" })
	_, err := w.server.AddFault(simkit.Fault{Kind: simkit.FaultStatus, Status: 409, Operation: "PUT /load-balancer/v2.0/lbaas/listeners/{id}", Count: 1})
	require.NoError(t, err)
	w.changed(s, func(s *v1.Service) { s.Annotations[annotationConnectionLimit] = "5" })
	assert.Equal(t, 5, w.sim.Listeners()[0].ConnectionLimit)
}

// TestChangesByHand: what somebody changes in Octavia is seen at the next look, because the load balancer tells when it was
// changed last.
func TestChangesByHand(t *testing.T) {
	t.Parallel()
	w, s := served(t, "", web(nil))
	w.requireNoWrites(s)
	pool := w.sim.Pools()[0].ID
	w.sim.ChangePool(pool, func(p *openstacksim.Pool) { p.Algorithm = "SOURCE_IP" })
	w.sim.ChangeLoadBalancer(s.Annotations[annotationID], func(lb *openstacksim.LoadBalancer) { lb.UpdatedAt = "2026-02-03T04:05:06" })
	w.loadBalancers.observed.Invalidate(s.Annotations[annotationID]) // as if the view had aged
	w.ensure(s)
	assert.Equal(t, "ROUND_ROBIN", w.sim.Pools()[0].Algorithm)
}

// TestQuota: what the project may not have more of is told on the Service.
func TestQuota(t *testing.T) {
	t.Parallel()
	for kind, want := range map[string]string{"loadbalancer": "Quota has been met", "floatingip": "Quota exceeded"} {
		w := newTestWorld(t, "", func(s *openstacksim.Sim) { s.SetQuota(kind, 0) })
		w.addNode(openstacksim.Spec{Name: "n1"})
		s := web(nil)
		w.Apply(s)
		_, err := w.try(s)
		require.ErrorIs(t, err, cloudapi.ErrQuota, kind)
		assert.Contains(t, strings.Join(w.Events(), "\n"), want)
	}
}

// TestNoSecretInErrors: neither the password nor a token is in an error.
func TestNoSecretInErrors(t *testing.T) {
	t.Parallel()
	w := newTestWorld(t, "", nil)
	var all []string
	for _, f := range []simkit.Fault{
		{Kind: simkit.FaultStatus, Status: 400},
		{Kind: simkit.FaultReset},
		{Kind: simkit.FaultHTML},
		{Kind: simkit.FaultCut},
		{Kind: simkit.FaultStatus, Status: 401},
	} {
		w.restart()
		id, err := w.server.AddFault(f)
		require.NoError(t, err)
		all = append(all, w.CheckAPI(t.Context()).Error())
		w.server.RemoveFault(id)
		w.restart() // a failed login is believed for a moment
		require.NoError(t, w.CheckAPI(t.Context()))
		id, err = w.server.AddFault(f)
		require.NoError(t, err)
		_, _, err = w.api.listServers(t.Context())
		all = append(all, err.Error())
		w.server.RemoveFault(id)
	}
	text := strings.Join(all, "\n")
	assert.NotContains(t, text, openstacksim.Password)
	assert.NotContains(t, text, "gAAAA")
}

// TestFaultsOfServices: the class of each service's faults.
func TestFaultsOfServices(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		status int
		body   string
		want   error
	}{
		{404, `{"itemNotFound": {"code": 404, "message": "Instance x could not be found."}}`, cloudapi.ErrNotFound},
		{404, `{"NeutronError": {"type": "PortNotFound", "message": "Port x could not be found.", "detail": ""}}`, cloudapi.ErrNotFound},
		{404, `{"faultcode": "Client", "faultstring": "Load Balancer x not found.", "debuginfo": null}`, cloudapi.ErrNotFound},
		{404, `{"code": 404, "title": "Not Found", "description": "Not Found."}`, cloudapi.ErrNotFound},
		{404, `<html>404</html>`, cloudapi.ErrTransient},
		{404, `{}`, cloudapi.ErrTransient},
		{404, ``, cloudapi.ErrTransient},
		{401, `<html>401</html>`, cloudapi.ErrUnauthorized},
		{403, `{"faultstring": "Policy does not allow this request to be performed."}`, cloudapi.ErrUnauthorized},
		{403, `{"faultstring": "Quota has been met for resources: Load Balancer"}`, cloudapi.ErrQuota},
		{403, `<html>WAF</html>`, cloudapi.ErrTransient},
		{409, `{"NeutronError": {"type": "OverQuota", "message": "Quota exceeded", "detail": ""}}`, cloudapi.ErrQuota},
		{409, `{"NeutronError": {"type": "IpAddressGenerationFailure", "message": "No more IP addresses", "detail": ""}}`, cloudapi.ErrQuota},
		{409, `{"faultstring": "Load Balancer x is immutable and cannot be updated."}`, cloudapi.ErrConflict},
		{412, `{"NeutronError": {"type": "RevisionNumberConstraintFailed", "message": "Constrained", "detail": ""}}`, cloudapi.ErrConflict},
		{413, `{"overLimit": {"code": 413, "message": "slow down"}}`, cloudapi.ErrRateLimited},
		{429, `slow down`, cloudapi.ErrRateLimited},
		{400, `{"badRequest": {"code": 400, "message": "no"}}`, cloudapi.ErrInvalid},
		{503, `<html>gone</html>`, cloudapi.ErrTransient},
	} {
		kind, message, recognised := readFault([]byte(c.body))
		assert.Equal(t, c.want, classOf(c.status, kind, message, recognised), "%d %s", c.status, c.body)
	}
}

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
