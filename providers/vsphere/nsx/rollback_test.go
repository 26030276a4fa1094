package nsx

import (
	"fmt"
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/vsphere/nsxsim"
)

// originalReader is how the cloud's own controller reads what is there, written down by hand from what it is known to look for.
type originalReader struct {
	w   *testWorld
	key string
}

// ownObjects are the objects of a collection with the tags of the Service: the first tag of a scope decides.
func (o originalReader) ownObjects(collection string) []*nsxsim.Object {
	return slices.DeleteFunc(o.w.sim.Objects(collection), func(x *nsxsim.Object) bool {
		return x.Tag("owner") != "vsphere-cloud-controller-manager" || x.Tag("cluster") != "kubernetes" || x.Tag("service") != o.key
	})
}

func (o originalReader) allocations(pool string) []*nsxsim.Object {
	return o.ownObjects("/infra/ip-pools/" + pool + "/ip-allocations")
}

func withPort(list []*nsxsim.Object, key string) *nsxsim.Object {
	for _, x := range list {
		if x.Tag("port") == key {
			return x
		}
	}
	return nil
}

func textsOf(v any) []string {
	list, _ := v.([]any)
	texts := []string{}
	for _, one := range list {
		texts = append(texts, fmt.Sprint(one))
	}
	return texts
}

// writes lists the changes and creations that the cloud's own controller would make to the load balancer it finds.
func (o originalReader) writes(s *v1.Service) (list []string) {
	servers, pools, monitors := o.ownObjects("/infra/lb-virtual-servers"), o.ownObjects("/infra/lb-pools"), o.ownObjects("/infra/lb-monitor-profiles")
	say := func(differs bool, format string, args ...any) {
		if differs {
			list = append(list, fmt.Sprintf(format, args...))
		}
	}
	say(len(servers) == 0 || len(o.allocations(servers[0].Tag("ippoolid"))) != 1, "address")
	usedPools, usedMonitors := map[string]bool{}, map[string]bool{}
	for _, p := range s.Spec.Ports {
		key, nodePort := fmt.Sprintf("%s/%d", p.Protocol, p.Port), strconv.Itoa(int(p.NodePort))
		paths, profile := []string{}, nsxsim.UDPProfile
		if p.Protocol == v1.ProtocolTCP {
			m := withPort(monitors, key)
			say(m == nil || fmt.Sprint(m.Fields["monitor_port"]) != nodePort, "monitor of %s", key)
			if m != nil {
				paths, usedMonitors[m.Path] = append(paths, m.Path), true
			}
			profile = nsxsim.TCPProfile
		}
		pool, server := withPort(pools, key), withPort(servers, key)
		if pool == nil || server == nil {
			list = append(list, "missing: "+key)
			continue
		}
		usedPools[pool.Path] = true
		say(!slices.Equal(o.w.memberAddresses(pool), o.w.nodeAddresses()), "members of %s", key)
		say(!slices.Equal(textsOf(pool.Fields["active_monitor_paths"]), paths), "monitors of %s", key)
		say(!slices.Equal(textsOf(server.Fields["ports"]), []string{strconv.Itoa(int(p.Port))}), "port of %s", key)
		say(!slices.Equal(textsOf(server.Fields["default_pool_member_ports"]), []string{nodePort}), "node port of %s", key)
		say(server.Text("pool_path") != pool.Path || server.Text("application_profile_path") != profile, "virtual server of %s", key)
		say(o.w.sim.Get(server.Text("lb_service_path")) == nil, "load balancer service of %s", key)
		say(len(s.Status.LoadBalancer.Ingress) != 1 || s.Status.LoadBalancer.Ingress[0].IP != server.Text("ip_address"), "status")
	}
	say(len(servers) != len(s.Spec.Ports) || len(pools) != len(usedPools) || len(monitors) != len(usedMonitors), "orphans")
	return list
}

func (w *testWorld) memberAddresses(pool *nsxsim.Object) []string {
	list := []string{}
	members, _ := pool.Fields["members"].([]any)
	for _, m := range members {
		list = append(list, fmt.Sprint(m.(fields)["ip_address"]))
	}
	slices.Sort(list)
	return list
}

func (w *testWorld) nodeAddresses() []string {
	list := []string{}
	for _, n := range w.nodes {
		list = append(list, n.Status.Addresses[0].Address)
	}
	slices.Sort(list)
	return list
}

// delete does what it does when a Service goes.
func (o originalReader) delete() {
	for _, v := range o.ownObjects("/infra/lb-virtual-servers") {
		for _, a := range o.allocations(v.Tag("ippoolid")) {
			o.w.sim.Remove(a.Path)
		}
		o.w.sim.Remove(v.Path)
	}
	for _, collection := range []string{"/infra/lb-pools", "/infra/lb-monitor-profiles"} {
		for _, x := range o.ownObjects(collection) {
			o.w.sim.Remove(x.Path)
		}
	}
	for _, x := range o.w.sim.Objects("/infra/lb-services") {
		if x.Tag("owner") == "vsphere-cloud-controller-manager" && x.Tag("cluster") == "kubernetes" && x.Text("connectivity_path") == nsxsim.Tier1 {
			o.w.sim.Remove(x.Path)
		}
	}
}

// The way back: whatever this program made or changed is what the cloud's own controller makes of the Service. It would change nothing
// of it, and leave nothing behind.
func TestNSXRollback(t *testing.T) {
	t.Parallel()
	for name, live := range map[string]func(w *testWorld, s *v1.Service) *v1.Service{
		"made": func(_ *testWorld, s *v1.Service) *v1.Service { return s },
		"a node joins": func(w *testWorld, s *v1.Service) *v1.Service {
			w.addNode("n2", "10.0.0.2")
			w.update(s)
			return s
		},
		"ports change": func(w *testWorld, s *v1.Service) *v1.Service {
			return w.ensure(w.change(s, func(s *v1.Service) {
				s.Spec.Ports[0].NodePort = 30777
				s.Spec.Ports[1] = port("alt", 8080, 30081)
			}))
		},
		"the class changes": func(w *testWorld, s *v1.Service) *v1.Service {
			return w.ensure(w.change(s, func(s *v1.Service) { s.Annotations = map[string]string{annotationClass: "dmz"} }))
		},
		"settings of ours": func(w *testWorld, s *v1.Service) *v1.Service {
			return w.ensure(w.change(s, func(s *v1.Service) {
				s.Annotations = map[string]string{annotationAlgorithm: "LEAST_CONNECTION", annotationInterval: "20"}
			}))
		},
		"taken over, then changed": func(w *testWorld, s *v1.Service) *v1.Service {
			require.NoError(w.T, w.remove(s))
			w.Apply(s)
			nsxsim.NewOriginal(w.sim).Serve(s, w.nodes)
			w.Apply(s)
			w.restart()
			w.addNode("n2", "10.0.0.2")
			w.ensure(s)
			return w.ensure(w.change(s, func(s *v1.Service) { s.Spec.Ports[0].NodePort = 30777 }))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inWorld(t, nsxsim.Options{}, nil, func(w *testWorld) {
				w.addNode("n1", "10.0.0.1")
				s := twoPorts()
				w.Apply(s)
				s = live(w, w.ensure(s))
				read := originalReader{w, "default/web"}
				assert.Empty(w.T, read.writes(s))
				read.delete()
				assert.Empty(w.T, w.sim.Paths(), "it would leave these")
			})
		})
	}
}
