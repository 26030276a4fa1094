package keepalived

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// service returns a Service of type LoadBalancer. A higher number is a later creation time.
func service(namespace string, number int, change ...func(*v1.Service)) *v1.Service {
	s := &v1.Service{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: fmt.Sprintf("s%d", number), UID: types.UID(fmt.Sprintf("uid-%05d", number)),
			CreationTimestamp: metav1.NewTime(time.Unix(int64(1_000_000+number), 0)),
		},
		Spec: v1.ServiceSpec{Type: v1.ServiceTypeLoadBalancer, Ports: []v1.ServicePort{{Port: 80, Protocol: v1.ProtocolTCP}}},
	}
	for _, c := range change {
		c(s)
	}
	return s
}

func policy(p v1.IPFamilyPolicy, families ...v1.IPFamily) func(*v1.Service) {
	return func(s *v1.Service) { s.Spec.IPFamilyPolicy, s.Spec.IPFamilies = &p, families }
}

func port(number int32, protocol v1.Protocol) func(*v1.Service) {
	return func(s *v1.Service) { s.Spec.Ports = []v1.ServicePort{{Port: number, Protocol: protocol}} }
}

func worldOf(data map[string]string) allocator {
	return allocator{pools: pools{where: "kube-system/kubevip", data: data}}
}

func (w allocator) record(s *v1.Service, addresses ...string) allocator {
	var all []netip.Addr
	for _, text := range addresses {
		all = append(all, netip.MustParseAddr(text))
	}
	w.services, w.entries = append(w.services, s), append(w.entries, newEntry(s, all, ""))
	return w
}

func chosen(t *testing.T, w allocator, s *v1.Service, asked string) string {
	t.Helper()
	c, err := w.choose(s, lenientList(asked), nil)
	require.NoError(t, err)
	return texts(c.addresses)
}

func TestFamilies(t *testing.T) {
	t.Parallel()
	both := map[string]string{"cidr-global": "192.168.0.10-192.168.0.11,2001::10-2001::11"}
	four := map[string]string{"cidr-global": "192.168.0.10-192.168.0.11"}
	full := map[string]string{"cidr-global": "192.168.0.10-192.168.0.10,2001::10-2001::11"}
	dual := policy(v1.IPFamilyPolicyPreferDualStack, v1.IPv6Protocol, v1.IPv4Protocol)
	require4 := policy(v1.IPFamilyPolicyRequireDualStack, v1.IPv4Protocol, v1.IPv6Protocol)
	assert.Equal(t, "2001::10,192.168.0.10", chosen(t, worldOf(both), service("default", 1, dual), ""))
	assert.Equal(t, "192.168.0.10,2001::10", chosen(t, worldOf(both), service("default", 1, require4), ""))
	assert.Equal(t, "192.168.0.10", chosen(t, worldOf(both), service("default", 1), ""), "no family at all: IPv4 first")
	assert.Equal(t, "2001::10", chosen(t, worldOf(map[string]string{"cidr-global": "2001::10/127"}), service("default", 1), ""))
	assert.Equal(t, "2001::10", chosen(t, worldOf(both), service("default", 1, policy(v1.IPFamilyPolicySingleStack, v1.IPv6Protocol)), ""))
	assert.Equal(t, "192.168.0.10", chosen(t, worldOf(four), service("default", 1, dual), ""), "what has no pool is not waited for")

	_, err := worldOf(four).choose(service("default", 1, require4), nil, nil)
	require.ErrorContains(t, err, "spec.ipFamilyPolicy RequireDualStack: an address is missing")
	require.ErrorContains(t, err, "pool cidr-global of ConfigMap")

	w := worldOf(full).record(service("default", 2), "192.168.0.10")
	c, err := w.choose(service("default", 1, dual), nil, nil)
	require.NoError(t, err)
	assert.Equal(t, "2001::10", texts(c.addresses))
	assert.Contains(t, c.lacking, "no addresses available in cidr-global of ConfigMap kube-system/kubevip")

	has := []netip.Addr{netip.MustParseAddr("192.168.0.11")}
	c, err = worldOf(both).choose(service("default", 1, require4), nil, has)
	require.NoError(t, err)
	assert.Equal(t, "192.168.0.11,2001::10", texts(c.addresses), "a family is added, and the address stays")
	single := service("default", 1, policy(v1.IPFamilyPolicySingleStack, v1.IPv4Protocol))
	c, err = worldOf(both).choose(single, nil, append(has, netip.MustParseAddr("2001::10")))
	require.NoError(t, err)
	assert.Equal(t, "192.168.0.11", texts(c.addresses), "a family is taken away")
}

func TestExhausted(t *testing.T) {
	t.Parallel()
	w := worldOf(map[string]string{"range-global": "10.0.0.1-10.0.0.1"}).record(service("default", 1), "10.0.0.1")
	_, err := w.choose(service("default", 2), nil, nil)
	var why *refusal
	require.ErrorAs(t, err, &why)
	assert.True(t, why.again)
	assert.Equal(t, eventNoAddress, why.reason)
	assert.Contains(t, why.message, "no addresses available in range-global of ConfigMap kube-system/kubevip [10.0.0.1-10.0.0.1]")
}

// TestNotTwiceAcrossPools: no address is assigned twice, in spite of overlapping pools, a user's own address, and addresses of nodes and of
// other controllers' Services.
func TestNotTwiceAcrossPools(t *testing.T) {
	t.Parallel()
	w := worldOf(map[string]string{"cidr-a": "10.0.0.0/29", "cidr-b": "10.0.0.0/28"}).record(service("a", 1), "10.0.0.1")
	w.services = append(w.services,
		service("c", 2, func(s *v1.Service) { s.Spec.LoadBalancerIP = "10.0.0.2" }),
		service("c", 3, func(s *v1.Service) {
			s.Spec.LoadBalancerClass = new("example.com/other")
			s.Annotations = map[string]string{annotationIPs: "10.0.0.3"}
		}),
		service("c", 4, func(s *v1.Service) { s.Spec.ExternalIPs = []string{"10.0.0.4"} }),
		service("c", 5, func(s *v1.Service) { s.Status.LoadBalancer.Ingress = []v1.LoadBalancerIngress{{IP: "10.0.0.5"}} }),
		service("c", 6, func(s *v1.Service) { s.Annotations = map[string]string{annotationIPs: "nonsense, ,"} }),
	)
	w.nodes = []*v1.Node{{Status: v1.NodeStatus{Addresses: []v1.NodeAddress{{Type: v1.NodeInternalIP, Address: "10.0.0.6"}}}}}
	assert.Equal(t, "10.0.0.7", chosen(t, w, service("b", 9), ""))
	_, err := w.choose(service("b", 9), lenientList("10.0.0.6"), nil)
	require.ErrorContains(t, err, "is in use by Node")
}

func TestRequested(t *testing.T) {
	t.Parallel()
	w := worldOf(map[string]string{"cidr-global": "10.0.0.0/29"}).record(service("a", 1), "10.0.0.1")
	assert.Equal(t, "10.0.0.5", chosen(t, w, service("a", 2), "10.0.0.5"))
	c, err := w.choose(service("a", 2), lenientList("192.0.2.1"), nil)
	require.NoError(t, err)
	assert.Equal(t, "192.0.2.1", texts(c.outside))
	_, err = w.choose(service("a", 2), lenientList("10.0.0.1"), nil)
	require.ErrorContains(t, err, "address 10.0.0.1 is in use by Service a/s1")
	_, err = w.choose(service("a", 2, policy(v1.IPFamilyPolicySingleStack, v1.IPv4Protocol)), lenientList("2001::1"), nil)
	require.ErrorContains(t, err, "is not of the families of the Service (IPv4)")

	wants := func(s *v1.Service) { s.Spec.LoadBalancerIP = "10.0.0.6" }
	older, younger := service("a", 3, wants), service("a", 4, wants)
	w.services = append(w.services, older, younger)
	assert.Equal(t, "10.0.0.6", chosen(t, w, older, "10.0.0.6"), "of two that ask for an address the older one has it")
	_, err = w.choose(younger, lenientList("10.0.0.6"), nil)
	require.ErrorContains(t, err, "is in use by Service a/s3")
}

func TestSharing(t *testing.T) {
	t.Parallel()
	share := map[string]string{"cidr-global": "10.0.0.0/29", "allow-share-global": "true", "allow-share-strict": "false"}
	local := func(s *v1.Service) { s.Spec.ExternalTrafficPolicy = v1.ServiceExternalTrafficPolicyLocal }
	pods := func(app string) func(*v1.Service) {
		return func(s *v1.Service) { s.Spec.Selector = map[string]string{"app": app} }
	}
	for name, c := range map[string]struct {
		first, second *v1.Service
		same          bool
	}{
		"other ports":             {service("a", 1), service("b", 2, port(443, v1.ProtocolTCP)), true},
		"other protocols":         {service("a", 1, port(53, v1.ProtocolTCP)), service("b", 2, port(53, v1.ProtocolUDP)), true},
		"the same port":           {service("a", 1), service("b", 2), false},
		"a scope without sharing": {service("strict", 1), service("b", 2, port(443, v1.ProtocolTCP)), false},
		"local, other pods":       {service("a", 1, pods("x")), service("b", 2, port(443, v1.ProtocolTCP), pods("y"), local), false},
		"local, the same pods":    {service("a", 1, pods("x")), service("b", 2, port(443, v1.ProtocolTCP), pods("x"), local), true},
	} {
		got := chosen(t, worldOf(share).record(c.first, "10.0.0.1"), c.second, "")
		assert.Equal(t, c.same, got == "10.0.0.1", "%s: %s", name, got)
	}
	w := worldOf(share).record(service("a", 1), "10.0.0.1")
	w.exclusive = true
	assert.Equal(t, "10.0.0.2", chosen(t, w, service("b", 2, port(443, v1.ProtocolTCP)), ""), "kube-keepalived-vip serves one Service an address")
	w = worldOf(share).record(service("a", 1), "10.0.0.1").record(service("a", 3), "9.0.2.1")
	assert.Equal(t, "10.0.0.1", chosen(t, w, service("b", 2, port(443, v1.ProtocolTCP)), ""), "an address outside of the pool is not shared")
}

func TestDynamic(t *testing.T) {
	t.Parallel()
	w := worldOf(map[string]string{"cidr-global": "0.0.0.0/32"})
	w.annotated = true
	assert.Equal(t, "0.0.0.0", chosen(t, w, service("a", 1), ""))
	_, err := worldOf(map[string]string{"cidr-global": "0.0.0.0/32"}).choose(service("a", 1), nil, nil)
	require.Error(t, err, "nobody else asks a DHCP server")
}

// TestNeverTwice runs random clusters with pools, requests, families, shared addresses, and Services created and deleted. Two Services
// never have the same address unless they may share it.
func TestNeverTwice(t *testing.T) {
	t.Parallel()
	families := []v1.IPFamily{v1.IPv4Protocol, v1.IPv6Protocol}
	for seed := range uint64(60) {
		rnd := rand.New(rand.NewPCG(seed, 7))
		w := worldOf(map[string]string{
			"cidr-a": "10.0.0.0/28,fd00::/124", "range-b": "10.0.0.4-10.0.0.20,fd00::4-fd00::20", "cidr-global": "10.0.0.0/27,fd00::/64",
			"allow-share-global": strconv.FormatBool(seed%2 == 0),
		})
		for number := range 120 {
			if len(w.services) > 0 && rnd.IntN(4) == 0 {
				at := rnd.IntN(len(w.services))
				uid := string(w.services[at].UID)
				w.services = append(w.services[:at:at], w.services[at+1:]...)
				w.entries = record{entries: w.entries}.remove(uid).entries
				continue
			}
			s := service([]string{"a", "b", "c"}[rnd.IntN(3)], number, port(int32(80+rnd.IntN(3)), v1.ProtocolTCP),
				policy(v1.IPFamilyPolicyPreferDualStack, families[rnd.IntN(2):]...))
			if rnd.IntN(3) == 0 {
				s.Spec.LoadBalancerIP = fmt.Sprintf("10.0.0.%d", 1+rnd.IntN(30))
				s.Spec.IPFamilies = families
			}
			w.services = append(w.services, s)
			if c, err := w.choose(s, lenientList(s.Spec.LoadBalancerIP), nil); err == nil {
				w.entries = record{entries: w.entries}.put(newEntry(s, c.addresses, "")).entries
			}
			requireDistinct(t, w)
		}
	}
}

// requireDistinct: Services with the same address may share it.
func requireDistinct(t *testing.T, w allocator) {
	t.Helper()
	holders := map[netip.Addr][]*v1.Service{}
	for _, e := range w.entries {
		for _, s := range w.services {
			if string(s.UID) != e.UID {
				continue
			}
			for _, a := range e.addresses() {
				for _, other := range holders[a] {
					require.True(t, a.Is4() && w.pools.shares(s.Namespace) && !portsOverlap(s, other), "%s and %s have %s", s.Name, other.Name, a)
				}
				holders[a] = append(holders[a], s)
			}
		}
	}
}

// TestFormsOfOneAddress: an address in another form is the same one, and zones are refused. fe80::1%a and fe80::1%b would be the same line
// of keepalived.conf twice, which would block every later file.
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
				s.requireRefusal(c, bad, eventConfigError, "is not an IP address")
			}
			for i, text := range []string{"::ffff:10.98.0.1", "::ffff:10.98.0.1,10.98.0.1", "fe80::1%eth0"} {
				bad := service("tenant", 20+i, annotated(text))
				s.Apply(bad)
				s.requireRefusal(c, bad, eventConfigError, "annotation "+annotationIPs)
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

// TestUnusableAddresses: a request for an address that no host can have is refused.
func TestUnusableAddresses(t *testing.T) {
	t.Parallel()
	for address, words := range map[string]string{
		"0.0.0.0": "is no address", "::": "is no address", "127.0.0.1": "is a loopback address", "::1": "is a loopback address",
		"224.0.0.18": "is a multicast address", "ff02::12": "is a multicast address", "255.255.255.255": "is the broadcast address",
	} {
		onStage(t, confEnv, func(t *testing.T, s *stage) {
			c, web := s.start(), service("default", 1, asks(address))
			s.Apply(web)
			s.requireRefusal(c, web, eventConfigError, words)
		})
	}
	p := pool{spans: []span{spanOf(netip.MustParsePrefix("::/126"))}}
	assert.Equal(t, []string{"::1", "::2"}, takeAll(p, true, 2))
}

// TestRequestsBlockNoPool: only possible requests count. A list on a Service that is not a load balancer, or a list that is too long,
// blocks no pool.
func TestRequestsBlockNoPool(t *testing.T) {
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
			s.requireRefusal(c, long, eventConfigError, "is not an IP address, or one of IPv4 and one of IPv6")
			assert.Equal(t, "10.98.0.1", s.requireServed(c, web))
		})
	}
}

// TestNamespacesKeepTheirAddresses: a request for an address of another namespace is refused with an event, before and after its
// assignment, at the same time, and after the record is lost.
func TestNamespacesKeepTheirAddresses(t *testing.T) {
	t.Parallel()
	for _, announcer := range []string{announcerKeepalived, announcerVIP, announcerNone} {
		env := map[string]string{envAnnouncer: announcer, envServiceCIDR: "10.98.0.0/24", envConfigMap: "book", envNamespace: defaultNamespace}
		onStage(t, env, func(t *testing.T, s *stage) {
			c, web := s.start(), service("default", 1)
			s.Apply(web)
			assert.Equal(t, "10.98.0.1", s.requireServed(c, web))
			thief := service("tenant", 2, asks("10.98.0.1"))
			other := service("tenant", 0, annotated("10.98.0.1")) // this one is also older
			s.Apply(thief, other)
			s.requireRefusal(c, thief, eventAddressInUse, "is in use by Service default/s1")
			s.requireRefusal(c, other, eventAddressInUse, "is in use by Service default/s1")

			s.api.Delete(defaultNamespace, "book")
			c = s.start()
			s.requireRefusal(c, thief, eventAddressInUse, "is in use by Service default/s1")
			assert.Equal(t, "10.98.0.1", s.requireServed(c, web), "who shows it has it")
			s.requireRefusal(c, thief, eventAddressInUse, "is in use by Service default/s1")
		})
	}
}

// TestRequestedFamilyIsCompletedFromThePool: a request for one of two families gets the other address from the pool.
func TestRequestedFamilyIsCompletedFromThePool(t *testing.T) {
	t.Parallel()
	four, six := v1.IPv4Protocol, v1.IPv6Protocol
	onStage(t, confEnv, func(t *testing.T, s *stage) {
		c := s.start()
		both := service("default", 1, asks("10.98.0.9"), policy(v1.IPFamilyPolicyRequireDualStack, six, four))
		single := service("default", 2, asks("10.98.0.10"), policy(v1.IPFamilyPolicySingleStack, four))
		list := service("default", 3, annotated("10.98.0.11,fd98::11"))
		s.Apply(both, single, list)
		for service, want := range map[*v1.Service]string{both: "fd98::,10.98.0.9", single: "10.98.0.10", list: "10.98.0.11,fd98::11"} {
			s.requireServed(c, service)
			assert.Equal(t, want, texts(s.addressesOf(c, service)))
		}
		now := s.Current(both)
		now.Spec.LoadBalancerIP = "10.98.0.77"
		s.Apply(now)
		s.requireServed(c, now)
		assert.Equal(t, "fd98::,10.98.0.77", texts(s.addressesOf(c, now)), "the other address stays")
	})
}

// TestSharedPortsChange: if ports of Services that share an address collide, the younger gets an event and keeps the address, because
// removal would be an outage.
func TestSharedPortsChange(t *testing.T) {
	t.Parallel()
	env := map[string]string{envAnnouncer: announcerNone}
	onStage(t, env, func(t *testing.T, s *stage) {
		c, first, second := s.start(), service("default", 1), service("default", 2, port(443, v1.ProtocolTCP))
		s.Apply(first, second)
		assert.Equal(t, s.requireServed(c, first), s.requireServed(c, second))
		assert.Empty(t, s.Events())
		changed := s.Current(first)
		changed.Spec.Ports = []v1.ServicePort{{Port: 443}}
		s.Apply(changed)
		before := s.writes()
		s.requireServed(c, first)
		assert.Empty(t, s.Events(), "the older one has it by right")
		s.requireServed(c, second)
		assert.Contains(t, strings.Join(s.Events(), "\n"), "Warning "+eventAddressInUse+" address 10.0.0.1 is in use by Service default/s1 with the same port; it stays")
		assert.Equal(t, before, s.writes())
	}, configMap(defaultNamespace, defaultPool, map[string]string{"cidr-global": "10.0.0.0/29", "allow-share-global": "true"}))
}

// TestOneListTakesNoPool: addresses beyond an object's maximum are assigned last, and block nobody.
func TestOneListTakesNoPool(t *testing.T) {
	t.Parallel()
	var all []string
	var reported []v1.NodeAddress
	for i := range 6 {
		all = append(all, fmt.Sprintf("10.0.0.%d", 1+i))
		reported = append(reported, v1.NodeAddress{Type: v1.NodeInternalIP, Address: all[i]})
	}
	tenant := service("tenant", 1, func(s *v1.Service) { s.Spec.Type, s.Spec.ExternalIPs = v1.ServiceTypeClusterIP, all })
	lister := service("tenant", 2, annotated(strings.Join(all, ",")))
	for name, c := range map[string]struct {
		services  []*v1.Service
		nodes     []*v1.Node
		annotated bool
		free      string
	}{
		"externalIPs":               {services: []*v1.Service{tenant}, free: "10.0.0.3"},
		"a Node's addresses":        {nodes: []*v1.Node{{Status: v1.NodeStatus{Addresses: reported}}}, free: "10.0.0.5"},
		"an annotation of kube-vip": {services: []*v1.Service{lister}, annotated: true, free: "10.0.0.3"},
	} {
		w := worldOf(map[string]string{"range-global": "10.0.0.1-10.0.0.6", "range-more": "10.0.0.1-10.0.0.7", "allow-share-global": "true"})
		w.services, w.nodes, w.annotated = c.services, c.nodes, c.annotated
		lacking := policy(v1.IPFamilyPolicySingleStack, v1.IPv4Protocol)
		assert.Equal(t, "10.0.0.6", chosen(t, w, service("default", 3, lacking), "10.0.0.6"), name)
		w.pools.data["allow-share-global"] = "false"
		assert.Equal(t, c.free, chosen(t, w, service("default", 3, lacking), ""), name)
		assert.Equal(t, "10.0.0.7", chosen(t, w, service("more", 3, lacking), ""), "%s: what nobody lists is given first", name)
		w.pools.data["range-default"] = "10.0.0.7-10.0.0.9"
		_, err := w.choose(service("default", 3, lacking), lenientList("10.0.0.6"), nil)
		assert.ErrorContains(t, err, "10.0.0.6 is in use by", "%s: outside of the pools a long list counts as well", name)
	}
}
