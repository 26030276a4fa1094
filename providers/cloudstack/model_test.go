package cloudstack

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const otherID = "3a5c5b0e-0000-4a5b-8000-000000000002"

func TestProviderIDs(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"external-cloudstack://" + someID, "external-cloudstack:///" + someID, "cloudstack:///" + someID, "cloudstack://region/" + someID, someID,
	} {
		id, err := parseProviderID(text)
		assert.NoError(t, err, text)
		assert.Equal(t, someID, id, text)
		assert.Equal(t, someID, instanceKey(text), text)
		assert.True(t, namesInstance(text))
	}
	assert.Equal(t, bareID, instanceKey(bareID), "versions 1.1.x wrote it on all Nodes: it is ours")
	assert.False(t, namesInstance(bareID))
	for _, text := range []string{"aws:///a/i-1", "kind://docker/kind/worker", "ovirt://" + someID, "node-1"} {
		assert.Empty(t, instanceKey(text), text)
	}
}

// TestOwner: keyword finds names and descriptions that only hold the name of the load balancer; they are nobody's of ours.
func TestOwner(t *testing.T) {
	t.Parallel()
	const lb = "a224691befa864b07938cc86d948b99f"
	for name, want := range map[string]string{
		lb + "-tcp-80": lb, lb + "-udp-53": lb, lb + "-tcp-proxy-80": lb, lb + "-80": lb, lb: "",
		lb + "-http-80": lb + "-http", "x-" + lb + "-tcp-80": "x-" + lb, lb + "-tcp-": "",
	} {
		assert.Equal(t, want, rule{Name: name}.owner(), name)
	}
}

// TestNetworksOfRules: what was created has blanks between them and what was changed has commas; none at all, as before v1.2.0, is
// everybody.
func TestNetworksOfRules(t *testing.T) {
	t.Parallel()
	assert.Equal(t, []string{"0.0.0.0/0"}, cidrs(""))
	assert.Equal(t, cidrs("10.0.0.0/8 192.0.2.0/24"), cidrs("192.0.2.0/24,10.0.0.0/8"))
	w := wish{Name: "n", Protocol: "tcp", Algorithm: "roundrobin", Port: 80, NodePort: 30080, CIDRs: cidrs("")}
	r := rule{Name: "n", Protocol: "tcp", Algorithm: "roundrobin", PublicPort: "80", PrivatePort: "30080"}
	for _, inPlace := range []bool{false, true} {
		differs, again := r.fits(w, inPlace)
		assert.Empty(t, differs, "a rule of v1.1 is as it should be")
		assert.False(t, again)
	}
	r.CIDRs = "10.0.0.0/8"
	_, again := r.fits(w, false)
	assert.True(t, again, "before 4.22 the networks of a rule do not change")
	differs, again := r.fits(w, true)
	assert.Equal(t, []string{"networks that may reach it"}, differs)
	assert.False(t, again)
}

// TestTook: an address goes with its Service only where it is sure that it was taken for it.
func TestTook(t *testing.T) {
	t.Parallel()
	created := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	at := func(d time.Duration) string { return created.Add(d).Format(timeForm) }
	theirs, ours := []rule{{AddressID: someID}}, []rule{{AddressID: someID, Description: "anyccm:c anyccm-svc:u"}}
	marked := []rule{{AddressID: someID, Description: "anyccm:c " + addressMark(someID)}}
	for name, c := range map[string]struct {
		s      settings
		wanted string
		rules  []rule
		age    time.Duration
		want   bool
	}{
		"of the official controller":                {settings{}, "", theirs, 0, true},
		"named, of the official controller":         {settings{}, "192.0.2.1", theirs, 0, false},
		"named, and taken by it":                    {settings{Associated: true}, "192.0.2.1", theirs, 0, true},
		"another one is named by now":               {settings{Associated: true}, "192.0.2.9", theirs, 0, false},
		"used by us, and no record":                 {settings{}, "", ours, 0, false},
		"the rules say so":                          {settings{}, "", marked, 0, true},
		"the record says so":                        {settings{Record: someID}, "", ours, 0, true},
		"the record says that it is somebody's":     {settings{Record: givenPrefix + someID}, "", theirs, 0, false},
		"the record, and it is younger":             {settings{Record: someID}, "", nil, time.Minute, true},
		"the record alone, and it is older":         {settings{Record: someID}, "", nil, -time.Minute, false},
		"the record of another address":             {settings{Record: otherID}, "", ours, 0, false},
		"it is to be kept":                          {settings{Record: someID, KeepIP: true}, "", ours, 0, false},
		"it is to be kept, of the other controller": {settings{KeepIP: true}, "", theirs, 0, false},
	} {
		s := &v1.Service{Spec: v1.ServiceSpec{LoadBalancerIP: c.wanted}}
		s.CreationTimestamp = metav1.NewTime(created)
		assert.Equal(t, c.want, took(s, c.s, c.rules, address{ID: someID, IP: "192.0.2.1", Allocated: at(c.age)}), name)
	}
}

// TestACL: what somebody made by hand for a port decides; others' items and those of the other direction do not count.
func TestACL(t *testing.T) {
	t.Parallel()
	item := func(protocol, port, cidr, action, traffic, reason string) aclItem {
		return aclItem{
			ID: protocol + port + cidr + action + reason, Protocol: protocol, Start: port, End: port, CIDRs: cidr,
			Action: action, Traffic: traffic, Reason: reason,
		}
	}
	everyone := []string{everybody}
	ours, others := reasonPrefix+"lb", reasonPrefix+"other"
	for name, c := range map[string]struct {
		items         []aclItem
		missing, hand bool
		surplus       int
	}{
		"nothing": {nil, true, false, 0},
		"ours":    {[]aclItem{item("tcp", "80", everybody, "Allow", "Ingress", ours)}, false, false, 0},
		"ours twice": {
			[]aclItem{item("tcp", "80", everybody, "Allow", "Ingress", ours), item("tcp", "80", everybody, "Allow", "Ingress", ours)},
			false, false, 1,
		},
		"ours with other networks":    {[]aclItem{item("tcp", "80", "10.0.0.0/8", "Allow", "Ingress", ours)}, true, false, 1},
		"another load balancer's":     {[]aclItem{item("tcp", "80", everybody, "Allow", "Ingress", others)}, true, false, 0},
		"of v1.2.0, without a reason": {[]aclItem{item("tcp", "80", everybody, "Allow", "Ingress", "")}, false, true, 0},
		"upper case, as CKS has it":   {[]aclItem{item("TCP", "80", everybody, "Allow", "Ingress", "")}, false, true, 0},
		"it leaves":                   {[]aclItem{item("tcp", "80", everybody, "Allow", "Egress", "")}, true, false, 0},
		"denied by hand":              {[]aclItem{item("tcp", "80", everybody, "Deny", "Ingress", "")}, false, true, 0},
		"all is denied at the end":    {[]aclItem{{ID: "x", Protocol: "all", CIDRs: everybody, Action: "Deny", Traffic: "Ingress"}}, true, false, 0},
		"another port":                {[]aclItem{item("tcp", "443", everybody, "Allow", "Ingress", "")}, true, false, 0},
	} {
		v := aclOf(c.items, "lb", "tcp", 80, everyone)
		assert.Equal(t, c.missing, v.missing, name)
		assert.Equal(t, c.hand, v.hand != nil, name)
		assert.Len(t, v.surplus, c.surplus, name)
	}
}

// TestLeavingItems: an item without a reason goes only with a rule of CloudStack's own controller, and when no other rule needs the port.
func TestLeavingItems(t *testing.T) {
	t.Parallel()
	plain := aclItem{ID: "plain", Protocol: "tcp", Start: "80", End: "80", CIDRs: everybody, Action: "Allow", Traffic: "Ingress"}
	own, other := plain, plain
	own.ID, own.Reason = "own", reasonPrefix+"lb"
	other.ID, other.Reason = "other", reasonPrefix+"other"
	items := []aclItem{plain, own, other}
	ids := func(r rule, others ...rule) (list []string) {
		for _, i := range leaving(items, "lb", r, others) {
			list = append(list, i.ID)
		}
		return list
	}
	theirs := rule{ID: "1", PublicPort: "80", Protocol: protocolProxy}
	ours := theirs
	ours.Description = "anyccm:c"
	assert.Equal(t, []string{"plain", "own"}, ids(theirs))
	assert.Equal(t, []string{"own"}, ids(theirs, rule{ID: "2", PublicPort: "80", Protocol: "tcp"}))
	assert.Equal(t, []string{"own"}, ids(ours))
}

func TestInstanceTypes(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{"Small Instance": "SmallInstance", "c2.medium": "c2medium", "été": "t", "": ""} {
		assert.Equal(t, want, instanceType(name))
	}
	assert.Equal(t, "zone-1", label("zone-1"))
	assert.Equal(t, "zone-1", label("zone 1"))
}

// TestNetworkOf: the network that most nodes are in, and of several the one of their default routes.
func TestNetworkOf(t *testing.T) {
	t.Parallel()
	machine := func(networks ...string) (v vm) {
		for i, n := range networks {
			v.NICs = append(v.NICs, nic{NetworkID: n, Default: i == len(networks)-1})
		}
		return v
	}
	assert.Equal(t, "b", networkOf([]vm{machine("a", "b"), machine("a", "b")}))
	assert.Equal(t, "a", networkOf([]vm{machine("a", "b"), machine("a"), machine("c")}))
	assert.Empty(t, networkOf([]vm{{}}))
}
