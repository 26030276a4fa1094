package ibm

import (
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/ibm/ibmsim"
	"github.com/anyccm/cloud-controller-manager/providers/kit/conformance"
)

// leftBalancers returns the objects that IBM's own controller leaves. The requests are written down by hand, from what it is known to send.
func leftBalancers(t testing.TB, sim *ibmsim.Sim, f *conformance.Fixture) map[string]conformance.Left {
	t.Helper()
	leave := func(annotations map[string]string, change map[string]any, edit func(*v1.Service)) func([]*v1.Node) *v1.Service {
		return func(nodes []*v1.Node) *v1.Service {
			s := conformance.Service("web", maps.Clone(annotations), conformance.Port("http", 80, 30080))
			edit(s)
			in := f.Inputs()
			in.Dial = f.Network.Dial
			c, err := maker().New(in)
			require.NoError(t, err)
			defer c.HTTP.Close()
			body := leftBody(sim, s, nodes)
			maps.Copy(body, change)
			var made struct{ Hostname string }
			q := request{what: "making it", method: "POST", path: "/load_balancers", in: body}
			require.NoError(t, c.reconciler.api.call(t.Context(), q, &made))
			time.Sleep(time.Minute)
			s.Status.LoadBalancer.Ingress = []v1.LoadBalancerIngress{{Hostname: made.Hostname}}
			return s
		}
	}
	same := func(*v1.Service) {}
	local := func(s *v1.Service) {
		s.Spec.ExternalTrafficPolicy, s.Spec.HealthCheckNodePort = v1.ServiceExternalTrafficPolicyLocal, 32000
	}
	return map[string]conformance.Left{
		"plain":   {Leave: leave(nil, nil, same)},
		"local":   {Leave: leave(nil, nil, local)},
		"private": {Leave: leave(map[string]string{annotationIPType: typePrivate}, map[string]any{"is_public": false}, same)},
		"named":   {Leave: leave(map[string]string{annotationName: "shop"}, map[string]any{"name": "shop"}, same)},
	}
}

// leftBody is the request for the load balancer of a Service without annotations.
func leftBody(sim *ibmsim.Sim, s *v1.Service, nodes []*v1.Node) map[string]any {
	subnets, members := []any{}, []any{}
	for _, n := range sim.Subnets() {
		if n.VPC == "ocp4-vpc" && (n.Name == "ocp4-8pxks-subnet-1" || n.Name == "ocp4-8pxks-subnet-2") {
			subnets = append(subnets, map[string]any{"id": n.ID})
		}
	}
	for _, n := range nodes {
		for _, a := range n.Status.Addresses {
			if a.Type == v1.NodeInternalIP {
				members = append(members, map[string]any{"port": 30080, "target": map[string]any{"address": a.Address}})
			}
		}
	}
	monitor := map[string]any{"delay": 5, "max_retries": 2, "timeout": 2, "type": "tcp", "port": 30080}
	if port := s.Spec.HealthCheckNodePort; port != 0 {
		monitor["type"], monitor["port"], monitor["url_path"] = "http", port, "/"
	}
	return map[string]any{
		"is_public": true, "name": madeName(s), "resource_group": map[string]any{"id": "0b1c2d3e4f5061728394a5b6c7d8e9f0"}, "subnets": subnets,
		"listeners": []any{map[string]any{
			"connection_limit": 15000, "default_pool": map[string]any{"name": "tcp-80-30080"}, "port": 80, "protocol": "tcp",
		}},
		"pools": []any{map[string]any{
			"algorithm": "round_robin", "name": "tcp-80-30080", "protocol": "tcp", "proxy_protocol": "disabled", "health_monitor": monitor,
			"members": members,
		}},
	}
}

// madeName is the name that IBM's own controller gives.
func madeName(s *v1.Service) string {
	name := "kube-ocp4-8pxks-" + strings.ReplaceAll(string(s.UID), "-", "")
	return name[:min(len(name), 63)]
}
