package azure

import (
	"maps"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/azure/azuresim"
	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
)

func linkID(name string) string { return azuresim.ID("Microsoft.Network/privateLinkServices", name) }

// linked is a Service with a private link service.
func linked(annotations map[string]string, alter ...func(*v1.Service)) *v1.Service {
	s := webService(map[string]string{annotationInternal: "true", annotationPrivateLink: "true"}, alter...)
	maps.Copy(s.Annotations, annotations)
	return s
}

// TestPrivateLinkService: creation, changes in place, the name that stays, and deletion with connected private endpoints.
func TestPrivateLinkService(t *testing.T) {
	t.Parallel()
	s := linked(map[string]string{annotationLinkCount: "3", annotationLinkIPs: "10.240.0.250"})
	withNode(t, s, func(w *world) {
		w.ensure(s)
		name := "pls-" + base
		shown := w.sim.Shown(linkID(name))
		require.NotNil(w, shown)
		configs := docs(shown, "properties", "ipConfigurations")
		begin := "k8s-subnet-" + name
		assert.Equal(w, []string{begin + "-static-10.240.0.250", begin + "-dynamic-0", begin + "-dynamic-1"}, namesOf(configs))
		assert.True(w, flag(configs[0], "properties", "primary"))
		tags := tagsOf(shown)
		assert.Equal(w, "default/web", tags["k8s-azure-owner-service"])
		assert.Equal(w, clusterName, tags["k8s-azure-cluster-name"])
		network := w.sim.Shown(azuresim.ID("Microsoft.Network/virtualNetworks", azuresim.Network))
		assert.True(w, parsed[subnet](byName(docs(network, "properties", "subnets"), azuresim.Subnet)).allowsLinks())
		w.server.ResetCalls()
		w.ensure(s)
		assert.Zero(w, w.server.Calls().Writes)

		w.change(s, func(s *v1.Service) {
			s.Annotations[annotationLinkCount], s.Annotations[annotationLinkVisible], s.Annotations[annotationLinkProxy] = "2", "*", " True "
			s.Annotations[annotationLinkFQDNs], s.Annotations[annotationLinkApproved] = "b.example.com a.example.com", azuresim.Subscription
		})
		w.ensure(s)
		assert.Equal(w, 1, w.server.Calls().Writes, "one write for all: %v", w.server.Calls().ByOperation)
		shown = w.sim.Shown(linkID(name))
		assert.Len(w, docs(shown, "properties", "ipConfigurations"), 2)
		assert.True(w, flag(shown, "properties", "enableProxyProtocol"))
		assert.Equal(w, []string{"*"}, texts(shown, "properties", "visibility", "subscriptions"))
		assert.Equal(w, []string{azuresim.Subscription}, texts(shown, "properties", "autoApproval", "subscriptions"))
		assert.Equal(w, []string{"a.example.com", "b.example.com"}, texts(shown, "properties", "fqdns"))

		w.change(s, func(s *v1.Service) { s.Annotations[annotationLinkName] = "other" })
		require.ErrorContains(w, w.refuse(s), "a name cannot be changed")
		w.change(s, func(s *v1.Service) { delete(s.Annotations, annotationPrivateLink) })
		w.server.ResetCalls()
		w.ensure(s)
		assert.Zero(w, w.server.Calls().Writes, "it goes with the frontend, and not with the annotation")
		w.sim.Connect(linkID(name), "endpoint-1")
		w.restart()
		w.remove(s)
		assert.Empty(w, w.sim.Snapshot())
	})
}

// TestPrivateLinkNeedsAnInternalAddress: what cannot be is refused before any call.
func TestPrivateLinkNeedsAnInternalAddress(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		service *v1.Service
		why     string
	}{
		"external": {linked(map[string]string{annotationInternal: "false"}), "needs an internal load balancer, or one without floating IP"},
		"IPv6":     {linked(nil, sixOnly), "is for addresses of IPv4"},
		"no count": {linked(map[string]string{annotationLinkCount: "0"}), "out of range"},
		"too few":  {linked(map[string]string{annotationLinkIPs: "10.240.0.1 10.240.0.2"}), "2 addresses are given"},
		"no IPv4":  {linked(map[string]string{annotationLinkIPs: "fd00::1"}), "not an address of IPv4"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			withNode(t, c.service, func(w *world) {
				w.server.ResetCalls()
				require.ErrorContains(w, w.refuse(c.service), c.why)
				assert.Zero(w, w.server.Calls().Total)
			})
		})
	}
	outside := linked(map[string]string{annotationInternal: "false", annotationNoFloating: "true"})
	withNode(t, outside, func(w *world) {
		w.ensure(outside)
		assert.NotNil(w, w.sim.Shown(linkID("pls-"+base)), "with floating IP off it may be on a public address")
	})
	missing := linked(map[string]string{annotationLinkSubnet: "missing"})
	withNode(t, missing, func(w *world) {
		require.ErrorContains(w, w.refuse(missing), "there is no subnet missing in network k8s-vnet")
		assert.Zero(w, w.server.Calls().ByOperation["PUT Microsoft.Network/loadBalancers/{name}"])
	})
}

// TestPrivateLinkGoesWithItsFrontend: a frontend that moves takes its private link service along, and so does one whose annotation is
// gone already.
func TestPrivateLinkGoesWithItsFrontend(t *testing.T) {
	t.Parallel()
	s := linked(nil)
	withNode(t, s, func(w *world) {
		w.sim.AddSubnet("apps", "10.240.0.0/16")
		w.ensure(s)
		w.change(s, func(s *v1.Service) { s.Annotations[annotationSubnet] = "apps" })
		w.ensure(s)
		assert.Nil(w, w.sim.Shown(linkID("pls-"+base)))
		require.NotNil(w, w.sim.Shown(linkID("pls-"+base+"-apps")))
		w.change(s, func(s *v1.Service) { s.Annotations = map[string]string{} })
		w.ensure(s)
		assert.Nil(w, w.sim.Shown(linkID("pls-"+base+"-apps")))
		assert.Nil(w, w.sim.Shown(lbID("kubernetes-internal")))
		w.remove(s)
		assert.Empty(w, w.sim.Snapshot())
	})
}

// TestForeignPrivateLinkStays: one that was not made for a Service of this cluster is never changed or deleted, and keeps the frontend.
func TestForeignPrivateLinkStays(t *testing.T) {
	t.Parallel()
	s := webService(map[string]string{annotationInternal: "true"})
	withNode(t, s, func(w *world) {
		w.ensure(s)
		w.sim.LetLinksIn(azuresim.Subnet)
		mine := leftLink(base, "hand", "dynamic-0", "", "tags", doc{"k8s-azure-cluster-name": "other", "k8s-azure-owner-service": "default/web"})
		w.sim.Leave(linkID("mine"), mine)
		w.change(s, func(s *v1.Service) { s.Annotations[annotationPrivateLink] = "true" })
		require.ErrorContains(w, w.refuse(s), "has private link service mine, which this program did not make")
		w.change(s, func(s *v1.Service) { delete(s.Annotations, annotationPrivateLink) })
		before := withoutETag(w.sim.Shown(linkID("mine")))
		w.Events()
		_ = w.cloud.loadBalancers.EnsureLoadBalancerDeleted(w.Context(), clusterName, w.Current(s))
		assert.Equal(w, before, withoutETag(w.sim.Shown(linkID("mine"))))
		assert.Len(w, w.parts("kubernetes-internal", "frontendIPConfigurations"), 1)
		assert.Contains(w, strings.Join(w.Events(), "\n"), "private link service mine")
	})
}

// TestPrivateLinkOfAnotherService: on a shared address the one of the first Service serves both, and only its own may say how it is.
func TestPrivateLinkOfAnotherService(t *testing.T) {
	t.Parallel()
	s := linked(nil)
	withNode(t, s, func(w *world) {
		ip := w.ensure(s).Status.LoadBalancer.Ingress[0].IP
		asks := map[string]string{annotationInternal: "true", annotationIPv4: ip, annotationPrivateLink: "true"}
		second := webNumber(1, asks, func(s *v1.Service) { s.Spec.Ports[0].Port = 81 })
		w.Apply(second)
		w.ensure(second)
		before := w.sim.Shown(linkID("pls-" + base))
		assert.Equal(w, "default/web", tagsOf(before)["k8s-azure-owner-service"])
		w.change(second, func(s *v1.Service) { s.Annotations[annotationLinkProxy] = "true" })
		require.ErrorContains(w, w.refuse(second), "which belongs to Service default/web")
		taken := webNumber(2, map[string]string{annotationInternal: "true", annotationPrivateLink: "true", annotationLinkName: "pls-" + base})
		w.Apply(taken)
		require.ErrorContains(w, w.refuse(taken), "exists already, for other frontends")
		assert.Equal(w, before["properties"], w.sim.Shown(linkID("pls-" + base))["properties"])
	})
}

// TestFailedPrivateLinkIsWrittenAgain: one that Azure could not make is tried again.
func TestFailedPrivateLinkIsWrittenAgain(t *testing.T) {
	t.Parallel()
	s := linked(nil)
	withNode(t, s, func(w *world) {
		w.ensure(s)
		require.NoError(w, w.sim.SetState(linkID("pls-"+base), "Failed"))
		w.restart()
		w.ensure(s)
		assert.Equal(w, "Succeeded", str(w.sim.Shown(linkID("pls-"+base)), "properties", "provisioningState"))
	})
}

// TestPrivateLinksThatMayNotBeRead: a credential without that right serves, and deletes, Services that ask for none.
func TestPrivateLinksThatMayNotBeRead(t *testing.T) {
	t.Parallel()
	s := webService(map[string]string{annotationInternal: "true"})
	withNode(t, s, func(w *world) {
		_, err := w.server.AddFault(simkit.Fault{Kind: simkit.FaultStatus, Status: 403, Operation: "GET Microsoft.Network/privateLinkServices"})
		require.NoError(w, err)
		w.ensure(s)
		w.change(s, func(s *v1.Service) { s.Annotations[annotationPrivateLink] = "true" })
		require.Error(w, w.refuse(s))
		w.change(s, func(s *v1.Service) { delete(s.Annotations, annotationPrivateLink) })
		w.remove(s)
		assert.Empty(w, w.sim.Snapshot())
	})
}

// TestPrivateLinksOfAMissingGroup: a Service that names a missing resource group can be deleted, but gets no private link service.
func TestPrivateLinksOfAMissingGroup(t *testing.T) {
	t.Parallel()
	s := webService(map[string]string{annotationInternal: "true", annotationLinkGroup: "missing"})
	withNode(t, s, func(w *world) {
		w.ensure(s)
		w.change(s, func(s *v1.Service) { s.Annotations[annotationPrivateLink] = "true" })
		require.ErrorContains(w, w.refuse(s), "Resource group 'missing' could not be found")
		w.remove(s)
		assert.Empty(w, w.sim.Snapshot())
	})
}

// TestProxyProtocolMovesTheProbe: the check of a node's own health cannot read the PROXY protocol, so that ports are probed as if all
// nodes served.
func TestProxyProtocolMovesTheProbe(t *testing.T) {
	t.Parallel()
	s := linked(map[string]string{annotationLinkProxy: "true"}, localTraffic)
	withNode(t, s, func(w *world) {
		w.ensure(s)
		assert.Equal(w, []string{webRule}, namesOf(w.parts("kubernetes-internal", "probes")))
	})
}

// leftLink is a private link service as Azure's own controller leaves it: on a frontend, with one IP configuration.
func leftLink(front, name, end, ip string, more ...any) doc {
	config := doc{
		"primary": true, "privateIPAllocationMethod": "Dynamic", "privateIPAddressVersion": "IPv4",
		"subnet": doc{"id": azuresim.ID("Microsoft.Network/virtualNetworks", azuresim.Network, "subnets", azuresim.Subnet)},
	}
	if ip != "" {
		config["privateIPAllocationMethod"], config["privateIPAddress"] = "Static", ip
	}
	d := doc{
		"location": azuresim.Location, "tags": doc{"k8s-azure-owner-service": "default/web", "k8s-azure-cluster-name": "kubernetes"}, "properties": doc{
			"loadBalancerFrontendIpConfigurations": []any{reference("kubernetes-internal", "frontendIPConfigurations", front)},
			"ipConfigurations":                     []any{part("k8s-subnet-"+name+"-"+end, config)}, "enableProxyProtocol": false, "fqdns": []any{},
		},
	}
	for i := 0; i+1 < len(more); i += 2 {
		if key := more[i].(string); key == "tags" {
			d[key] = more[i+1]
		} else {
			d["properties"].(doc)[key] = more[i+1]
		}
	}
	return d
}
