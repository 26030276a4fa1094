package keepalived

import (
	"math/rand/v2"
	"net/netip"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
)

// poolOf returns the pool of namespace default.
func poolOf(t *testing.T, data map[string]string) pool {
	t.Helper()
	p, err := pools{where: "kube-system/kubevip", data: data}.poolOf("default")
	require.NoError(t, err)
	return p
}

// takeAll takes up to n addresses from a pool.
func takeAll(p pool, v6 bool, n int, used ...string) (all []string) {
	taken := map[netip.Addr]bool{}
	for _, text := range used {
		taken[netip.MustParseAddr(text)] = true
	}
	for range n {
		a, ok := p.next(v6, func(a netip.Addr) bool { return taken[a] })
		if !ok {
			return all
		}
		taken[a] = true
		all = append(all, a.String())
	}
	return all
}

type nextCase struct {
	data map[string]string
	v6   bool
	used []string
	want []string
}

var nextCases = map[string]nextCase{
	"a range": {
		data: map[string]string{"range-global": "10.10.10.8-10.10.10.15"},
		used: []string{"10.10.10.8", "10.10.10.9", "10.10.10.10", "10.10.10.12"},
		want: []string{"10.10.10.11"},
	},
	"no network address": {
		data: map[string]string{"cidr-global": "192.168.1.1/24"},
		used: []string{"192.168.1.1", "192.168.1.2"},
		want: []string{"192.168.1.3"},
	},
	"IPv6": {
		data: map[string]string{"cidr-global": "fe80::10/126"},
		v6:   true, used: []string{"fe80::10", "fe80::11", "fe80::12"},
		want: []string{"fe80::13"},
	},
	"an IPv6 range": {
		data: map[string]string{"range-global": "fe80::ffff-fe80::1:3"},
		v6:   true, used: []string{"fe80::ffff", "fe80::1:0", "fe80::1:1"},
		want: []string{"fe80::1:2"},
	},
	"without ends": {
		data: map[string]string{"cidr-global": "192.168.0.200/29", "skip-end-ips-in-cidr": "true"},
		want: []string{"192.168.0.201", "192.168.0.202", "192.168.0.203", "192.168.0.204", "192.168.0.205", "192.168.0.206"},
	},
	"adjacent are one": {
		data: map[string]string{"cidr-global": "192.168.0.200/30,192.168.0.204/30", "skip-end-ips-in-cidr": "true"},
		used: []string{"192.168.0.201", "192.168.0.202"},
		want: []string{"192.168.0.203", "192.168.0.204", "192.168.0.205", "192.168.0.206"},
	},
	"not aligned": {
		data: map[string]string{"cidr-global": "10.0.0.4/30,10.0.0.8/30", "skip-end-ips-in-cidr": "true"},
		want: []string{"10.0.0.5", "10.0.0.6", "10.0.0.9", "10.0.0.10"},
	},
	"a /31 and a /32": {
		data: map[string]string{"cidr-global": "10.0.0.2/31,10.0.0.9/32", "skip-end-ips-in-cidr": "true"},
		want: []string{"10.0.0.2", "10.0.0.3", "10.0.0.9"},
	},
	"all of IPv4": {data: map[string]string{"cidr-global": "0.0.0.0/0"}, want: []string{"0.0.0.1", "0.0.0.2"}},
	"the highest": {
		data: map[string]string{"cidr-global": "10.0.0.0/24", "search-order": "desc"},
		want: []string{"10.0.0.254", "10.0.0.253"},
	},
	"cidr before range": {
		data: map[string]string{"cidr-global": "10.1.0.0/24", "range-default": "10.2.0.1-10.2.0.9"},
		want: []string{"10.1.0.1"},
	},
	"blanks and mixed": {
		data: map[string]string{"cidr-global": "10.0.0.7/32, 10.0.0.1 - 10.0.0.2"},
		want: []string{"10.0.0.1", "10.0.0.2", "10.0.0.7"},
	},
	"families apart": {
		data: map[string]string{"cidr-global": "10.0.0.7/32,2001:db8::/64"},
		v6:   true,
		want: []string{"2001:db8::", "2001:db8::1"},
	},
	"the last of a family": {
		data: map[string]string{"range-global": "255.255.255.253-255.255.255.255"},
		want: []string{"255.255.255.253", "255.255.255.254"},
	},
}

// TestNextAddress: the next address is the one that kube-vip's own controller would assign.
func TestNextAddress(t *testing.T) {
	t.Parallel()
	for name, c := range nextCases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := len(c.want)
			if name == "without ends" || name == "adjacent are one" || name == "a /31 and a /32" {
				n++ // then the pool is exhausted
			}
			assert.Equal(t, c.want, takeAll(poolOf(t, c.data), c.v6, n, c.used...))
		})
	}
}

// TestServiceCIDR: the pool of keepalived-cloud-provider excludes only the ends of a network, and none of a /31 or /32. Large IPv6 networks
// take no time. That controller failed in both cases.
func TestServiceCIDR(t *testing.T) {
	t.Parallel()
	for cidr, want := range map[string][]string{
		"10.210.38.100/26": {"10.210.38.65", "10.210.38.66"},
		"10.0.0.0/30":      {"10.0.0.1", "10.0.0.2"},
		"10.0.0.5/32":      {"10.0.0.5"},
		"10.0.0.4/31":      {"10.0.0.4", "10.0.0.5"},
		"10.0.255.254/23":  {"10.0.254.1", "10.0.254.2"},
	} {
		p, err := pools{cidr: cidr}.poolOf("default")
		require.NoError(t, err)
		assert.Equal(t, want, takeAll(p, false, 2), cidr)
	}
	p, err := pools{cidr: "10.0.254.0/23"}.poolOf("default")
	require.NoError(t, err)
	assert.True(t, p.contains(netip.MustParseAddr("10.0.255.0")), "within a larger network it is an address as any other")
	assert.Equal(t, []string{"2001:db8::", "2001:db8::1"}, takeAll(pool{spans: []span{spanOf(netip.MustParsePrefix("2001:db8::/32"))}}, true, 2))
}

func TestPoolKeys(t *testing.T) {
	t.Parallel()
	p := pools{where: "kube-system/kubevip", data: map[string]string{
		"cidr-empty": "", "cidr-bad": "10.0.0.0/33", "range-bad2": "10.0.0.9-10.0.0.1", "allow-share-global": "true",
		"allow-share-strict": "no", "interface-global": "eth0", "interface-edge": "eth1",
	}}
	_, err := p.poolOf("default")
	require.ErrorIs(t, err, errNoPool)
	_, err = p.poolOf("empty")
	require.ErrorIs(t, err, errEmptyPool)
	_, err = p.poolOf("bad")
	require.ErrorContains(t, err, "\"10.0.0.0/33\" is not a network")
	_, err = p.poolOf("bad2")
	require.ErrorContains(t, err, "\"10.0.0.9-10.0.0.1\" is not a range of addresses")
	assert.True(t, p.shares("default"))
	assert.False(t, p.shares("strict"))
	assert.Equal(t, "eth0", p.networkInterface("default"))
	assert.Equal(t, "eth1", p.networkInterface("edge"))
	p.cidr = "10.9.0.0/24"
	one, err := p.poolOf("default")
	require.NoError(t, err)
	assert.Equal(t, []string{"10.9.0.1"}, takeAll(one, false, 1), "the CIDR counts where the ConfigMap has no key")
}

// TestPoolsAreSets: whatever the notation, each address of the pool is assigned exactly once.
func TestPoolsAreSets(t *testing.T) {
	t.Parallel()
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		parts, want := []string(nil), map[string]bool{}
		for range 1 + rnd.IntN(4) {
			prefix := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, byte(rnd.IntN(2)), byte(rnd.IntN(256))}), 26+rnd.IntN(7))
			parts = append(parts, prefix.String())
			for a := prefix.Masked().Addr(); prefix.Contains(a); a = a.Next() {
				if last := a.As4()[3]; last != 0 && last != 255 {
					want[a.String()] = true
				}
			}
		}
		text := strings.Join(parts, ",")
		for _, order := range []string{"", orderDown} {
			all := takeAll(poolOf(t, map[string]string{"cidr-global": text, "search-order": order}), false, 1000)
			got := map[string]bool{}
			for _, a := range all {
				got[a] = true
			}
			assert.Len(t, got, len(all), text)
			assert.Equal(t, want, got, text)
		}
	}
}

func FuzzParseSpans(f *testing.F) {
	for _, text := range []string{
		"10.0.0.0/8", "10.0.0.1-10.0.0.9, fe80::/10", "0.0.0.0/0", "::/0", "255.255.255.255/32", "a", "-", ",", "1.2.3.4/", "::1-::", "fe80::1%eth0-fe80::2%eth0",
	} {
		f.Add(text, true)
	}
	f.Fuzz(func(t *testing.T, text string, skip bool) {
		spans, err := parseSpans(text, skip)
		if err != nil {
			return
		}
		for i, s := range spans {
			if s.to.Less(s.from) || s.from.Is4() != s.to.Is4() || (i > 0 && !spans[i-1].to.Less(s.from)) {
				t.Fatalf("%q becomes %v", text, spans)
			}
		}
		pool{spans: spans}.next(false, func(netip.Addr) bool { return false })
	})
}

// TestRequestedAddressesOfPoolsAlone: KEEPALIVED_REQUESTED_ADDRESSES=pools refuses addresses outside the namespace's pool. A Service that
// has one keeps it, and one that waits gets it once the pool contains it.
func TestRequestedAddressesOfPoolsAlone(t *testing.T) {
	t.Parallel()
	env := map[string]string{envAnnouncer: announcerNone, envRequested: requestedPools}
	onStage(t, env, func(t *testing.T, s *stage) {
		c, gateway, mine := s.start(), service("tenant", 1, asks("10.98.0.254")), service("tenant", 2, asks("10.1.0.7"))
		others, had := service("tenant", 3, annotated("10.2.0.7")), service("tenant", 4, asks("192.0.2.1"))
		s.Apply(gateway, mine, others, had)
		book := configMap(defaultNamespace, defaultBook, nil)
		book.Annotations = map[string]string{annotationRegistry: record{}.put(newEntry(had, lenientList("192.0.2.1"), "")).encode()}
		s.api.Put(book)
		s.requireRefusal(c, gateway, eventConfigError, "address 10.98.0.254 is in no pool of namespace tenant, and KEEPALIVED_REQUESTED_ADDRESSES=pools")
		s.requireRefusal(c, others, eventConfigError, "address 10.2.0.7 is in no pool of namespace tenant")
		assert.Equal(t, "10.1.0.7", s.requireServed(c, mine))
		assert.Equal(t, "192.0.2.1", s.requireServed(c, had))
		_, err := s.server.AddFault(simkit.Fault{Kind: simkit.FaultStatus, Status: 503, Operation: "GET configmaps"})
		require.NoError(t, err)
		_, err = s.ensure(s.start(), gateway)
		require.Error(t, err)
		assert.Empty(t, s.Events(), "where the pools cannot be read, nobody knows")
	}, configMap(defaultNamespace, defaultPool, map[string]string{"cidr-tenant": "10.1.0.0/24", "cidr-other": "10.2.0.0/24"}))
}

// TestPoolEditedWhileAllocating: two processes assign addresses while an operator edits the pool repeatedly. None is assigned twice, and
// each belongs to the pool before or after an edit.
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
						p.reconciler.pools.invalidate()
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
