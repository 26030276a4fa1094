package openstack

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/kit/conformance"
	"github.com/anyccm/cloud-controller-manager/providers/openstack/openstacksim"
)

// TestFloatingIPs: an external Service gets a floating address; an internal one loses it, or keeps it for later.
func TestFloatingIPs(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		annotations map[string]string
		left        int // addresses that exist after the Service became internal
	}{
		"ours goes":   {nil, 0},
		"ours stays":  {map[string]string{annotationKeepFloatingIP: textTrue}, 1},
		"theirs stay": {map[string]string{"theirs": "yes"}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newTestWorld(t, "", nil)
				w.addNode(openstacksim.Spec{Name: "n1"})
				s := web(c.annotations)
				if c.annotations["theirs"] != "" {
					w.sim.AddFloatingIP(w.sim.Networks()[0].ID, "203.0.113.77", "reserved for the web")
					s.Spec.LoadBalancerIP = "203.0.113.77"
				}
				w.Apply(s)
				s, status := w.ensure(s)
				all := w.sim.FloatingIPs()
				require.Len(t, all, 1)
				assert.Equal(t, all[0].Address, status.Ingress[0].IP)
				assert.Equal(t, all[0].Address, s.Annotations[annotationAddress])

				s, status = w.changed(s, func(s *v1.Service) { s.Annotations[annotationInternal] = textTrue })
				assert.Equal(t, w.sim.LoadBalancers()[0].VIPAddress, status.Ingress[0].IP)
				after := w.sim.FloatingIPs()
				require.Len(t, after, c.left)
				for _, f := range after {
					assert.Nil(t, f.PortID, "it is detached")
				}
				w.requireNoWrites(s)

				_, status = w.changed(s, func(s *v1.Service) { delete(s.Annotations, annotationInternal) })
				assert.True(t, strings.HasPrefix(status.Ingress[0].IP, "203.0.113."))
				if c.annotations["theirs"] != "" {
					assert.Equal(t, "203.0.113.77", status.Ingress[0].IP)
				}
				assert.Empty(t, w.server.Calls().Refused)
			})
		})
	}
}

// TestFloatingIPsOfNobody: where no address is to be had, or to be taken.
func TestFloatingIPsOfNobody(t *testing.T) {
	t.Parallel()
	t.Run("the option wins over the annotation", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			w, _ := newServedWorld(t, "internal-lb = true\n", web(map[string]string{annotationInternal: textFalse}))
			assert.Empty(t, w.sim.FloatingIPs())
		})
	})
	t.Run("an address in use", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			w, first := newServedWorld(t, "", web(nil))
			second := rename(web(nil), "second")
			second.Spec.LoadBalancerIP = first.Status.LoadBalancer.Ingress[0].IP
			w.Apply(second)
			_, err := w.try(second)
			require.ErrorContains(t, err, "is not available")
			assert.Len(t, w.sim.FloatingIPs(), 1)
		})
	})
	t.Run("a wanted address that does not exist", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			s := web(nil)
			s.Spec.LoadBalancerIP = "203.0.113.99"
			_, s = newServedWorld(t, "", s)
			assert.Equal(t, "203.0.113.99", s.Status.LoadBalancer.Ingress[0].IP)
		})
	})
	t.Run("no external network", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			w := newTestWorld(t, "", nil)
			w.sim.HideNetwork("public")
			w.addNode(openstacksim.Spec{Name: "n1"})
			s := web(nil)
			w.Apply(s)
			_, status := w.ensure(s)
			assert.Equal(t, w.sim.LoadBalancers()[0].VIPAddress, status.Ingress[0].IP)
			assert.Contains(t, strings.Join(w.Events(), "\n"), eventForcedInternal)
		})
	})
}

// withFloatingSubnets adds two subnets to the external network, and returns the ID of the first one.
func withFloatingSubnets(s *openstacksim.Sim) (gold string) {
	public := s.Networks()[0].ID
	gold = s.AddSubnet(public, "ext-gold", "198.51.100.0/24", "gold", "fast")
	s.AddSubnet(public, "ext-silver", "192.0.2.0/24", "silver")
	return gold
}

// TestFloatingSubnets: which subnet the floating address is of.
func TestFloatingSubnets(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		annotations map[string]string
		file        string
		prefix      string // of the address; "" for a refusal
	}{
		"by ID":                 {map[string]string{annotationFloatingSubnetID: "GOLD"}, "", "198.51.100."},
		"by glob":               {map[string]string{annotationFloatingSubnet: "ext-s*"}, "", "192.0.2."},
		"by expression":         {map[string]string{annotationFloatingSubnet: "~ext-(gold|bronze)"}, "", "198.51.100."},
		"by the others":         {map[string]string{annotationFloatingSubnet: "!~(public.*|ext-gold)"}, "", "192.0.2."},
		"any tag":               {map[string]string{annotationFloatingSubnetTags: "silver,bronze"}, "", "192.0.2."},
		"all tags":              {map[string]string{annotationFloatingSubnetTags: "&gold,fast"}, "", "198.51.100."},
		"none of the tags":      {map[string]string{annotationFloatingSubnetTags: "!gold,silver"}, "", "203.0.113."},
		"not all tags":          {map[string]string{annotationFloatingSubnet: "ext-*", annotationFloatingSubnetTags: "!&gold,fast"}, "", "192.0.2."},
		"by the option":         {nil, "floating-subnet = ext-gold\n", "198.51.100."},
		"the annotation wins":   {map[string]string{annotationFloatingSubnet: "ext-silver"}, "floating-subnet = ext-gold\n", "192.0.2."},
		"by network":            {map[string]string{annotationFloatingNetworkID: "PUBLIC"}, "floating-network-id = " + someID + "\n", "203.0.113."},
		"an empty annotation":   {map[string]string{annotationFloatingNetworkID: ""}, "floating-network-id = " + someID + "\n", "203.0.113."},
		"nothing matches":       {map[string]string{annotationFloatingSubnet: "bronze"}, "", ""},
		"a subnet of elsewhere": {map[string]string{annotationFloatingSubnetID: firstSubnet}, "", ""},
		"a network of nowhere":  {map[string]string{annotationFloatingNetworkID: someID}, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var gold string
				w := newTestWorld(t, c.file, func(s *openstacksim.Sim) { gold = withFloatingSubnets(s) })
				w.addNode(openstacksim.Spec{Name: "n1"})
				annotations := map[string]string{}
				for k, v := range c.annotations {
					annotations[k] = strings.NewReplacer("GOLD", gold, "PUBLIC", w.sim.Networks()[0].ID).Replace(v)
				}
				s := web(annotations)
				w.Apply(s)
				status, err := w.try(s)
				if c.prefix == "" {
					require.Error(t, err)
					assert.Contains(t, strings.Join(w.Events(), "\n"), eventConfigError)
					assert.Empty(t, w.sim.FloatingIPs())
					return
				}
				require.NoError(t, err)
				assert.True(t, strings.HasPrefix(status.Ingress[0].IP, c.prefix), status.Ingress[0].IP)
			})
		})
	}
}

// TestFullFloatingSubnet: the next subnet gives the address where one is full.
func TestFullFloatingSubnet(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var gold string
		w := newTestWorld(t, "", func(s *openstacksim.Sim) { gold = withFloatingSubnets(s) })
		w.sim.ExhaustSubnet(gold)
		w.addNode(openstacksim.Spec{Name: "n1"})
		s := web(map[string]string{annotationFloatingSubnet: "ext-*"})
		w.Apply(s)
		_, status := w.ensure(s)
		assert.True(t, strings.HasPrefix(status.Ingress[0].IP, "192.0.2."))
	})
}

// TestClasses: a class of the cloud config says which networks a load balancer is of.
func TestClasses(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var edge, other string
		file := func(s *openstacksim.Sim) string {
			n := s.AddNetwork("edge", false)
			edge = s.AddSubnet(n, "edge", "10.7.0.0/24")
			other = s.AddSubnet(s.AddNetwork("other", false), "other", "10.8.0.0/24")
			s.AddRouter("edge-router", s.Networks()[0].ID, n)
			return fmt.Sprintf("[LoadBalancerClass \"edge\"]\nsubnet-id = %s\nmember-subnet-id = %s\n", edge, firstSubnet)
		}
		w := newTestWorld(t, "", nil)
		w.file = file(w.sim)
		w.restart()
		w.addNode(openstacksim.Spec{Name: "n1"})

		external := web(map[string]string{annotationClass: "edge", annotationSubnetID: other})
		w.Apply(external)
		w.ensure(external)
		assert.Equal(t, edge, w.sim.LoadBalancers()[0].VIPSubnetID, "the class beats the annotation")
		before := w.file
		w.file = strings.ReplaceAll(before, "\nsubnet-id = "+edge, "\nsubnet-id = "+other)
		w.restart()
		w.Events()
		w.ensure(external)
		assert.Contains(t, strings.Join(w.Events(), "\n"), `"edge with `+other+`" has no effect, it stays "edge with `+edge+`"`, "the operator changed the class")
		w.file = before
		w.restart()
		assert.Equal(t, firstSubnet, deref(w.sim.Pools()[0].BackendMembers()[0].SubnetID))

		internal := rename(web(map[string]string{annotationClass: "edge", annotationSubnetID: other, annotationInternal: textTrue}), "internal")
		w.Apply(internal)
		w.ensure(internal)
		assert.Equal(t, other, w.sim.LoadBalancers()[1].VIPSubnetID, "for internal Services the annotation beats the class")
		assert.Empty(t, w.server.Calls().Refused)

		s, _, err := parseSettings(external, w.config, "")
		require.NoError(t, err)
		for name, c := range map[string]struct {
			s    settings
			o    loadBalancerConfig
			want string
		}{
			"the annotation": {
				settings{MemberSubnetID: "a", serviceClass: class{MemberSubnetID: "c"}}, loadBalancerConfig{class: class{MemberSubnetID: "o"}}, "a",
			},
			"the class":      {s, loadBalancerConfig{class: class{MemberSubnetID: "o"}}, firstSubnet},
			"the option":     {settings{SubnetID: "s"}, loadBalancerConfig{class: class{MemberSubnetID: "o", SubnetID: "p"}}, "o"},
			"its subnet":     {settings{SubnetID: "s"}, loadBalancerConfig{class: class{SubnetID: "p"}}, "p"},
			"the VIP's":      {settings{SubnetID: "s", serviceClass: class{SubnetID: "c"}}, loadBalancerConfig{}, "s"},
			"what was found": {settings{}, loadBalancerConfig{}, "found"},
		} {
			assert.Equal(t, c.want, memberSubnet(c.s, c.o, "found"), name)
		}
	})
}

// TestPlaces: where the address of a load balancer is.
func TestPlaces(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newTestWorld(t, "", nil)
		w.addNode(openstacksim.Spec{Name: "n1"})
		fixed := []openstacksim.FixedIP{{SubnetID: firstSubnet, Address: "10.0.77.7"}}
		p := w.sim.AddPort(openstacksim.Port{NetworkID: firstNet, FixedIPs: fixed, PortSecurity: true})
		byPort := web(map[string]string{annotationPortID: p})
		w.Apply(byPort)
		w.ensure(byPort)
		assert.Equal(t, "10.0.77.7", w.sim.LoadBalancers()[0].VIPAddress)
		assert.Nil(t, conformance.Field(conformance.LatestBody(t, w.server, creation), "loadbalancer.vip_subnet_id"))

		asked := rename(web(map[string]string{annotationInternal: textTrue}), "asked")
		asked.Spec.LoadBalancerIP = "10.0.77.8"
		w.Apply(asked)
		_, status := w.ensure(asked)
		assert.Equal(t, "10.0.77.8", status.Ingress[0].IP)
		assert.Empty(t, w.server.Calls().Refused)

		// No node has a port with its address: nobody can say where the load balancer should be.
		lost := rename(web(nil), "lost")
		w.Apply(lost)
		w.nodes[0].Status.Addresses = []v1.NodeAddress{{Type: v1.NodeInternalIP, Address: "172.31.0.1"}}
		w.nodes[0].Spec.ProviderID = "rke2://x"
		_, err := w.try(lost)
		require.ErrorContains(t, err, annotationSubnetID)
	})
}
