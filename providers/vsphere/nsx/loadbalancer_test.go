package nsx

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/anyccm/cloud-controller-manager/providers/kit/conformance"
	"github.com/anyccm/cloud-controller-manager/providers/kit/services"
	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
	"github.com/anyccm/cloud-controller-manager/providers/vsphere/nsxsim"
)

const (
	creatingTree = "PATCH /policy/api/v1/infra"
	infra        = "/policy/api/v1/infra"
)

func webService() *v1.Service { return service("web", nil, port("http", 80, 30080)) }

// serving is a world with a node and a Service that is served.
func serving(w *testWorld, s *v1.Service) *v1.Service {
	w.T.Helper()
	w.addNode("n1", "10.0.0.1")
	w.Apply(s)
	s = w.ensure(s)
	w.server.ResetCalls()
	w.Events()
	return s
}

func tagsOf(pairs ...string) []any {
	list := []any{}
	for i := 0; i < len(pairs); i += 2 {
		list = append(list, fields{"scope": pairs[i], "tag": pairs[i+1]})
	}
	return list
}

// childrenOf are the objects of a tree of changes, by their kinds.
func childrenOf(body map[string]any) map[string][]fields {
	children := map[string][]fields{}
	for _, c := range body["children"].([]any) {
		for name, v := range c.(fields) {
			if o, ok := v.(fields); ok {
				children[name] = append(children[name], o)
			}
		}
	}
	return children
}

// The bodies of a creation are those of the cloud's own controller, with the marks beside its tags.
func TestCreationOfLoadBalancer(t *testing.T) {
	t.Parallel()
	tags := map[string]string{"team": "web", "cluster": "ignored"}
	inWorld(t, nsxsim.Options{}, func(c *Config) { c.LoadBalancer.Tags = tags }, func(w *testWorld) {
		w.addNode("n1", "10.0.0.1")
		s := twoPorts()
		w.Apply(s)
		w.ensure(s)
		marks := []string{"anyccm", "anyccm:test-cluster", "anyccm", "anyccm-svc:" + string(s.UID)}
		owner, app := "vsphere-cloud-controller-manager", "created by vsphere-cloud-controller-manager"
		portTags := func(p string) []any {
			return tagsOf(append([]string{"cluster", "kubernetes", "owner", owner, "port", p, "service", "default/web", "team", "web"}, marks...)...)
		}
		body := conformance.LatestBody(w.T, w.server, creatingTree)
		children := childrenOf(body)
		monitor, pools, servers, service := children["LBMonitorProfile"], children["LBPool"], children["LBVirtualServer"], children["LBService"]
		require.Len(w.T, monitor, 1, "TCP alone")
		require.Len(w.T, pools, 2)
		require.Len(w.T, servers, 2)
		require.Len(w.T, service, 1)
		assert.Equal(w.T, fields{
			"id": monitor[0]["id"], "resource_type": "LBTcpMonitorProfile", "display_name": "cluster:kubernetes:default/web:30080", "monitor_port": 30080.0,
			"description": "tcp monitor for cluster kubernetes, service default/web, port 30080 " + app, "tags": portTags("TCP/80"),
		}, monitor[0])
		pool := fields{
			"id": pools[0]["id"], "resource_type": "LBPool", "display_name": "cluster:kubernetes:default/web", "snat_translation": fields{"type": "LBSnatAutoMap"},
			"description":          "pool for cluster kubernetes, service default/web " + app,
			"members":              []any{fields{"admin_state": "ENABLED", "display_name": "kubernetes:n1", "ip_address": "10.0.0.1"}},
			"active_monitor_paths": []any{fmt.Sprint(pathMonitors, "/", monitor[0]["id"])}, "tags": portTags("TCP/80"),
		}
		assert.Equal(w.T, pool, pools[0])
		pool["id"], pool["tags"] = pools[1]["id"], portTags("UDP/53")
		delete(pool, "active_monitor_paths")
		assert.Equal(w.T, pool, pools[1])
		lbservice := fmt.Sprint(pathServices, "/", service[0]["id"])
		assert.Equal(w.T, fields{
			"id": service[0]["id"], "resource_type": "LBService", "display_name": "cluster:kubernetes", "size": "SMALL", "enabled": true,
			"connectivity_path": nsxsim.Tier1, "description": "virtual server pool for cluster kubernetes " + app,
			"tags": tagsOf("cluster", "kubernetes", "owner", owner, "team", "web", "anyccm", "anyccm:test-cluster"),
		}, service[0])
		assert.Equal(w.T, fields{
			"id": servers[1]["id"], "resource_type": "LBVirtualServer", "display_name": "cluster:kubernetes:default/web", "enabled": true,
			"description": "virtual server for cluster kubernetes, service default/web " + app, "ip_address": "203.0.113.1", "ports": []any{"53"},
			"default_pool_member_ports": []any{"30053"}, "application_profile_path": nsxsim.UDPProfile, "lb_service_path": lbservice,
			"pool_path": fmt.Sprint(pathPools, "/", pools[1]["id"]),
			"tags": tagsOf(append([]string{
				"cluster", "kubernetes", "ippoolid", nsxsim.PoolID, "lbclass", "default", "owner", owner, "port", "UDP/53",
				"service", "default/web", "team", "web",
			}, marks...)...),
		}, servers[1])
		assert.Equal(w.T, nsxsim.TCPProfile, servers[0]["application_profile_path"])
		allocation := conformance.LatestBody(w.T, w.server, "PATCH "+infra+"/ip-pools/{id}/ip-allocations/{id}")
		own := []string{"cluster", "kubernetes", "owner", owner, "service", "default/web", "team", "web"}
		assert.Equal(w.T, tagsOf(append(own, marks...)...), allocation["tags"])
		w.requireNothingRefused()
		w.server.ResetCalls()
		w.ensure(s)
		assert.Empty(w.T, w.writes(), "58: nothing changed")
	})
}

// The last Service goes, and a new one comes while the program runs.
func TestLoadBalancerServiceIsMadeAgainAfterTheLastService(t *testing.T) {
	t.Parallel()
	inWorld(t, nsxsim.Options{Activation: time.Second}, nil, func(w *testWorld) {
		s := serving(w, webService())
		require.NoError(w.T, w.remove(s))
		assert.Empty(w.T, w.sim.Paths())
		next := service("next", nil, port("http", 80, 30081))
		next.UID = "another-uid"
		w.Apply(next)
		w.ensure(next)
		assert.Len(w.T, w.sim.Objects(pathServices), 1)
		w.requireNothingRefused()
	})
}

// A load balancer service of somebody else on the gateway is used, and stays.
func TestForeignLoadBalancerServiceStays(t *testing.T) {
	t.Parallel()
	foreign := pathServices + "/theirs"
	for name, change := range map[string]func(*Config){
		"found by its gateway": nil,
		"unmanaged":            func(c *Config) { c.LoadBalancer.LBServiceID = "theirs" },
		"unmanaged, without a gateway": func(c *Config) {
			c.LoadBalancer.LBServiceID, c.LoadBalancer.Tier1GatewayPath = "theirs", ""
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inWorld(t, nsxsim.Options{}, change, func(w *testWorld) {
				w.sim.Add(foreign, fields{"connectivity_path": nsxsim.Tier1, "size": "LARGE", "display_name": "theirs"})
				s := serving(w, webService())
				assert.Equal(w.T, foreign, w.sim.Objects(pathServers)[0].Text("lb_service_path"))
				require.NoError(w.T, w.remove(s))
				assert.NotNil(w.T, w.sim.Get(foreign))
				assert.Empty(w.T, w.sim.Paths())
			})
		})
	}
}

func TestLoadBalancerServiceOfAnotherRouterIsRefused(t *testing.T) {
	t.Parallel()
	inWorld(t, nsxsim.Options{}, func(c *Config) { c.LoadBalancer.LBServiceID = "theirs" }, func(w *testWorld) {
		w.sim.Add(pathServices+"/theirs", fields{"connectivity_path": nsxsim.OtherTier1})
		w.Apply(webService())
		_, err := w.try(webService())
		require.ErrorContains(w.T, err, `load balancer service theirs is attached to the gateway "/infra/tier-1s/t1-other", and tier1GatewayPath is "/infra/tier-1s/t1-cluster"`)
	})
}

func TestNodePortChange(t *testing.T) {
	t.Parallel()
	inWorld(t, nsxsim.Options{}, nil, func(w *testWorld) {
		s := serving(w, webService())
		pool := pathPools + "/" + w.sim.Objects(pathPools)[0].ID()
		w.sim.Change(pool, func(f map[string]any) { f["algorithm"] = "LEAST_CONNECTION" })
		w.ensure(w.change(s, func(s *v1.Service) { s.Spec.Ports[0].NodePort = 30999 }))
		assert.Equal(w.T, []string{"PUT " + infra + "/lb-monitor-profiles/{id}", "PUT " + infra + "/lb-virtual-servers/{id}"}, w.writes())
		assert.InDelta(w.T, 30999, w.sim.Objects(pathMonitors)[1].Fields["monitor_port"], 0)
		assert.Equal(w.T, []any{"30999"}, w.sim.Objects(pathServers)[0].Fields["default_pool_member_ports"])
		assert.NotNil(w.T, conformance.LatestBody(w.T, w.server, "PUT "+infra+"/lb-virtual-servers/{id}")["_revision"])
		w.addNode("n2", "10.0.0.2")
		w.update(s)
		assert.Equal(w.T, "LEAST_CONNECTION", w.sim.Get(pool).Text("algorithm"), "what somebody set by hand stays")
		w.requireNothingRefused()
	})
}

// Somebody else changed an object since it was read: it is read again, and both changes hold.
func TestStaleRevisionIsReadAgain(t *testing.T) {
	t.Parallel()
	inWorld(t, nsxsim.Options{}, nil, func(w *testWorld) {
		s := serving(w, webService())
		w.addNode("n2", "10.0.0.2")
		w.update(s)
		pool := w.sim.Objects(pathPools)[0].Path
		w.sim.Change(pool, func(f map[string]any) { f["algorithm"] = "IP_HASH" })
		w.addNode("n3", "10.0.0.3")
		w.server.ResetCalls()
		w.update(s)
		assert.Equal(w.T, 2, w.server.Calls().Writes, "one was refused for its revision")
		assert.Equal(w.T, "IP_HASH", w.sim.Get(pool).Text("algorithm"))
		assert.Len(w.T, w.sim.Get(pool).Fields["members"], 3)
	})
}

func TestRemovedPortGoesInOrder(t *testing.T) {
	t.Parallel()
	inWorld(t, nsxsim.Options{}, nil, func(w *testWorld) {
		s := serving(w, service("web", nil, port("http", 80, 30080), port("alt", 8080, 30081)))
		w.ensure(w.change(s, func(s *v1.Service) { s.Spec.Ports = s.Spec.Ports[:1] }))
		assert.Equal(w.T, []string{
			"DELETE " + infra + "/lb-virtual-servers/{id}", "DELETE " + infra + "/lb-pools/{id}", "DELETE " + infra + "/lb-monitor-profiles/{id}",
		}, w.writes())
		w.requireNothingRefused()
	})
}

// What somebody removed by hand does not keep the Service from going.
func TestDeletionOfWhatIsGoneAlready(t *testing.T) {
	t.Parallel()
	inWorld(t, nsxsim.Options{}, nil, func(w *testWorld) {
		s := serving(w, webService())
		w.sim.Remove(w.sim.Objects(pathServers)[0].Path)
		w.sim.Remove(w.sim.Objects(pathPools)[0].Path)
		require.NoError(w.T, w.remove(s))
		assert.Empty(w.T, w.sim.Paths())
		found := w.server.Calls().ByOperation
		assert.Equal(w.T, 1, found["DELETE "+infra+"/lb-virtual-servers/{id}"], "it was asked for, and not there: %v", found)
	})
}

func TestDeletionReleasesTheAddressLast(t *testing.T) {
	t.Parallel()
	inWorld(t, nsxsim.Options{}, nil, func(w *testWorld) {
		s := serving(w, webService())
		require.NoError(w.T, w.remove(s))
		assert.Equal(w.T, []string{
			"DELETE " + infra + "/lb-virtual-servers/{id}", "DELETE " + infra + "/lb-services/{id}", "DELETE " + infra + "/lb-pools/{id}",
			"DELETE " + infra + "/lb-monitor-profiles/{id}", "DELETE " + infra + "/ip-pools/{id}/ip-allocations/{id}",
		}, w.writes())
		assert.Empty(w.T, w.sim.Paths())
	})
}

// The load balancer service that other Services use stays.
func TestUsedLoadBalancerServiceStays(t *testing.T) {
	t.Parallel()
	inWorld(t, nsxsim.Options{}, nil, func(w *testWorld) {
		s := serving(w, webService())
		other := service("other", nil, port("http", 80, 30081))
		other.UID = "other-uid"
		w.Apply(other)
		w.ensure(other)
		require.NoError(w.T, w.remove(s))
		assert.Len(w.T, w.sim.Objects(pathServices), 1)
		w.requireNothingRefused()
	})
}

func TestExhaustedPoolLeaksNothing(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]nsxsim.Options{"at once": {}, "after a while": {Activation: 2 * time.Second}, "older NSX": {OldAllocations: true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inWorld(t, o, nil, func(w *testWorld) {
				w.sim.Resize(nsxsim.PoolID, "203.0.113.0")
				w.addNode("n1", "10.0.0.1")
				s := webService()
				w.Apply(s)
				_, err := w.try(s)
				require.ErrorContains(w.T, err, "quota exceeded")
				assert.Contains(w.T, strings.Join(w.Events(), "\n"), "Warning "+eventNoAddress+" IP pool vip-pool gives no address")
				assert.Empty(w.T, w.sim.Paths())
				w.sim.Resize(nsxsim.PoolID, "203.0.113.9")
				assert.Equal(w.T, "203.0.113.1", w.ensure(s).Status.LoadBalancer.Ingress[0].IP)
			})
		})
	}
}

// Older versions tell the address in the realized state alone.
func TestAddressOfOlderVersions(t *testing.T) {
	t.Parallel()
	inWorld(t, nsxsim.Options{OldAllocations: true, Activation: time.Second}, nil, func(w *testWorld) {
		s := serving(w, webService())
		assert.Equal(w.T, "203.0.113.1", s.Status.LoadBalancer.Ingress[0].IP)
		w.restart()
		w.ensure(s)
		assert.Empty(w.T, w.writes())
		require.NoError(w.T, w.remove(s))
		assert.Empty(w.T, w.sim.Paths())
	})
}

// The class is changed: the address stays, the application profile follows, and nothing is left behind at the end.
func TestClassChangeKeepsTheAddress(t *testing.T) {
	t.Parallel()
	profile := pathAppProfiles + "/slow"
	inWorld(t, nsxsim.Options{}, func(c *Config) {
		c.LoadBalancer.Classes["dmz"] = loadBalancerClass{IPPoolID: nsxsim.OtherPool, TCPAppProfilePath: profile}
	}, func(w *testWorld) {
		w.sim.Add(profile, fields{"resource_type": typeTCPProfile})
		s := serving(w, webService())
		shown := s.Status.LoadBalancer
		s = w.ensure(w.change(s, func(s *v1.Service) { s.Annotations = map[string]string{annotationClass: "dmz"} }))
		assert.Equal(w.T, shown, s.Status.LoadBalancer)
		assert.Contains(w.T, strings.Join(w.Events(), "\n"), "Warning "+services.EventFixed+" annotation "+annotationClass)
		assert.Equal(w.T, profile, w.sim.Objects(pathServers)[0].Text("application_profile_path"))
		s = w.ensure(w.change(s, func(s *v1.Service) { s.Spec.Ports = append(s.Spec.Ports, port("alt", 8080, 30081)) }))
		assert.Equal(w.T, shown, s.Status.LoadBalancer)
		for _, v := range w.sim.Objects(pathServers) {
			assert.Equal(w.T, shown.Ingress[0].IP, v.Text("ip_address"), "a new port is at the same address")
			assert.Equal(w.T, "default", v.Tag("lbclass"))
		}
		assert.Empty(w.T, w.sim.Objects(pathIPPools+"/"+nsxsim.OtherPool+"/ip-allocations"))
		w.restart()
		require.NoError(w.T, w.remove(s))
		assert.Empty(w.T, w.sim.Paths(), "the address of the first class is released")
	})
}

func TestUnknownClass(t *testing.T) {
	t.Parallel()
	inWorld(t, nsxsim.Options{}, nil, func(w *testWorld) {
		s := serving(w, webService())
		s = w.change(s, func(s *v1.Service) { s.Annotations = map[string]string{annotationClass: "gone"} })
		_, err := w.try(s)
		require.ErrorContains(w.T, err, "is not a class of the cloud config; there are default, dmz")
		w.addNode("n2", "10.0.0.2")
		w.update(s)
		assert.Len(w.T, w.sim.Objects(pathPools)[0].Fields["members"], 2, "nodes join all the same")
		require.NoError(w.T, w.remove(s), "and the Service can go")
		assert.Empty(w.T, w.sim.Paths())
	})
}

func TestThrottledCallsAreTriedAgain(t *testing.T) {
	t.Parallel()
	for _, status := range []int{http.StatusTooManyRequests, http.StatusServiceUnavailable} {
		t.Run(strconv.Itoa(status), func(t *testing.T) {
			t.Parallel()
			inWorld(t, nsxsim.Options{}, nil, func(w *testWorld) {
				w.addNode("n1", "10.0.0.1")
				w.Apply(webService())
				_, err := w.server.AddFault(simkit.Fault{Kind: simkit.FaultStatus, Status: status, From: 2, Count: 2})
				require.NoError(w.T, err)
				_, err = w.try(webService())
				require.NoError(w.T, err)
			})
		})
	}
}

// What NSX cannot serve is refused before anything is made.
func TestUnservablePortsMakeNothing(t *testing.T) {
	t.Parallel()
	sctp := port("sctp", 81, 30081)
	sctp.Protocol = v1.ProtocolSCTP
	for want, p := range map[string]v1.ServicePort{
		`spec.ports: "81/SCTP" is a protocol that NSX's load balancer does not serve`:  sctp,
		`spec.allocateLoadBalancerNodePorts: "false" leaves ports without a node port`: port("bare", 82, 0),
	} {
		inWorld(t, nsxsim.Options{}, nil, func(w *testWorld) {
			s := service("web", nil, port("http", 80, 30080), p)
			w.Apply(s)
			_, err := w.try(s)
			require.ErrorContains(w.T, err, want)
			assert.Contains(w.T, strings.Join(w.Events(), "\n"), "Warning LoadBalancerConfigError")
			assert.Zero(w.T, w.server.Calls().Total)
		})
	}
}

// markedTags are those of an object of this cluster.
func markedTags(service string) []any {
	return append(nsxsim.OriginalTags("cluster", "kubernetes", "service", service), fields{"scope": scopeMark, "tag": "anyccm:test-cluster"})
}

// An address was taken, and the program ended before anything listened on it.
func TestAllocationWithoutVirtualServerIsUsed(t *testing.T) {
	t.Parallel()
	for name, tags := range map[string][]any{
		"of the cloud's own controller": nsxsim.OriginalTags("cluster", "kubernetes", "service", "default/web"),
		"ours":                          markedTags("default/web"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inWorld(t, nsxsim.Options{}, nil, func(w *testWorld) {
				at := pathIPPools + "/vip-pool/ip-allocations/left"
				w.sim.Add(at, fields{"resource_type": "IpAddressAllocation", "tags": tags})
				w.sim.SetAddress(at, "203.0.113.44")
				s := serving(w, webService())
				assert.Equal(w.T, "203.0.113.44", s.Status.LoadBalancer.Ingress[0].IP)
				assert.Len(w.T, w.sim.Objects(pathIPPools+"/vip-pool/ip-allocations"), 1)
			})
		})
	}
}

// NSX takes the intent and cannot put it in force: the user hears of it, and nothing is shown as served.
func TestNotRealized(t *testing.T) {
	t.Parallel()
	inWorld(t, nsxsim.Options{Activation: time.Second}, nil, func(w *testWorld) {
		w.sim.Break(pathServers, "the number of virtual servers exceeds the limit of size SMALL")
		w.addNode("n1", "10.0.0.1")
		w.Apply(webService())
		_, err := w.try(webService())
		require.ErrorContains(w.T, err, "exceeds the limit of size SMALL")
		assert.Contains(w.T, strings.Join(w.Events(), "\n"), "Warning "+eventNotRealized)
		w.sim.Break(pathServers, "")
		w.server.ResetCalls()
		w.ensure(webService())
		assert.Empty(w.T, w.writes())
	})
}

// An account that may not change several objects at once makes them one after the other.
func TestWithoutChangesOfSeveralObjects(t *testing.T) {
	t.Parallel()
	inWorld(t, nsxsim.Options{NoTrees: true}, nil, func(w *testWorld) {
		s := serving(w, twoPorts())
		assert.Len(w.T, w.sim.Objects(pathServers), 2)
		require.NoError(w.T, w.remove(s))
		w.Apply(webService())
		w.server.ResetCalls()
		w.ensure(webService())
		assert.Zero(w.T, w.server.Calls().ByOperation[creatingTree], "it is not tried again")
	})
}

// The costs that 50 Services have together.
func TestCostOfLoadBalancers(t *testing.T) {
	t.Parallel()
	inWorld(t, nsxsim.Options{}, nil, func(w *testWorld) {
		const many = 50
		w.addNode("n1", "10.0.0.1")
		var all []*v1.Service
		for i := range many {
			s := service(fmt.Sprintf("web-%d", i), nil, port("http", 80, int32(30000+i)))
			s.UID = types.UID(fmt.Sprintf("uid-%d", i))
			w.Apply(s)
			w.server.ResetCalls()
			all = append(all, w.ensure(s))
			assert.Equal(w.T, 2, w.server.Calls().Writes, "the address, and all else by one call")
		}
		w.restart()
		w.server.ResetCalls()
		for _, s := range all {
			w.ensure(s)
		}
		calls := w.server.Calls()
		assert.Zero(w.T, calls.Writes)
		assert.LessOrEqual(w.T, calls.Reads, 8, "four listings, those of two pools, and the names of pools and profiles: %v", calls.ByOperation)
		w.addNode("n2", "10.0.0.2")
		w.restart()
		w.server.ResetCalls()
		for _, s := range all {
			w.update(s)
		}
		calls = w.server.Calls()
		assert.Equal(w.T, many, calls.Writes)
		assert.Equal(w.T, 1, calls.Reads, "%v", calls.ByOperation)
		w.requireNothingRefused()
	})
}

// 2,500 objects come in pages, and none is lost.
func TestListingsHavePages(t *testing.T) {
	t.Parallel()
	inWorld(t, nsxsim.Options{Page: 10}, nil, func(w *testWorld) {
		for i := range 35 {
			w.sim.Add(fmt.Sprintf("%s/other-%d", pathPools, i), fields{})
		}
		s := serving(w, webService())
		w.restart()
		w.ensure(s)
		assert.Empty(w.T, w.writes())
		_, err := w.server.AddFault(simkit.Fault{Kind: "cut-nsx-list"})
		require.NoError(w.T, err)
		w.restart()
		_, err = w.try(s)
		require.ErrorContains(w.T, err, "the listing broke off")
		assert.Empty(w.T, w.writes())
	})
}

// Orphans are objects that carry our mark and belong to no Service; they are deleted together.
func TestOrphansOfNSX(t *testing.T) {
	t.Parallel()
	inWorld(t, nsxsim.Options{}, nil, func(w *testWorld) {
		s := serving(w, twoPorts())
		ctx := w.T.Context()
		found, err := w.Orphans(ctx, []*v1.Service{s})
		require.NoError(w.T, err)
		assert.Empty(w.T, found)
		require.NoError(w.T, w.Kube.CoreV1().Services("default").Delete(ctx, s.Name, metav1.DeleteOptions{}))
		found, err = w.Orphans(ctx, nil)
		require.NoError(w.T, err)
		require.Len(w.T, found, 1)
		assert.Equal(w.T, "cluster:kubernetes:default/web", found[0].Name)
		w.Apply(s)
		require.ErrorContains(w.T, w.DeleteOrphan(ctx, found[0]), "is no longer an orphan")
		require.NoError(w.T, w.Kube.CoreV1().Services("default").Delete(ctx, s.Name, metav1.DeleteOptions{}))
		require.NoError(w.T, w.DeleteOrphan(ctx, found[0]))
		assert.Empty(w.T, w.sim.Paths())
		require.NoError(w.T, w.DeleteOrphan(ctx, found[0]), "what is gone is gone")
	})
}

// A tag of a Service without a slash is somebody's, and ends nothing.
func TestServiceTagWithoutSlash(t *testing.T) {
	t.Parallel()
	inWorld(t, nsxsim.Options{}, nil, func(w *testWorld) {
		w.sim.Add(pathPools+"/odd", fields{"tags": markedTags("odd")})
		s := serving(w, webService())
		found, err := w.Orphans(w.T.Context(), []*v1.Service{s})
		require.NoError(w.T, err)
		assert.Len(w.T, found, 1)
		require.NoError(w.T, w.remove(s))
		assert.Equal(w.T, []string{pathPools + "/odd"}, w.sim.Paths())
	})
}

// A node that shows no address for a moment stays where it was.
func TestNodeWithoutAddressStays(t *testing.T) {
	t.Parallel()
	inWorld(t, nsxsim.Options{}, nil, func(w *testWorld) {
		s := serving(w, webService())
		w.nodes[0] = w.nodes[0].DeepCopy()
		w.nodes[0].Status.Addresses = nil
		w.update(s)
		assert.Empty(w.T, w.writes())
		w.nodes[0].Spec.ProviderID = ""
		w.update(s)
		assert.Len(w.T, w.writes(), 1)
	})
}

func TestApplicationProfiles(t *testing.T) {
	t.Parallel()
	name := "default-tcp-lb-app-profile"
	inWorld(t, nsxsim.Options{}, nil, func(w *testWorld) {
		w.sim.Add(pathAppProfiles+"/twin", fields{"resource_type": typeTCPProfile, "display_name": name})
		w.Apply(webService())
		_, err := w.try(webService())
		require.ErrorContains(w.T, err, "2 application profiles of type LBFastTcpProfile are named "+name)
		w.config.LoadBalancer.Class.TCPAppProfileName = "none"
		w.restart()
		_, err = w.try(webService())
		require.ErrorContains(w.T, err, "there is no application profile none of type LBFastTcpProfile")
		assert.Empty(w.T, w.writes())
		w.config.LoadBalancer.Class.IPPoolName = "nowhere"
		w.restart()
		require.ErrorContains(w.T, w.CheckAPI(w.T.Context()), "there is no IP pool nowhere")
	})
}

// Plan says what would be done, and does nothing.
func TestPlanOfNSX(t *testing.T) {
	t.Parallel()
	inWorld(t, nsxsim.Options{}, nil, func(w *testWorld) {
		w.addNode("n1", "10.0.0.1")
		w.Apply(webService())
		plan, err := w.loadBalancers.PlanLoadBalancer(w.T.Context(), w.cluster, webService(), w.nodes)
		require.NoError(w.T, err)
		require.Len(w.T, plan.Changes, 2)
		assert.Equal(w.T, kindAllocation, plan.Changes[0].Object)
		assert.Contains(w.T, plan.Changes[1].Detail, "virtual server TCP/80 at of the pool")
		assert.Empty(w.T, w.writes())
	})
}

func TestObjectIDs(t *testing.T) {
	t.Parallel()
	id := objectID("uid", "pool", "TCP/80")
	assert.Regexp(t, `^[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`, id)
	assert.Equal(t, id, objectID("uid", "pool", "TCP/80"))
	assert.NotEqual(t, id, objectID("uid", "poolTCP/80"))
}

func TestMergeMembers(t *testing.T) {
	t.Parallel()
	weight := 3
	existing := []poolMember{
		{IPAddress: "10.0.0.2", DisplayName: "k:b", Weight: &weight},
		{IPAddress: "10.0.0.1", DisplayName: "k:a"},
		{IPAddress: "10.0.0.9", DisplayName: "k:gone"},
	}
	merged, changed := mergeMembers(existing, []member{{"k:a", "10.0.0.1"}, {"k:b", "10.0.0.2"}, {"k:c", "10.0.0.3"}, {"k:twin", "10.0.0.3"}})
	assert.True(t, changed)
	assert.Equal(t, append(slices.Clone(existing[:2]), poolMember{AdminState: "ENABLED", DisplayName: "k:c", IPAddress: "10.0.0.3"}), merged)
	_, changed = mergeMembers(merged, []member{{"k:c", "10.0.0.3"}, {"k:a", "10.0.0.1"}, {"k:b", "10.0.0.2"}})
	assert.False(t, changed, "the order does not matter")
}

// TestServicesThatGoTogether: Services that are deleted at the same moment see each other's virtual servers when they begin, and the load
// balancer service goes with the last one all the same.
func TestServicesThatGoTogether(t *testing.T) {
	t.Parallel()
	inWorld(t, nsxsim.Options{}, nil, func(w *testWorld) {
		w.addNode("n1", "10.0.0.1")
		kinds := []string{"/infra/lb-virtual-servers", "/infra/lb-pools", "/infra/lb-monitor-profiles", "/infra/lb-services"}
		before := map[string]int{}
		for _, kind := range kinds {
			before[kind] = len(w.sim.Objects(kind))
		}
		var all []*v1.Service
		for i := range 4 {
			s := service(fmt.Sprintf("web-%d", i), nil, port("http", 80, 30080))
			s.UID = types.UID(fmt.Sprintf("00000000-0000-4000-8000-%012d", i))
			w.Apply(s)
			all = append(all, w.ensure(s))
		}
		require.Len(w.T, w.sim.Objects("/infra/lb-services"), before["/infra/lb-services"]+1)
		w.restart() // what is listed tells which servers use a service
		type deletion struct {
			request  services.Request
			observed observed
			changes  []change
		}
		var together []deletion
		for _, s := range all {
			d := deletion{request: services.Request{Purpose: services.Delete, Cluster: w.cluster, Service: w.Current(s)}}
			var err error
			d.observed, err = w.loadBalancers.Observe(w.T.Context(), d.request)
			require.NoError(w.T, err)
			d.changes, _, err = w.loadBalancers.Deletions(w.T.Context(), d.request, d.observed)
			require.NoError(w.T, err)
			together = append(together, d)
		}
		for _, d := range together {
			o := d.observed
			for _, c := range d.changes {
				var err error
				o, err = c.Make(w.T.Context(), &d.request, o)
				require.NoError(w.T, err)
			}
		}
		for _, kind := range kinds {
			assert.Len(w.T, w.sim.Objects(kind), before[kind], kind)
		}
	})
}
