package keepalived

import (
	"net/netip"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
)

// This file has what a user of the cluster may try who may write Services of a namespace, and what happens by accident.

func asks(address string) func(*v1.Service) {
	return func(s *v1.Service) { s.Spec.LoadBalancerIP = address }
}

func annotated(address string) func(*v1.Service) {
	return func(s *v1.Service) { s.Annotations = map[string]string{annotationIPs: address} }
}

// refused: a Service is not served, an event says why, and nothing is written.
func (s *stage) refused(c *cloud, service *v1.Service, reason, words string) {
	s.T.Helper()
	before := s.writes()
	_, err := s.ensure(c, service)
	require.Error(s.T, err, service.Name)
	events := strings.Join(s.Events(), "\n")
	assert.Contains(s.T, events, "Warning "+reason)
	assert.Contains(s.T, events, words)
	assert.Equal(s.T, before, s.writes())
}

var confEnv = map[string]string{envAnnouncer: announcerKeepalived, envServiceCIDR: "10.98.0.0/24,fd98::/64"}

// TestFormsOfOneAddress: an address in another form is the same one, and a zone makes none of it. In keepalived.conf two Services with
// fe80::1%a and fe80::1%b would be one line twice, after which no file was ever published again, for anybody.
func TestFormsOfOneAddress(t *testing.T) {
	t.Parallel()
	for _, announcer := range []string{announcerKeepalived, announcerNone, announcerVIP, announcerKubeVIP} {
		env := map[string]string{envAnnouncer: announcer, envServiceCIDR: "10.98.0.0/24"}
		onStage(t, env, func(t *testing.T, s *stage) {
			c, web := s.start(), service("default", 1)
			s.Apply(web)
			_, err := s.ensure(c, web)
			require.NoError(t, err)
			for i, text := range []string{"::ffff:10.98.0.1", "::ffff:a62:1", "fe80::1%eth0", "fe80::1%a\nnotify x", "10.98.0.01", "10.98.0.1/32", " "} {
				bad := service("tenant", 10+i, asks(text))
				s.Apply(bad)
				s.refused(c, bad, eventConfigError, "is not an IP address")
			}
			for i, text := range []string{"::ffff:10.98.0.1", "::ffff:10.98.0.1,10.98.0.1", "fe80::1%eth0"} {
				bad := service("tenant", 20+i, annotated(text))
				s.Apply(bad)
				s.refused(c, bad, eventConfigError, "annotation "+annotationIPs)
			}
			next := service("default", 2, func(s *v1.Service) { s.Spec.ExternalIPs = nil })
			others := service("other", 3, func(s *v1.Service) { s.Spec.ExternalIPs = []string{"010.098.000.002", "::ffff:10.98.0.3"} })
			s.Apply(next, others)
			_, err = s.ensure(c, next)
			require.NoError(t, err)
			assert.Equal(t, "10.98.0.4", texts(s.addressesOf(c, next)), "kube-proxy reads leading zeros")
		})
	}
}

// addressesOf are those that are recorded for a Service.
func (s *stage) addressesOf(c *cloud, service *v1.Service) []netip.Addr {
	s.T.Helper()
	if c.reconciler.annotated() {
		return recorded(s.Current(service))
	}
	rec, err := c.reconciler.book.read(s.T.Context())
	require.NoError(s.T, err)
	return rec.entryOf(string(service.UID)).addresses()
}

// TestUnusableAddresses: what no host can have on its network is given to nobody who asks for it.
func TestUnusableAddresses(t *testing.T) {
	t.Parallel()
	for address, words := range map[string]string{
		"0.0.0.0": "is no address", "::": "is no address", "127.0.0.1": "is a loopback address", "::1": "is a loopback address",
		"224.0.0.18": "is a multicast address", "ff02::12": "is a multicast address", "255.255.255.255": "is the broadcast address",
	} {
		onStage(t, confEnv, func(t *testing.T, s *stage) {
			c, web := s.start(), service("default", 1, asks(address))
			s.Apply(web)
			s.refused(c, web, eventConfigError, words)
		})
	}
	p := pool{spans: []span{spanOf(netip.MustParsePrefix("::/126"))}}
	assert.Equal(t, []string{"::1", "::2"}, given(p, true, 2))
}

// TestNobodyBlocksPool: what a Service asks for counts where it could have it. A list on a Service that is no load balancer, or one that
// is longer than any Service may have, keeps nobody from a pool.
func TestNobodyBlocksPool(t *testing.T) {
	t.Parallel()
	all := "10.98.0.1,10.98.0.2,10.98.0.3,10.98.0.4,10.98.0.5,10.98.0.6"
	for _, announcer := range []string{announcerKeepalived, announcerVIP, announcerNone} {
		env := map[string]string{envAnnouncer: announcer, envServiceCIDR: "10.98.0.0/29"}
		onStage(t, env, func(t *testing.T, s *stage) {
			c := s.start()
			inner := service("tenant", 1, annotated(all), func(s *v1.Service) { s.Spec.Type = v1.ServiceTypeClusterIP })
			field := service("tenant", 2, asks("10.98.0.1"), func(s *v1.Service) { s.Spec.Type = v1.ServiceTypeClusterIP })
			long, web := service("tenant", 3, annotated(all)), service("default", 4)
			s.Apply(inner, field, long, web)
			s.refused(c, long, eventConfigError, "is not an IP address, or one of IPv4 and one of IPv6")
			assert.Equal(t, "10.98.0.1", s.served(c, web))
		})
	}
}

// TestNamespacesKeepTheirAddresses: who asks for the address of another namespace gets an event, before and after it was given, when both
// ask at once, and when the record is lost.
func TestNamespacesKeepTheirAddresses(t *testing.T) {
	t.Parallel()
	for _, announcer := range []string{announcerKeepalived, announcerVIP, announcerNone} {
		env := map[string]string{envAnnouncer: announcer, envServiceCIDR: "10.98.0.0/24", envConfigMap: "book", envNamespace: defaultNamespace}
		onStage(t, env, func(t *testing.T, s *stage) {
			c, web := s.start(), service("default", 1)
			s.Apply(web)
			assert.Equal(t, "10.98.0.1", s.served(c, web))
			thief := service("tenant", 2, asks("10.98.0.1"))
			other := service("tenant", 0, annotated("10.98.0.1")) // it is older, too
			s.Apply(thief, other)
			s.refused(c, thief, eventAddressInUse, "is in use by Service default/s1")
			s.refused(c, other, eventAddressInUse, "is in use by Service default/s1")

			s.api.Delete(defaultNamespace, "book")
			c = s.start()
			s.refused(c, thief, eventAddressInUse, "is in use by Service default/s1")
			assert.Equal(t, "10.98.0.1", s.served(c, web), "who shows it has it")
			s.refused(c, thief, eventAddressInUse, "is in use by Service default/s1")
		})
	}
}

// TestPoolsAlone: with KEEPALIVED_REQUESTED_ADDRESSES=pools nobody takes an address of a machine that the cluster does not know, nor one
// of the pool of another namespace. Who has one keeps it, and who waits for a pool is served with it.
func TestPoolsAlone(t *testing.T) {
	t.Parallel()
	env := map[string]string{envAnnouncer: announcerNone, envRequested: requestedPools}
	onStage(t, env, func(t *testing.T, s *stage) {
		c, gateway, mine := s.start(), service("tenant", 1, asks("10.98.0.254")), service("tenant", 2, asks("10.1.0.7"))
		others, had := service("tenant", 3, annotated("10.2.0.7")), service("tenant", 4, asks("192.0.2.1"))
		s.Apply(gateway, mine, others, had)
		book := configMap(defaultNamespace, defaultBook, nil)
		book.Annotations = map[string]string{annotationRegistry: record{}.with(newEntry(had, lenientList("192.0.2.1"), "")).encode()}
		s.api.Put(book)
		s.refused(c, gateway, eventConfigError, "address 10.98.0.254 is in no pool of namespace tenant, and KEEPALIVED_REQUESTED_ADDRESSES=pools")
		s.refused(c, others, eventConfigError, "address 10.2.0.7 is in no pool of namespace tenant")
		assert.Equal(t, "10.1.0.7", s.served(c, mine))
		assert.Equal(t, "192.0.2.1", s.served(c, had))
		_, err := s.server.AddFault(simkit.Fault{Kind: simkit.FaultStatus, Status: 503, Operation: "GET configmaps"})
		require.NoError(t, err)
		_, err = s.ensure(s.start(), gateway)
		require.Error(t, err)
		assert.Empty(t, s.Events(), "where the pools cannot be read, nobody knows")
	}, configMap(defaultNamespace, defaultPool, map[string]string{"cidr-tenant": "10.1.0.0/24", "cidr-other": "10.2.0.0/24"}))
}

// TestMissingFamily: who asks for an address of one family, and for two families, gets the other one of the pool.
func TestMissingFamily(t *testing.T) {
	t.Parallel()
	four, six := v1.IPv4Protocol, v1.IPv6Protocol
	onStage(t, confEnv, func(t *testing.T, s *stage) {
		c := s.start()
		both := service("default", 1, asks("10.98.0.9"), policy(v1.IPFamilyPolicyRequireDualStack, six, four))
		single := service("default", 2, asks("10.98.0.10"), policy(v1.IPFamilyPolicySingleStack, four))
		list := service("default", 3, annotated("10.98.0.11,fd98::11"))
		s.Apply(both, single, list)
		for service, want := range map[*v1.Service]string{both: "fd98::,10.98.0.9", single: "10.98.0.10", list: "10.98.0.11,fd98::11"} {
			s.served(c, service)
			assert.Equal(t, want, texts(s.addressesOf(c, service)))
		}
		now := s.Current(both)
		now.Spec.LoadBalancerIP = "10.98.0.77"
		s.Apply(now)
		s.served(c, now)
		assert.Equal(t, "fd98::,10.98.0.77", texts(s.addressesOf(c, now)), "the other address stays")
	})
}

// TestSharedPortsChange: of two Services that share an address, one changes its ports. The younger one is told, and keeps the address:
// to take it away would be an outage.
func TestSharedPortsChange(t *testing.T) {
	t.Parallel()
	env := map[string]string{envAnnouncer: announcerNone}
	onStage(t, env, func(t *testing.T, s *stage) {
		c, first, second := s.start(), service("default", 1), service("default", 2, port(443, v1.ProtocolTCP))
		s.Apply(first, second)
		assert.Equal(t, s.served(c, first), s.served(c, second))
		assert.Empty(t, s.Events())
		changed := s.Current(first)
		changed.Spec.Ports = []v1.ServicePort{{Port: 443}}
		s.Apply(changed)
		before := s.writes()
		s.served(c, first)
		assert.Empty(t, s.Events(), "the older one has it by right")
		s.served(c, second)
		assert.Contains(t, strings.Join(s.Events(), "\n"), "Warning "+eventAddressInUse+" address 10.0.0.1 is in use by Service default/s1 with the same port; it stays")
		assert.Equal(t, before, s.writes())
	}, configMap(defaultNamespace, defaultPool, map[string]string{"cidr-global": "10.0.0.0/29", "allow-share-global": "true"}))
}

// TestKubeVIPAnnotationChanged: the annotation is the record of what a Service has. Who writes another one's address there has not got
// it, and who copies all the marks of another Service is told.
func TestKubeVIPAnnotationChanged(t *testing.T) {
	t.Parallel()
	onStage(t, kubeVIPEnv, func(t *testing.T, s *stage) {
		c, web, thief, forger := s.start(), service("default", 1), service("tenant", 2), service("tenant", 3)
		s.Apply(web, thief)
		ensureMarked(t, s, c, web)
		now := ensureMarked(t, s, c, thief)
		now.Status.LoadBalancer.Ingress = []v1.LoadBalancerIngress{{IP: "10.0.0.2"}}
		now.Annotations[annotationIPs] = "10.0.0.1"
		s.Apply(now)
		_, err := c.loadBalancers.EnsureLoadBalancer(t.Context(), "", now, nil)
		require.ErrorContains(t, err, "address 10.0.0.1 is in use by Service default/s1")
		now = s.Current(now)
		now.Annotations[annotationIPs] = "10.0.0.5"
		s.Apply(now)
		assert.Equal(t, served("10.0.0.5"), marksOf(ensureMarked(t, s, c, now)), "a free one is taken, with the field")

		forger.Labels, forger.Annotations = map[string]string{labelImplementation: implementation}, map[string]string{annotationIPs: "10.0.0.1"}
		forger.Spec.LoadBalancerIP = "10.0.0.1"
		s.Apply(forger)
		s.Events()
		ensureMarked(t, s, c, forger)
		assert.Contains(t, strings.Join(s.Events(), "\n"), "Warning "+eventAddressInUse+" address 10.0.0.1 is in use by Service default/s1")
		ensureMarked(t, s, c, web)
		assert.NotContains(t, strings.Join(s.Events(), "\n"), eventAddressInUse, "the older one has it")
	}, kubeVIPPools())
}

// TestPoolEditedWhileAllocating: two processes give addresses while an operator edits the pool again and again. None is given twice, and
// each is of the pool of before or after.
func TestPoolEditedWhileAllocating(t *testing.T) {
	t.Parallel()
	for _, announcer := range []string{announcerNone, announcerKeepalived} {
		env := map[string]string{envAnnouncer: announcer}
		edits := []string{"10.0.0.0/26,fd00::/64", "10.0.0.32-10.0.0.90,fd00::8-fd00::ff", "10.0.0.0/24,fd00::/112", "10.0.0.8/29"}
		onStage(t, env, func(t *testing.T, s *stage) {
			s.server.Configure(func(settings *simkit.Settings) { settings.Latency = simkit.Duration(roundTrip) })
			processes := []*cloud{s.start(), s.start()}
			var all []*v1.Service
			for number := range 60 {
				one := service([]string{"a", "b"}[number%2], number, policy(v1.IPFamilyPolicyPreferDualStack, v1.IPv4Protocol, v1.IPv6Protocol))
				if number%5 == 0 {
					asks("10.0.0.20")(one)
				}
				all = append(all, one)
			}
			s.Apply(all...)
			for round := range 6 {
				var group sync.WaitGroup
				for i, one := range all[round*10 : round*10+10] {
					group.Go(func() { _, _ = processes[i%2].loadBalancers.EnsureLoadBalancer(t.Context(), "", one, nil) })
				}
				group.Go(func() {
					s.api.Put(configMap(defaultNamespace, defaultPool, map[string]string{"cidr-global": edits[round%len(edits)]}))
					for _, p := range processes {
						p.reconciler.pools.changed()
					}
				})
				group.Wait()
			}
			rec, err := readRecord(s.api.ConfigMap(defaultNamespace, defaultBook))
			require.NoError(t, err)
			require.Greater(t, len(rec.entries), 20)
			owners := map[string]string{}
			for _, e := range rec.entries {
				for _, a := range e.addresses() {
					assert.Empty(t, owners[a.String()], "%s is given twice", a)
					owners[a.String()] = e.Name
				}
			}
		}, configMap(defaultNamespace, defaultPool, map[string]string{"cidr-global": edits[0]}))
	}
}

// TestInjection: nothing that a user of the cluster writes reaches a file or a value as more than an address or a name.
func TestInjection(t *testing.T) {
	t.Parallel()
	const evil = "DR\n  notify /bin/sh"
	for announcer, env := range map[string]map[string]string{announcerVIP: vipEnv, announcerKeepalived: confEnv} {
		onStage(t, env, func(t *testing.T, s *stage) {
			s.Register(node("n1", "10.99.0.11"))
			c, web := s.start(), service("default", 1)
			web.Annotations = map[string]string{annotationMethod: evil, annotationInterface: "eth0\n notify x", annotationHost: evil}
			web.Labels = map[string]string{labelImplementation: "x"}
			web.Spec.Ports = []v1.ServicePort{{Name: "virtual-ipaddress", Port: 80}}
			s.Apply(web)
			address := s.served(c, web)
			if announcer == announcerVIP {
				assert.Equal(t, "default/s1", s.vips().Data[address])
				return
			}
			text := s.api.ConfigMap(defaultNamespace, defaultBook).Data[keyConfiguration]
			require.NoError(t, verify(text))
			assert.NotContains(t, text, "notify")
		})
	}
}

// TestSomebodyBreaksFile: a file that somebody else wrote into the ConfigMap is replaced, also where no Service has an address.
func TestSomebodyBreaksFile(t *testing.T) {
	t.Parallel()
	onStage(t, confEnv, func(t *testing.T, s *stage) {
		s.Register(node("n1", "10.99.0.11"))
		c, web := s.start(), service("default", 1)
		require.NoError(t, c.publishAgain(t.Context()))
		assert.Nil(t, s.api.ConfigMap(defaultNamespace, defaultBook), "nothing is announced, and nothing written")
		s.Apply(web)
		s.served(c, web)
		for range 2 {
			cm := s.api.ConfigMap(defaultNamespace, defaultBook)
			cm.Data[keyConfiguration] = "vrrp_instance {"
			s.api.Put(cm)
			c.reconciler.book.seen(s.api.ConfigMap(defaultNamespace, defaultBook))
			require.NoError(t, c.publishAgain(t.Context()))
			require.NoError(t, verify(s.api.ConfigMap(defaultNamespace, defaultBook).Data[keyConfiguration]))
			require.NoError(t, s.Remove(c.loadBalancers, "", web))
		}
	})
}

// TestByClass: KUBEVIP_ENABLE_LOADBALANCERCLASS leaves Services of other classes, and of none, to other controllers, as kube-vip's own
// controller does.
func TestByClass(t *testing.T) {
	t.Parallel()
	class := func(name string) func(*v1.Service) { return func(s *v1.Service) { s.Spec.LoadBalancerClass = &name } }
	plain, own, other := service("a", 1), service("a", 2, class(documentedClass)), service("a", 3, class("example.com/other"))
	left := func(env map[string]string) (all []bool) {
		leave := leaves(inputs(env))
		for _, s := range []*v1.Service{plain, own, other} {
			all = append(all, leave(s))
		}
		return all
	}
	assert.Equal(t, []bool{false, false, false}, left(kubeVIPEnv))
	assert.Equal(t, []bool{true, false, true}, left(map[string]string{envClass: "true"}))
	assert.Equal(t, []bool{true, true, false}, left(map[string]string{envClass: "1", envClassName: "example.com/other"}))
	_, _, err := parseConfig(inputs(map[string]string{envClass: "perhaps"}))
	require.ErrorContains(t, err, envClass)
}

// TestLocalTraffic: keepalived does not know where pods are, and the user is told.
func TestLocalTraffic(t *testing.T) {
	t.Parallel()
	onStage(t, confEnv, func(t *testing.T, s *stage) {
		web := service("default", 1, func(s *v1.Service) { s.Spec.ExternalTrafficPolicy = v1.ServiceExternalTrafficPolicyLocal })
		s.Apply(web)
		s.served(s.start(), web)
		assert.Contains(t, strings.Join(s.Events(), "\n"), "Warning "+eventLocal)
	})
}

// TestTwoReleases: two releases serve classes of their own from one pool, for good. With one record no address is given twice, each
// publishes what both gave, and what one takes back is the other one's to give. With kube-vip the Services are that record.
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
					for range 5 { // as the framework does where the other release was faster
						if _, err := releases[i%2].loadBalancers.EnsureLoadBalancer(t.Context(), "", s.fromServer(one), nil); err == nil {
							return
						}
					}
				})
			}
			group.Wait()
			owners := map[string]string{}
			for i, one := range all {
				releases[i%2].reconciler.book.seen(&v1.ConfigMap{})
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
			assert.Equal(t, freed, s.served(releases[1], late))
		}, configMap(defaultNamespace, defaultPool, map[string]string{"cidr-global": "10.0.0.0/26"}))
	}
}

// fromServer is a Service as the API server has it.
func (s *stage) fromServer(service *v1.Service) *v1.Service {
	now, err := s.Kube.CoreV1().Services(service.Namespace).Get(s.T.Context(), service.Name, metav1.GetOptions{})
	if err != nil {
		return service
	}
	return now
}
