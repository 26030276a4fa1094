package keepalived

import (
	"errors"
	"maps"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/kit/services"
	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
	"github.com/anyccm/cloud-controller-manager/registry/portable"
	"github.com/anyccm/cloud-controller-manager/registry/schema"
)

func withEnv(more map[string]string) map[string]string {
	env := maps.Clone(vipEnv)
	maps.Copy(env, more)
	return env
}

// readable matches the values that kube-keepalived-vip accepts: it skips all others, and their addresses are lost.
var readable = regexp.MustCompile(`^([^/]+)/([^/:]+)(:(NAT|DR|PROXY))?$`)

// TestFirstService: the registry and the data have keepalived-cloud-provider's format, written in one request. An up-to-date Service costs
// none.
func TestFirstService(t *testing.T) {
	t.Parallel()
	onStage(t, vipEnv, func(t *testing.T, s *stage) {
		c, web := s.start(), service("default", 1)
		s.Apply(web)
		assert.Equal(t, "10.210.38.65", s.requireServed(c, web))
		assert.Equal(t, 1, s.writes())
		cm := s.vips()
		assert.JSONEq(t, `{"services":[{"uid":"uid-00001","ip":"10.210.38.65","serviceNamespace":"default","serviceName":"s1"}]}`, cm.Annotations[annotationRegistry])
		assert.Equal(t, map[string]string{"10.210.38.65": "default/s1"}, cm.Data)
		s.server.ResetCalls()
		s.requireServed(c, web)
		assert.Zero(t, s.server.Calls().Total)
		assert.Equal(t, "10.210.38.65", s.requireServed(s.start(), web), "a process that has just begun gives no other address")
		assert.Zero(t, s.writes())
	}, vips("", nil))
}

func TestForwardMethods(t *testing.T) {
	t.Parallel()
	onStage(t, withEnv(map[string]string{envMethod: "DR"}), func(t *testing.T, s *stage) {
		c := s.start()
		method := func(text string) func(*v1.Service) {
			return func(s *v1.Service) { s.Annotations = map[string]string{annotationMethod: text} }
		}
		for number, want := range map[int]string{1: ":DR", 2: ":NAT", 3: "", 4: ":DR"} {
			one := service("default", number, map[int]func(*v1.Service){1: func(*v1.Service) {}, 2: method("NAT"), 3: method(""), 4: method("dr")}[number])
			s.Apply(one)
			at := s.requireServed(c, one)
			assert.Equal(t, "default/"+one.Name+want, s.vips().Data[at], "at its creation already")
			assert.Regexp(t, readable, s.vips().Data[at])
		}
		assert.Contains(t, strings.Join(s.Events(), "\n"), "Warning "+eventIgnored+" annotation "+annotationMethod)
		one := s.Current(service("default", 1))
		at := s.requireServed(c, one)
		one.Annotations = map[string]string{annotationMethod: "PROXY"}
		s.Apply(one)
		assert.Equal(t, at, s.requireServed(c, one))
		assert.Equal(t, "default/s1:PROXY", s.vips().Data[at])
	}, vips("", nil))
}

func TestRequestedVIP(t *testing.T) {
	t.Parallel()
	onStage(t, vipEnv, func(t *testing.T, s *stage) {
		c := s.start()
		one, two := service("default", 1), service("default", 2)
		ask := func(service *v1.Service, address string) *v1.Service {
			now := s.Current(service)
			now.Spec.LoadBalancerIP = address
			s.Apply(now)
			return now
		}
		s.Apply(one, two)
		assert.Equal(t, "10.210.38.90", s.requireServed(c, ask(one, "10.210.38.90")), "inside of the pool")
		assert.Equal(t, "192.0.2.7", s.requireServed(c, ask(one, "192.0.2.7")), "outside of it, and the old one is free")
		assert.Equal(t, map[string]string{"192.0.2.7": "default/s1"}, s.vips().Data)
		assert.Contains(t, strings.Join(s.Events(), "\n"), "Normal "+eventOutside)
		s.server.ResetCalls()
		for address, reason := range map[string]string{"192.0.2.7": eventAddressInUse, "nonsense": eventConfigError, "fd00::1": eventConfigError} {
			_, err := s.ensure(c, ask(two, address))
			require.Error(t, err)
			assert.Contains(t, strings.Join(s.Events(), "\n"), "Warning "+reason)
		}
		assert.Zero(t, s.writes())
		assert.Equal(t, "192.0.2.7", s.requireServed(c, ask(one, "")), "cleared: the address stays")
	}, vips("", nil))
}

func TestDeletion(t *testing.T) {
	t.Parallel()
	onStage(t, vipEnv, func(t *testing.T, s *stage) {
		c, web := s.start(), service("default", 1)
		s.Apply(web)
		s.requireServed(c, web)
		s.server.ResetCalls()
		require.NoError(t, s.Remove(c.loadBalancers, "", web))
		assert.Equal(t, 1, s.writes())
		assert.JSONEq(t, `{"services":[]}`, s.vips().Annotations[annotationRegistry])
		assert.Empty(t, s.vips().Data)
		require.NoError(t, c.loadBalancers.EnsureLoadBalancerDeleted(t.Context(), "", web))
		assert.Equal(t, 1, s.writes())
	}, vips("", nil))
}

// TestTakeoverVIP: records of either version of keepalived-cloud-provider are taken over without a write, unless they are broken.
func TestTakeoverVIP(t *testing.T) {
	t.Parallel()
	data := map[string]string{"10.210.38.65": "default/s1:DR", "10.210.38.70": "default/s2:DR"}
	for name, c := range map[string]struct {
		registry string
		data     map[string]string
		writes   int
	}{
		"the last version":  {registry: `{"services":[{"serviceName":"s1","uid":"uid-00001","ip":"10.210.38.65","serviceNamespace":"default","forwardMethod":"DR"},{"uid":"uid-00002","ip":"10.210.38.70","serviceNamespace":"default","serviceName":"s2","forwardMethod":"DR"}]}`, data: data},
		"the first version": {registry: `{"services":[{"uid":"uid-00001","ip":"10.210.38.65"},{"uid":"uid-00002","ip":"10.210.38.70"}]}`, data: data},
		"values that the upgrade broke": {
			registry: `{"services":[{"uid":"uid-00001","ip":"10.210.38.65"},{"uid":"uid-00002","ip":"10.210.38.70"}]}`,
			data:     map[string]string{"10.210.38.65": "/", "10.210.38.70": "default/s2:DR"}, writes: 1,
		},
	} {
		onStage(t, withEnv(map[string]string{envMethod: "DR"}), func(t *testing.T, s *stage) {
			one, two := service("default", 1), service("default", 2)
			s.Apply(one, two)
			for range 2 {
				process := s.start()
				assert.Equal(t, "10.210.38.65", s.requireServed(process, one))
				assert.Equal(t, "10.210.38.70", s.requireServed(process, two))
				assert.Equal(t, c.writes, s.writes(), name)
			}
			three := service("default", 3)
			s.Apply(three)
			assert.Equal(t, "10.210.38.66", s.requireServed(s.start(), three))
			rec, err := readRecord(s.vips())
			require.NoError(t, err)
			for _, e := range rec.entries {
				assert.NotEmpty(t, e.Name, "the next write fills in the names")
				assert.Regexp(t, readable, s.vips().Data[e.IP])
			}
		}, vips(c.registry, c.data))
	}
}

// TestUsersKeysStay: users' keys are never changed, and their addresses never assigned.
func TestUsersKeysStay(t *testing.T) {
	t.Parallel()
	onStage(t, vipEnv, func(t *testing.T, s *stage) {
		c := s.start()
		for number := range 5 {
			one := service("default", number)
			s.Apply(one)
			assert.NotEqual(t, "10.210.38.66", s.requireServed(c, one))
			if number%2 == 1 {
				require.NoError(t, s.Remove(c.loadBalancers, "", one))
			}
		}
		assert.Equal(t, "mine/own", s.vips().Data["10.210.38.66"])
		assert.Equal(t, "text", s.vips().Data["notes"])
	}, vips("", map[string]string{"10.210.38.66": "mine/own", "notes": "text"}))
}

func TestDamagedRegistry(t *testing.T) {
	t.Parallel()
	for _, text := range []string{`{"services":[`, `{"services":[{"uid":"","ip":"10.0.0.1"}]}`, `{"services":[{"uid":"a","ip":"nowhere"}]}`} {
		onStage(t, vipEnv, func(t *testing.T, s *stage) {
			c, web := s.start(), service("default", 1)
			s.Apply(web)
			_, err := s.ensure(c, web)
			require.ErrorContains(t, err, "annotation "+annotationRegistry+" of ConfigMap network/vips")
			require.Error(t, s.Remove(c.loadBalancers, "", web))
			assert.Zero(t, s.writes(), "nothing is given, and nothing erased")
		}, vips(text, map[string]string{"10.0.0.1": "a/b"}))
	}
}

func TestMissingConfigMap(t *testing.T) {
	t.Parallel()
	onStage(t, vipEnv, func(t *testing.T, s *stage) {
		c, web := s.start(), service("default", 1)
		s.Apply(web)
		s.requireServed(c, web)
		assert.Equal(t, "default/s1", s.vips().Data["10.210.38.65"])
	})
}

// TestTwoProcesses: a process that lost its lease still works while the next one starts. No address is assigned twice and no entry lost.
func TestTwoProcesses(t *testing.T) {
	t.Parallel()
	for _, announcer := range []string{announcerVIP, announcerKeepalived, announcerNone} {
		onStage(t, withEnv(map[string]string{envAnnouncer: announcer}), func(t *testing.T, s *stage) {
			s.server.Configure(func(settings *simkit.Settings) { settings.Latency = simkit.Duration(roundTrip) })
			processes := []*cloud{s.start(), s.start()}
			var all []*v1.Service
			for number := range 40 {
				all = append(all, service("default", number))
			}
			s.Apply(all...)
			var group sync.WaitGroup
			var mu sync.Mutex
			owners := map[string]string{}
			for i, one := range all {
				group.Go(func() {
					status, err := processes[i%2].loadBalancers.EnsureLoadBalancer(t.Context(), "", one, nil)
					if !assert.NoError(t, err) {
						return
					}
					mu.Lock()
					defer mu.Unlock()
					assert.Empty(t, owners[status.Ingress[0].IP])
					owners[status.Ingress[0].IP] = one.Name
				})
			}
			group.Wait()
			rec, err := readRecord(s.vips())
			require.NoError(t, err)
			assert.Len(t, rec.entries, len(all))
			assert.LessOrEqual(t, s.writes(), 6, "changes that come together are one write")
		}, vips("", nil))
	}
}

// TestManyAtOnce: 200 concurrent Services cost few writes, and get 200 addresses.
func TestManyAtOnce(t *testing.T) {
	t.Parallel()
	onStage(t, withEnv(map[string]string{envServiceCIDR: "10.0.0.0/22"}), func(t *testing.T, s *stage) {
		c := s.start()
		var group sync.WaitGroup
		for number := range 200 {
			one := service("default", number)
			s.Apply(one)
			group.Go(func() {
				_, err := c.loadBalancers.EnsureLoadBalancer(t.Context(), "", one, nil)
				assert.NoError(t, err)
			})
		}
		group.Wait()
		assert.Len(t, s.vips().Data, 200)
		assert.Equal(t, 1, s.writes(), "one write for what comes within a moment")
	}, vips("", nil))
}

// TestConflict: a foreign write between our read and our write stays.
func TestConflict(t *testing.T) {
	t.Parallel()
	onStage(t, vipEnv, func(t *testing.T, s *stage) {
		c, one, two := s.start(), service("default", 1), service("default", 2)
		s.Apply(one, two)
		s.requireServed(c, one)
		other := s.vips()
		other.Data["10.210.38.66"] = "mine/own"
		s.api.Put(other)
		assert.Equal(t, "10.210.38.67", s.requireServed(c, two))
		assert.Equal(t, "mine/own", s.vips().Data["10.210.38.66"])
		_, err := s.server.AddFault(simkit.Fault{Kind: simkit.FaultStatus, Status: http.StatusForbidden, Writes: true})
		require.NoError(t, err)
		three := service("default", 3)
		s.Apply(three)
		_, err = s.ensure(c, three)
		require.ErrorContains(t, err, "grant it, as the chart does")
	}, vips("", nil))
}

// TestOrphans: entries of deleted Services keep their addresses until an operator deletes them.
func TestOrphans(t *testing.T) {
	t.Parallel()
	onStage(t, vipEnv, func(t *testing.T, s *stage) {
		c, web := s.start(), service("default", 1)
		s.Apply(web)
		assert.Equal(t, "10.210.38.66", s.requireServed(c, web), "the first address is still that of a Service that is gone")
		found, err := c.Orphans(t.Context(), []*v1.Service{web})
		require.NoError(t, err)
		require.Len(t, found, 1)
		assert.Equal(t, "10.210.38.65", found[0].Name)
		require.NoError(t, c.DeleteOrphan(t.Context(), found[0]))
		assert.Equal(t, map[string]string{"10.210.38.66": "default/s1"}, s.vips().Data)
	}, vips(`{"services":[{"uid":"gone","ip":"10.210.38.65","serviceNamespace":"default","serviceName":"old"}]}`, map[string]string{"10.210.38.65": "default/old"}))
}

// TestRetryWhenPoolsChange: a Service without an address is tried again as soon as the pools change or an address is freed.
func TestRetryWhenPoolsChange(t *testing.T) {
	t.Parallel()
	env := map[string]string{envAnnouncer: announcerNone}
	onStage(t, env, func(t *testing.T, s *stage) {
		c, one, two := s.start(), service("default", 1), service("default", 2)
		var retried []string
		c.SetServiceRetry(func(waits func(*v1.Service) bool) {
			for _, s := range []*v1.Service{one, two} {
				if waits(s) {
					retried = append(retried, s.Name)
				}
			}
		})
		s.Apply(one, two)
		s.requireServed(c, one)
		_, err := s.ensure(c, two)
		require.Error(t, err)
		assert.Contains(t, strings.Join(s.Events(), "\n"), "Warning "+eventNoAddress+" no addresses available in cidr-global of ConfigMap kube-system/kubevip")
		s.api.Put(configMap(defaultNamespace, defaultPool, map[string]string{"cidr-global": "10.0.0.1/32,10.0.0.7/32"}))
		c.reconciler.pools.invalidate()
		c.reconciler.retryWaiting()
		assert.Equal(t, []string{"s2"}, retried)
		assert.Equal(t, "10.0.0.7", s.requireServed(c, two))
		c.reconciler.retryWaiting()
		assert.Len(t, retried, 1, "nobody waits any more")
	}, configMap(defaultNamespace, defaultPool, map[string]string{"cidr-global": "10.0.0.1/32"}))
}

// TestLocalTraffic: a Service with local traffic gets a warning, because keepalived does not know the pods' nodes; validate says the same.
func TestLocalTraffic(t *testing.T) {
	t.Parallel()
	onStage(t, confEnv, func(t *testing.T, s *stage) {
		web := service("default", 1, func(s *v1.Service) { s.Spec.ExternalTrafficPolicy = v1.ServiceExternalTrafficPolicyLocal })
		s.Apply(web)
		s.requireServed(s.start(), web)
		warnings, err := checkService(inputs(confEnv), web)
		require.NoError(t, err)
		require.ErrorContains(t, warnings, "loses traffic while the node that holds the address has no pod of the Service")
		assert.Contains(t, strings.Join(s.Events(), "\n"), "Warning "+services.EventFieldIgnored+" "+warnings.Error())
	})
}

// TestAnnotationsByAnnouncer: an annotation that only another announcer reads is told of, and one that somebody else may read is not.
func TestAnnotationsByAnnouncer(t *testing.T) {
	t.Parallel()
	s := service("default", 1, func(s *v1.Service) {
		s.Annotations = map[string]string{annotationMethod: "DR", annotationInterface: "eth0", portable.BackendSelector: "a=b"}
	})
	for announcer, told := range map[string][]string{
		announcerVIP: {annotationInterface}, announcerKubeVIP: {annotationMethod},
		announcerKeepalived: {annotationMethod, annotationInterface}, announcerNone: nil,
	} {
		warnings, err := Config{Announcer: announcer}.judge(s)
		require.NoError(t, err)
		var places []string
		for _, one := range schema.Problems(warnings) {
			p, ok := errors.AsType[*schema.Problem](one)
			require.True(t, ok)
			places = append(places, strings.TrimPrefix(p.Place, "annotation "))
		}
		assert.Equal(t, append(told, portable.BackendSelector), places, announcer)
	}
}

// TestTwoReleases: two releases permanently serve their own classes from one pool. With a shared record no address is assigned twice, each
// publishes all addresses, and either may assign what the other freed. With kube-vip the Services are that record.
func TestTwoReleases(t *testing.T) {
	t.Parallel()
	for _, announcer := range []string{announcerVIP, announcerKeepalived, announcerNone, announcerKubeVIP} {
		env := map[string]string{envAnnouncer: announcer}
		onStage(t, env, func(t *testing.T, s *stage) {
			s.Register(node("n1", "10.99.0.11"))
			releases := []*cloud{s.start(), s.start()}
			var all []*v1.Service
			for number := range 40 {
				all = append(all, service([]string{"a", "b"}[number%2], number))
				all[number].Spec.LoadBalancerClass = new([]string{"example.com/a", "example.com/b"}[number%2])
			}
			s.Apply(all...)
			var group sync.WaitGroup
			for i, one := range all {
				group.Go(func() {
					for range 5 { // the framework retries after a lost race
						if _, err := releases[i%2].loadBalancers.EnsureLoadBalancer(t.Context(), "", s.fromServer(one), nil); err == nil {
							return
						}
					}
				})
			}
			group.Wait()
			owners := map[string]string{}
			for i, one := range all {
				releases[i%2].reconciler.book.observe(&v1.ConfigMap{})
				address := texts(s.addressesOf(releases[i%2], one))
				require.NotEmpty(t, address, one.Name)
				require.Empty(t, owners[address], "%s is given twice", address)
				owners[address] = one.Name
			}
			if announcer == announcerKubeVIP {
				return
			}
			freed := texts(s.addressesOf(releases[0], all[0]))
			require.NoError(t, s.Remove(releases[0].loadBalancers, "", all[0]))
			book := s.api.ConfigMap(defaultNamespace, releases[0].reconciler.config.ConfigMap)
			rec, err := readRecord(book)
			require.NoError(t, err)
			assert.Len(t, rec.entries, len(all)-1)
			if announcer == announcerKeepalived {
				assert.Equal(t, len(all)-1, strings.Count(book.Data[keyConfiguration], "/32\n"))
			}
			late := service("b", 99)
			s.Apply(late)
			assert.Equal(t, freed, s.requireServed(releases[1], late))
		}, configMap(defaultNamespace, defaultPool, map[string]string{"cidr-global": "10.0.0.0/26"}))
	}
}
