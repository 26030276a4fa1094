package keepalived

import (
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	kubetesting "k8s.io/client-go/testing"

	"github.com/anyccm/cloud-controller-manager/registry/portable"
)

var kubeVIPEnv = map[string]string{envPoolConfigMap: "pools"}

func kubeVIPPools(more ...string) *v1.ConfigMap {
	data := map[string]string{"cidr-global": "10.0.0.0/29"}
	for i := 0; i < len(more); i += 2 {
		data[more[i]] = more[i+1]
	}
	return configMap(defaultNamespace, "pools", data)
}

// kubeWrites counts writes of Services.
func (s *stage) kubeWrites() (n int) {
	for _, a := range s.Kube.Actions() {
		if a.GetVerb() == "patch" && a.GetResource().Resource == "services" {
			n++
		}
	}
	return n
}

func ensureMarked(t *testing.T, s *stage, c *cloud, service *v1.Service) *v1.Service {
	t.Helper()
	_, err := c.loadBalancers.EnsureLoadBalancer(t.Context(), "", s.Current(service), nil)
	require.NoError(t, err)
	return s.Current(service)
}

// TestKubeVIPService: a new Service gets its marks in one write, and kube-vip writes its status.
func TestKubeVIPService(t *testing.T) {
	t.Parallel()
	onStage(t, kubeVIPEnv, func(t *testing.T, s *stage) {
		c, web := s.start(), service("default", 1)
		s.Apply(web)
		now := ensureMarked(t, s, c, web)
		assert.Equal(t, marks{Addresses: "10.0.0.1", LoadBalancerIP: "10.0.0.1", Interface: "eth1", Labelled: true}, marksOf(now))
		assert.Equal(t, 1, s.kubeWrites())
		now.Status.LoadBalancer.Ingress = []v1.LoadBalancerIngress{{IP: "10.0.0.1", IPMode: new(v1.LoadBalancerIPModeVIP)}}
		s.Apply(now)
		status, err := c.loadBalancers.EnsureLoadBalancer(t.Context(), "", now, nil)
		require.NoError(t, err)
		assert.Equal(t, now.Status.LoadBalancer, *status)
		ensureMarked(t, s, s.start(), web)
		assert.Equal(t, 1, s.kubeWrites())
	}, kubeVIPPools("interface-global", "eth1"))
}

// servedMarks returns the marks of a Service with an address.
func servedMarks(address string) marks {
	return marks{Addresses: address, LoadBalancerIP: address, Labelled: true}
}

// TestTakeoverKubeVIP: Services as kube-vip's own controller leaves them cost no write; missing marks are added in one.
func TestTakeoverKubeVIP(t *testing.T) {
	t.Parallel()
	label := map[string]string{labelImplementation: implementation}
	for name, c := range map[string]struct {
		labels, annotations map[string]string
		field               string
		want                marks
		writes              int
	}{
		"served":                      {label, map[string]string{annotationIPs: "10.0.0.4"}, "10.0.0.4", servedMarks("10.0.0.4"), 0},
		"served, in no pool any more": {label, map[string]string{annotationIPs: "192.0.2.9"}, "192.0.2.9", servedMarks("192.0.2.9"), 0},
		"DHCP":                        {label, map[string]string{annotationIPs: "0.0.0.0"}, "0.0.0.0", servedMarks("0.0.0.0"), 0},
		"the annotation alone":        {nil, map[string]string{annotationIPs: "10.0.0.4"}, "", marks{"10.0.0.4", "", "", true, false}, 1},
		"the field alone":             {nil, nil, "10.0.0.4", marks{"10.0.0.4", "", "10.0.0.4", true, false}, 1},
		"an empty annotation":         {label, map[string]string{annotationIPs: ""}, "", marks{"10.0.0.1", "", "10.0.0.1", true, false}, 1},
	} {
		onStage(t, kubeVIPEnv, func(t *testing.T, s *stage) {
			web := service("default", 1)
			web.Labels, web.Annotations, web.Spec.LoadBalancerIP = c.labels, c.annotations, c.field
			s.Apply(web)
			for range 2 {
				assert.Equal(t, c.want, marksOf(ensureMarked(t, s, s.start(), web)), name)
			}
			assert.Equal(t, c.writes, s.kubeWrites(), name)
		}, kubeVIPPools())
	}
}

// TestKubeVIPFieldCounts: an address requested by the field is never assigned to another Service.
func TestKubeVIPFieldCounts(t *testing.T) {
	t.Parallel()
	onStage(t, kubeVIPEnv, func(t *testing.T, s *stage) {
		c := s.start()
		chose := service("a", 1, func(s *v1.Service) { s.Spec.LoadBalancerIP = "10.0.0.1" })
		web := service("b", 2)
		s.Apply(chose, web)
		assert.Equal(t, "10.0.0.2", ensureMarked(t, s, c, web).Annotations[annotationIPs])
		assert.Equal(t, "10.0.0.1", ensureMarked(t, s, c, chose).Annotations[annotationIPs])
		now := s.Current(chose)
		now.Spec.LoadBalancerIP = "10.0.0.5"
		s.Apply(now)
		assert.Equal(t, "10.0.0.5", ensureMarked(t, s, c, chose).Annotations[annotationIPs], "the field was changed")
	}, kubeVIPPools())
}

// TestKubeVIPTypeChanges: our marks are removed from a Service that is no longer a load balancer; a deleted one is not written.
func TestKubeVIPTypeChanges(t *testing.T) {
	t.Parallel()
	onStage(t, kubeVIPEnv, func(t *testing.T, s *stage) {
		c, web, gone := s.start(), service("default", 1), service("default", 2)
		s.Apply(web, gone)
		ensureMarked(t, s, c, web)
		ensureMarked(t, s, c, gone)
		writes := s.kubeWrites()
		require.NoError(t, s.Remove(c.loadBalancers, "", gone))
		assert.Equal(t, writes, s.kubeWrites())
		require.NoError(t, c.loadBalancers.EnsureLoadBalancerDeleted(t.Context(), "", s.Current(web)))
		assert.Equal(t, marks{}, marksOf(s.Current(web)))
		_, exists, err := c.loadBalancers.GetLoadBalancer(t.Context(), "", s.Current(web))
		require.NoError(t, err)
		assert.False(t, exists)
	}, kubeVIPPools())
}

// TestKubeVIPManyAtOnce: workers of one process, and a second process with an old view of the Services, never assign an address twice.
func TestKubeVIPManyAtOnce(t *testing.T) {
	t.Parallel()
	onStage(t, kubeVIPEnv, func(t *testing.T, s *stage) {
		processes := []*cloud{s.start(), s.start()}
		var all []*v1.Service
		for number := range 30 {
			all = append(all, service("default", number))
		}
		s.Apply(all...)
		for range 4 { // the framework retries the slower ones
			var group sync.WaitGroup
			for i, one := range all {
				now := s.Current(one)
				group.Go(func() { _, _ = processes[i%2].loadBalancers.EnsureLoadBalancer(t.Context(), "", now, nil) })
			}
			group.Wait()
		}
		seen := map[string]bool{}
		for _, one := range all {
			a := s.Current(one).Annotations[annotationIPs]
			assert.NotEmpty(t, a)
			assert.False(t, seen[a], a)
			seen[a] = true
		}
	}, kubeVIPPools("cidr-global", "10.0.0.0/24"))
}

// TestKubeVIPYields: another process assigned the address to an older Service between our read and our write. We remove ours.
func TestKubeVIPYields(t *testing.T) {
	t.Parallel()
	onStage(t, kubeVIPEnv, func(t *testing.T, s *stage) {
		c, older, web := s.start(), service("default", 1), service("default", 2)
		s.Apply(older, web)
		s.Kube.PrependReactor("patch", "services", func(kubetesting.Action) (bool, runtime.Object, error) {
			other := older.DeepCopy()
			other.Annotations = map[string]string{annotationIPs: "10.0.0.1"}
			return false, nil, s.Kube.Tracker().Update(v1.SchemeGroupVersion.WithResource("services"), other, "default")
		})
		_, err := c.loadBalancers.EnsureLoadBalancer(t.Context(), "", s.Current(web), nil)
		require.ErrorContains(t, err, "address 10.0.0.1 is in use by Service default/s1")
		assert.Equal(t, marks{}, marksOf(s.Current(web)))
		assert.Equal(t, "10.0.0.2", ensureMarked(t, s, c, web).Annotations[annotationIPs])
	}, kubeVIPPools())
}

// TestNothingAnnounces: settings without an announcer are refused, and the message lists the choices.
func TestNothingAnnounces(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		env  map[string]string
		want string
	}{
		{nil, "keepalived-vip (kube-keepalived-vip), kube-vip, keepalived (a rendered keepalived.conf), none"},
		{map[string]string{envAnnouncer: "bgp"}, `"bgp" is not one of`},
		{withEnv(map[string]string{envServiceCIDR: "2001:db8::/64"}), "holds IPv6, which kube-keepalived-vip cannot announce"},
		{withEnv(map[string]string{envServiceCIDR: "10.0.0.1"}), "is not a list of CIDRs"},
		{map[string]string{envAnnouncer: announcerKeepalived, envInterface: "eth0; x"}, "is no name of a network interface"},
		{map[string]string{envAnnouncer: announcerKeepalived, "KEEPALIVED_ADVERT_INTERVAL": "200ms"}, "is not a whole number of seconds"},
		{map[string]string{envAnnouncer: announcerNone, envSelector: "a in"}, "is no label selector"},
	} {
		_, _, err := parseConfig(inputs(c.env))
		require.ErrorContains(t, err, c.want)
	}
	for name, env := range map[string]map[string]string{
		announcerVIP: vipEnv, announcerKubeVIP: {envPoolNamespace: "kube-system"}, announcerNone: {envAnnouncer: announcerNone, envConfigMap: "x"},
	} {
		c, _, err := parseConfig(inputs(env))
		require.NoError(t, err)
		assert.Equal(t, name, c.Announcer)
	}
	_, warnings, err := parseConfig(inputs(map[string]string{envClass: "true"}))
	require.NoError(t, err)
	assert.Contains(t, warnings.Error(), "--load-balancer-class=kube-vip.io/kube-vip-class")
}

// TestKubeVIPAnnotationChanged: writing another Service's address into the annotation does not assign it; copying all marks of another
// Service causes an event.
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
		assert.Equal(t, servedMarks("10.0.0.5"), marksOf(ensureMarked(t, s, c, now)), "a free one is taken, with the field")

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

// TestKubeVIPByClass: with KUBEVIP_ENABLE_LOADBALANCERCLASS Services of other classes or without one are left to other controllers, as by
// kube-vip's own.
func TestKubeVIPByClass(t *testing.T) {
	t.Parallel()
	class := func(name string) func(*v1.Service) { return func(s *v1.Service) { s.Spec.LoadBalancerClass = &name } }
	plain, own, other := service("a", 1), service("a", 2, class(documentedClass)), service("a", 3, class("example.com/other"))
	left := func(env map[string]string) (all []bool) {
		leave := leavesAlone(inputs(env))
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

// TestKubeVIPStaleCopy: the framework passes the copy from before its finalizer. A new Service costs one write and two listings: one to
// choose, one to detect another process's same choice.
func TestKubeVIPStaleCopy(t *testing.T) {
	t.Parallel()
	onStage(t, kubeVIPEnv, func(t *testing.T, s *stage) {
		c, web := s.start(), service("default", 1)
		web.ResourceVersion = "1"
		s.Apply(web)
		stale := s.Current(web)
		now := stale.DeepCopy()
		now.ResourceVersion, now.Finalizers = "2", []string{"service.kubernetes.io/load-balancer-cleanup"}
		require.NoError(t, s.Kube.Tracker().Update(v1.SchemeGroupVersion.WithResource("services"), now, "default"))
		s.Kube.PrependReactor("patch", "services", func(a kubetesting.Action) (bool, runtime.Object, error) {
			if !strings.Contains(string(a.(kubetesting.PatchAction).GetPatch()), `"resourceVersion":"2"`) {
				return true, nil, apierrors.NewConflict(v1.Resource("services"), web.Name, errors.New("an old version"))
			}
			return false, nil, nil
		})
		s.Kube.ClearActions()
		_, err := c.loadBalancers.EnsureLoadBalancer(t.Context(), "", stale, nil)
		require.NoError(t, err)
		lists := 0
		for _, a := range s.Kube.Actions() {
			if a.Matches("list", "services") {
				lists++
			}
		}
		assert.Equal(t, 1, s.kubeWrites())
		assert.Equal(t, 2, lists)
		assert.Equal(t, servedMarks("10.0.0.1"), marksOf(s.Current(web)))
		assert.NotEmpty(t, s.Current(web).Finalizers)
	}, kubeVIPPools())
}

// TestTakeoverOfAddressGivenTwice: kube-vip's own controller assigns an address again if its user chose it, because that Service has no
// label. The older Service keeps it, and the younger gets an event.
func TestTakeoverOfAddressGivenTwice(t *testing.T) {
	t.Parallel()
	onStage(t, kubeVIPEnv, func(t *testing.T, s *stage) {
		c := s.start()
		web := service("default", 1, annotated("10.0.0.1"), asks("10.0.0.1"))
		late := service("default", 2, annotated("10.0.0.1"), asks("10.0.0.1"))
		late.Labels = map[string]string{labelImplementation: implementation}
		s.Apply(web, late)
		s.requireRefusal(c, web, eventAddressInUse, "10.0.0.1 is in use by Service default/s2")
		web.Status.LoadBalancer.Ingress = []v1.LoadBalancerIngress{{IP: "10.0.0.1"}} // a Service's author cannot write the status
		s.Apply(web)
		assert.Equal(t, servedMarks("10.0.0.1"), marksOf(ensureMarked(t, s, c, web)))
		assert.NotContains(t, strings.Join(s.Events(), "\n"), eventAddressInUse)
		ensureMarked(t, s, c, late)
		assert.Contains(t, strings.Join(s.Events(), "\n"), "Warning "+eventAddressInUse+" address 10.0.0.1 is in use by Service default/s1")
		assert.Equal(t, 1, s.kubeWrites(), "the label alone")
	}, kubeVIPPools())
}

// TestPortableAddressIsMarked: the address requested by a portable annotation is written for kube-vip.
func TestPortableAddressIsMarked(t *testing.T) {
	t.Parallel()
	onStage(t, kubeVIPEnv, func(t *testing.T, s *stage) {
		c, web := s.start(), service("default", 1)
		web.Annotations = map[string]string{portable.Address: "10.0.0.3"}
		s.Apply(web)
		assert.Equal(t, "10.0.0.3", marksOf(ensureMarked(t, s, c, web)).Addresses)
	}, kubeVIPPools())
}
