package vsphere

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/kit/conformance"
	"github.com/anyccm/cloud-controller-manager/providers/vsphere/nsxsim"
)

type fields = map[string]any

// original makes what the cloud's own controller leaves in NSX. It is written down here by hand, from what that controller is known
// to send, and not made by our code: identities are random, and nothing names the Service's UID.
type original struct {
	w       *nsxWorld
	address string
	class   string
	pool    string
	service string
	snat    string
	serial  int
}

func newOriginal(w *nsxWorld) *original {
	o := &original{w: w, address: "203.0.113.77", class: "default", pool: nsxsim.PoolID, snat: "LBSnatAutoMap", service: pathServices + "/5b7c1c0e-0000-4000-8000-00000000ab01"}
	w.sim.Add(o.service, fields{
		"resource_type": "LBService", "display_name": "cluster:kubernetes", "enabled": true, "size": "SMALL", "connectivity_path": nsxsim.Tier1,
		"description": "virtual server pool for cluster kubernetes created by vsphere-cloud-controller-manager", "tags": originalTags("cluster", "kubernetes"),
	})
	return o
}

// originalTags are the tags of an object, with the owner; pairs are scopes and tags.
func originalTags(pairs ...string) []any {
	list := []any{fields{"scope": "owner", "tag": "vsphere-cloud-controller-manager"}}
	for i := 0; i < len(pairs); i += 2 {
		list = append(list, fields{"scope": pairs[i], "tag": pairs[i+1]})
	}
	return list
}

func (o *original) id() string {
	o.serial++
	return fmt.Sprintf("9c858901-8a57-4791-81fe-%012d", o.serial)
}

// serve makes the objects of a Service. Its members are the nodes in an order that nobody promises.
func (o *original) serve(s *v1.Service) {
	key := s.Namespace + "/" + s.Name
	allocation := pathIPPools + "/" + o.pool + "/ip-allocations/" + o.id()
	o.w.sim.Add(allocation, fields{"resource_type": "IpAddressAllocation", "tags": originalTags("cluster", "kubernetes", "service", key)})
	o.w.sim.SetAddress(allocation, o.address)
	members := []any{}
	for _, n := range slices.Backward(o.w.nodes) {
		members = append(members, fields{"admin_state": "ENABLED", "display_name": "kubernetes:" + n.Name, "ip_address": n.Status.Addresses[0].Address})
	}
	for _, p := range s.Spec.Ports {
		portTag := fmt.Sprintf("%s/%d", p.Protocol, p.Port)
		tags := originalTags("cluster", "kubernetes", "service", key, "port", portTag)
		pool := fields{
			"resource_type": "LBPool", "display_name": "cluster:kubernetes:" + key, "snat_translation": fields{"type": o.snat}, "members": members, "tags": tags,
			"description": "pool for cluster kubernetes, service " + key + " created by vsphere-cloud-controller-manager",
		}
		profile := nsxsim.UDPProfile
		if p.Protocol == v1.ProtocolTCP {
			monitor := pathMonitors + "/" + o.id()
			o.w.sim.Add(monitor, fields{ // its name is that of the first node port
				"resource_type": "LBTcpMonitorProfile", "display_name": "cluster:kubernetes:" + key + ":31999", "monitor_port": p.NodePort, "tags": tags,
				"description": "tcp monitor for cluster kubernetes, service " + key + ", port 31999 created by vsphere-cloud-controller-manager",
			})
			pool["active_monitor_paths"] = []any{monitor}
			profile = nsxsim.TCPProfile
		}
		at := pathPools + "/" + o.id()
		o.w.sim.Add(at, pool)
		o.w.sim.Add(pathServers+"/"+o.id(), fields{
			"resource_type": "LBVirtualServer", "display_name": "cluster:kubernetes:" + key, "enabled": true, "ip_address": o.address,
			"ports": []any{strconv.Itoa(int(p.Port))}, "default_pool_member_ports": []any{strconv.Itoa(int(p.NodePort))},
			"application_profile_path": profile, "pool_path": at, "lb_service_path": o.service,
			"description": "virtual server for cluster kubernetes, service " + key + " created by vsphere-cloud-controller-manager",
			"tags":        originalTags("cluster", "kubernetes", "ippoolid", o.pool, "lbclass", o.class, "port", portTag, "service", key),
		})
	}
	s.Status.LoadBalancer.Ingress = []v1.LoadBalancerIngress{{IP: o.address}}
}

// leftServers is how the suite takes over what was made for a Service.
func leftServers(sim *nsxsim.Sim, s *v1.Service) conformance.Left {
	return conformance.Left{Leave: func(nodes []*v1.Node) *v1.Service {
		theirs := &nsxWorld{sim: sim}
		for _, n := range nodes {
			n = n.DeepCopy()
			n.Status.Addresses = slices.DeleteFunc(n.Status.Addresses, func(a v1.NodeAddress) bool { return a.Type != v1.NodeInternalIP })
			theirs.nodes = append(theirs.nodes, n)
		}
		newOriginal(theirs).serve(s)
		return s
	}}
}

// twoPorts is a Service with a port of each protocol.
func twoPorts() *v1.Service {
	udp := port("dns", 53, 30053)
	udp.Protocol = v1.ProtocolUDP
	return service("web", nil, port("http", 80, 30080), udp)
}

func TestTakeoverOfLoadBalancersWritesNothing(t *testing.T) {
	t.Parallel()
	for name, arrange := range map[string]func(w *nsxWorld, o *original, s *v1.Service){
		"plain":         func(*nsxWorld, *original, *v1.Service) {},
		"SNAT disabled": func(_ *nsxWorld, o *original, _ *v1.Service) { o.snat = "LBSnatDisabled" },
		"another class": func(_ *nsxWorld, o *original, s *v1.Service) {
			o.class, o.pool, o.address = "dmz", nsxsim.OtherPool, "198.51.100.7"
			s.Annotations = map[string]string{annotationClass: " dmz "}
		},
		"without the right to read the cluster's identity": func(w *nsxWorld, _ *original, _ *v1.Service) {
			w.hideIdentity()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inNSX(t, nsxsim.Options{}, nil, func(w *nsxWorld) {
				w.addNode("n1", "10.0.0.1")
				w.addNode("n2", "10.0.0.2")
				s, o := twoPorts(), newOriginal(w)
				arrange(w, o, s)
				o.serve(s)
				w.Apply(s)
				w.server.ResetCalls()
				for range 2 { // the takeover, and the next restart
					w.restart()
					status, err := w.try(s)
					require.NoError(w.T, err)
					assert.Equal(w.T, s.Status.LoadBalancer, *status)
					w.update(s)
					w.requireNoKubeWrites()
				}
				assert.Empty(w.T, w.writes())
				assert.Empty(w.T, w.Events())
			})
		})
	}
}

// What is taken over is marked with the next write that is due, and not before.
func TestTakenOverIsMarkedWithTheNextWrite(t *testing.T) {
	t.Parallel()
	inNSX(t, nsxsim.Options{}, nil, func(w *nsxWorld) {
		w.addNode("n1", "10.0.0.1")
		s, o := twoPorts(), newOriginal(w)
		o.serve(s)
		w.Apply(s)
		w.addNode("n2", "10.0.0.2")
		w.server.ResetCalls()
		w.update(s)
		assert.Equal(w.T, map[string]int{"PUT /policy/api/v1/infra/lb-pools/{id}": 2}, counts(w.writes()))
		for _, p := range w.sim.Objects(pathPools) {
			assert.Equal(w.T, "anyccm:test-cluster", p.Tag(scopeMark))
			assert.Equal(w.T, "kubernetes:n1", p.Fields["members"].([]any)[0].(fields)["display_name"], "those that stay keep their order")
			assert.Equal(w.T, "kubernetes:n2", p.Fields["members"].([]any)[1].(fields)["display_name"])
		}
		for _, v := range w.sim.Objects(pathServers) {
			assert.Empty(w.T, v.Tag(scopeMark))
		}
		require.NoError(w.T, w.remove(s))
		assert.Empty(w.T, w.sim.Paths(), "all of it goes, with the load balancer service of this cluster")
		w.requireNothingRefused()
	})
}

// Two clusters are called alike: what the other one has is neither taken over nor deleted.
func TestTwoClustersOfOneName(t *testing.T) {
	t.Parallel()
	for name, prepare := range map[string]func(w *nsxWorld, s *v1.Service){
		"the other one's is marked": func(w *nsxWorld, s *v1.Service) {
			other := newNSXWorldOn(w, "other-cluster")
			other.addNode("m1", "10.9.0.1")
			other.Apply(s)
			other.ensure(s)
		},
		"the status is a copy of the other one's": func(w *nsxWorld, s *v1.Service) {
			other := newNSXWorldOn(w, "other-cluster")
			other.addNode("m1", "10.9.0.1")
			other.Apply(s)
			*s = *other.ensure(s)
		},
		"the other one's is the work of the cloud's own controller": func(w *nsxWorld, s *v1.Service) {
			other := newNSXWorldOn(w, "other-cluster")
			other.addNode("m1", "10.9.0.1")
			newOriginal(other).serve(s)
			s.Status = v1.ServiceStatus{}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inNSX(t, nsxsim.Options{}, nil, func(w *nsxWorld) {
				s := twoPorts()
				prepare(w, s)
				s.ResourceVersion = ""
				w.addNode("n1", "10.0.0.1")
				w.Apply(s)
				before := nsxSnapshot(w.T, w.sim)
				w.server.ResetCalls()
				_, err := w.try(s)
				require.ErrorContains(w.T, err, "belongs to another cluster")
				require.ErrorContains(w.T, err, "--cluster-name")
				assert.Contains(w.T, strings.Join(w.Events(), "\n"), "Warning LoadBalancerNotOurs")
				w.update(s)
				require.NoError(w.T, w.remove(s))
				found, err := w.Orphans(w.T.Context(), nil)
				require.NoError(w.T, err)
				assert.Empty(w.T, found)
				assert.Empty(w.T, w.writes())
				assert.Equal(w.T, before, nsxSnapshot(w.T, w.sim))
			})
		})
	}
}
